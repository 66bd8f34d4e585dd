"""A query, how it is compiled and why, and what it costs, as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.compile.compiler import compile_query
from tidegate.compile.cost import ALPHA, BETA, cost_of, shape_of
from tidegate.compile.lower_to_aggregates import Operators
from tidegate.compile.plan import OUTPUT, Feed, PlacedStep, Plan, Subquery
from tidegate.compile.show_query import show_graph, show_query, show_table
from tidegate.compile.split_hot_keys import HotKeys
from tidegate.errors import UnsupportedError
from tidegate.query.advice import advised
from tidegate.query.names import unique_names
from tidegate.query.nodes import Join, Node, Source
from tidegate.query.outputs import schemas_of
from tidegate.query.windows import MANY_WINDOWS

_INDENT = "  "
_PARTITIONING = {"none": "not partitioned", "keys": "partitioned by keys", "pairs": "partitioned by pairs"}
_LEAVING = {True: "results leave when settled", False: "results leave as tuples come"}
_TOGETHER = {
    "spark": "one streaming query: a batch is evaluated once for all outputs; a folder has each result exactly once, and "
    "those of a batch appear in one folder after the other; what prints rows gets a batch again that is run again",
    "local": "one run: results leave in one order of event time, whichever output they belong to",
    "reference": "one run: every step sees a tuple once, whatever reads it",
}


@advised
def explain(
    query: Node,
    runtime: str = "spark",
    instances: int = 2,
    rate: float = 100_000.0,
    alpha: float = ALPHA,
    beta: float = BETA,
    cells: int | tuple[int, int] = 1,
    operators: Operators = "dedicated",
    hot_keys: HotKeys = False,
) -> str:
    """Show a query as written, its subqueries with every choice and its reason, and what it costs to spread.

    Where it is made of Aggregates those are shown too. A query that is refused is shown as written, with the refusal in
    place of the rest.
    """
    query = unique_names(query)
    shown = [f"query\n{show_query(query, _INDENT)}\n{_result(query)}"]
    try:
        plan = compile_query(query, runtime, cells=cells, operators=operators, hot_keys=hot_keys)
    except UnsupportedError as refusal:
        return "\n\n".join([*shown, f"on {runtime}: refused\n" + show_table([(str(refusal),)], indent=_INDENT)]) + "\n"
    if operators != "dedicated":
        shown.append(f"made of Aggregates, {operators}\n{show_query(plan.query, _INDENT)}")
        shown.append(f"graph: what each reads\n{show_graph(plan.query, _INDENT)}")
    shown += [show_plan(plan), _cost(query if operators == "dedicated" else plan.query, instances, rate, alpha, beta)]
    return "\n\n".join(shown) + "\n"


def _result(query: Node) -> str:
    rows = [
        ("result" if name is None else f"result '{name}'", ", ".join(schema.names))
        for name, schema in schemas_of(query).items()
    ]
    return show_table(rows, indent=_INDENT)


def show_plan(plan: Plan) -> str:
    """What a runtime executes: each subquery with its feeds, steps and choices, then the feeds that lead out."""
    count = len(plan.subqueries)
    heading = f"on {plan.runtime}: {count} {'subquery' if count == 1 else 'subqueries'}"
    facts = [] if plan.exchange is None else [("cells", plan.exchange.why)]
    facts += [("repeated", text) for text in _repeated(plan)]
    if facts:
        heading += "\n" + show_table(facts, indent=_INDENT)
    parts = [heading, *(_subquery(subquery, plan) for subquery in plan.subqueries)]
    if plan.names:
        parts.append("outputs\n" + show_table([(_TOGETHER[plan.runtime],)], indent=_INDENT))
    for side, name in enumerate(plan.names or (None,)):
        rows = [row for feed in plan.outputs if feed.side == side for row in _feed(feed, plan)]
        title = "output" if name is None else f"output '{name}'"
        parts.append(f"{title}\n{show_table(rows, indent=_INDENT * 2)}")
    return "\n\n".join(parts)


def _repeated(plan: Plan) -> Iterator[str]:
    """The stateless steps that several others read and that run for each of them, since these begin at their gates."""
    names: dict[int, str] = {}
    places: dict[int, set[tuple[object, ...]]] = {}
    for feed in plan.feeds if plan.runtime in ("spark", "local") else ():
        for step in feed.steps:
            place: tuple[object, ...] = (feed.origin, feed.target, feed.input)
            if feed.target == OUTPUT or (plan.runtime == "local" and isinstance(feed.origin, int)):
                # Results leave a subquery in one place, whatever reads them.
                place = (feed.origin,)
            names[id(step.node)] = step.node.name
            places.setdefault(id(step.node), set()).add(place)
    for step_id, found in places.items():
        if len(found) > 1:
            yield f"'{names[step_id]}' is read in {len(found)} places, and runs once for each"


def _subquery(subquery: Subquery, plan: Plan) -> str:
    operator, region = subquery.operator, subquery.region
    facts = []
    if region is not None:
        facts.append(("region", f"{_PARTITIONING[region.partitioning]}; {_LEAVING[region.settled]}; {region.why}"))
    if subquery.slices is not None:
        facts.append(("slices", subquery.slices.why))
    window = None if operator is None else operator.window
    if window is not None and window.windows_per_tuple > MANY_WINDOWS:
        each = "pair" if isinstance(operator, Join) else "key"
        facts.append(
            ("windows", f"very many: each {each} of a tuple brings up to {window.windows_per_tuple:,} results")
        )
    if subquery.combine is not None:
        facts.append(("combine", f"{'yes' if subquery.combine.before_exchange else 'no'}: {subquery.combine.why}"))
    if subquery.hot_keys is not None:
        facts.append(("hot keys", subquery.hot_keys))
    steps = [row for feed in subquery.feeds for row in _feed(feed, plan)]
    if operator is not None:
        steps.append((operator.name, _place(subquery), subquery.why))
    title = f"subquery '{subquery.name}'" if operator is not None else f"stateless part '{subquery.name}'"
    tables = filter(None, (show_table(facts, indent=_INDENT), show_table(steps, indent=_INDENT * 2)))
    return "\n".join((title, *tables))


def _feed(feed: Feed, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """The steps of a feed, after where its tuples come from."""
    origin = feed.origin.name if isinstance(feed.origin, Source) else plan.subqueries[feed.origin].name
    yield origin, "input", "" if feed.late_side is None else "the tuples that are too late for it"
    yield from ((step.node.name, _place(step), step.why) for step in feed.steps)


def _place(step: PlacedStep | Subquery) -> str:
    return "" if step.place is None else step.place.value


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
