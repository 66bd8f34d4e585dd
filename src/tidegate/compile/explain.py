"""A query, how it is compiled and why, and what it costs, as text for people."""

from __future__ import annotations

from tidegate.compile.compiler import compile_query
from tidegate.compile.cost import ALPHA, BETA, cost_of, shape_of
from tidegate.compile.plan import Plan, Region, Slices, Subquery
from tidegate.compile.show_query import show_query
from tidegate.compile.show_table import show_table
from tidegate.errors import UnsupportedError
from tidegate.query.advice import advised
from tidegate.query.nodes import Join, Node, unique_names
from tidegate.query.windows import MANY_WINDOWS

_INDENT = "  "


@advised(on="name it with runtime=...")
def explain(
    query: Node,
    runtime: str = "spark",
    instances: int = 2,
    rate: float = 100_000.0,
    alpha: float = ALPHA,
    beta: float = BETA,
) -> str:
    """Show a query as written, its subqueries with every choice and its reason, and what it costs to spread.

    A query that the runtime refuses is shown as written, with the refusal in place of the rest.
    """
    query = unique_names(query)
    shown = [f"query\n{show_query(query, _INDENT)}\n{_result(query)}"]
    try:
        plan = compile_query(query, runtime)
    except UnsupportedError as refusal:
        return "\n\n".join([*shown, f"on {runtime}: refused\n" + show_table([(str(refusal),)], indent=_INDENT)]) + "\n"
    shown += [_heading(plan), *map(_subquery, plan.subqueries), _cost(query, instances, rate, alpha, beta)]
    return "\n\n".join(shown) + "\n"


def _result(query: Node) -> str:
    return show_table([("result", ", ".join(query.schema.names))], indent=_INDENT)


def _heading(plan: Plan) -> str:
    count = len(plan.subqueries)
    return f"on {plan.runtime}: {count} {'subquery' if count == 1 else 'subqueries'}"


def _subquery(subquery: Subquery) -> str:
    title = "stateless steps" if subquery.stateful is None else f"'{subquery.stateful.name}' and what follows it"
    stages = [(stage.node.name, stage.place.value, stage.why) for stage in subquery.stages]
    facts = []
    if subquery.region is not None:
        facts.append(("region", _region(subquery.region)))
    if subquery.slices is not None:
        facts.append(("slices", _slices(subquery.slices)))
    window = None if subquery.stateful is None else subquery.stateful.window
    if window is not None and window.windows_per_tuple > MANY_WINDOWS:
        each = "pair" if isinstance(subquery.stateful, Join) else "key"
        facts.append(
            ("windows", f"very many: each {each} of a tuple brings up to {window.windows_per_tuple:,} results")
        )
    if subquery.combine is not None:
        facts.append(("combine", f"{'yes' if subquery.combine else 'no'}: {subquery.combine_why}"))
    return "\n".join(
        (f"{subquery.name}: {title}", show_table(facts, indent=_INDENT), show_table(stages, indent=_INDENT * 2))
    )


def _region(region: Region) -> str:
    order = "in order" if region.ordered else "in any order"
    out = "any number" if region.selectivity == "any" else region.selectivity
    return f"{region.state}, {order}, {out} out for one in: {region.why}"


def _slices(slices: Slices) -> str:
    windows = slices.windows_per_tuple
    saved = f" instead of up to {windows:,} windows" if windows > 1 else ""
    return f"{slices.per_advance} per advance, {slices.per_window:,} per window; a tuple updates 1 slice{saved}"


def _cost(query: Node, instances: int, rate: float, alpha: float, beta: float) -> str:
    shape = shape_of(query)
    rows: list[tuple[str, ...]] = [("strategy", "hops", "fan-out", "channels", "cost", "paper's f", "paper's cost")]
    for way in cost_of(shape, instances, rate, alpha, beta):
        counts = way.name, str(way.hops), _figure(way.fan_out), _figure(way.channels)
        rows.append((*counts, f"{way.cost:,.2f}", _figure(way.paper_channels), f"{way.paper_cost:,.2f}"))
    title = (
        f"cost of {_many(shape.operators, 'operator')}, {shape.stateful} stateful, on {_many(instances, 'instance')}"
    )
    weights = (
        f"{_INDENT}operator-set is how tidegate splits; cost = α·channels + β·rate·hops, α = {alpha:g}, β = {beta:g}"
    )
    table = show_table(rows, indent=_INDENT, right=frozenset(range(1, 7)))
    return f"{title} at {rate:,.0f} tuples/s\n{table}\n{weights}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
