"""Pass: each subquery gets the properties that make it safe to run in parallel (Gedik §2.2)."""

from __future__ import annotations

from dataclasses import replace

from tidegate.compile.place_join import dealt_to_cells
from tidegate.compile.plan import Plan, Region, Selectivity, Subquery
from tidegate.errors import InternalError
from tidegate.query.keys import Columns
from tidegate.query.nodes import (
    Filter,
    Join,
    KeyedApply,
    MapBatches,
    Node,
    Select,
    Source,
    Union,
    WindowAggregate,
    WithColumns,
    walk,
)

# Operators that need their input in order. All aggregates are commutative; the functions of a user need not be.
_ORDER_BOUND: tuple[type, ...] = (KeyedApply,)

_LOOSENESS: dict[Selectivity, int] = {"exactly one": 0, "at most one": 1, "any": 2}


def mark_regions(plan: Plan) -> Plan:
    """Say how tuples are dealt to a subquery's instances, whether its results need an order, and how many there are.

    ::

        before   subquery 1: map                     subquery 2: aggregate by src, filter
        after    stateless, unordered, exactly one   partitioned, unordered, any

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.compile.split_at_stateful import split_at_stateful
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts"))
    >>> plan = mark_regions(split_at_stateful(Plan(calls.filter(nw.col("k") > 1, name="f").node, "spark")))
    >>> region = plan.subqueries[0].region
    >>> region.state, region.ordered, region.selectivity, region.why
    ('stateless', False, 'at most one', "any instance may take any tuple; 'f' may drop it")
    """
    return replace(plan, subqueries=tuple(replace(sub, region=_region(sub, plan)) for sub in plan.subqueries))


def _region(subquery: Subquery, plan: Plan) -> Region:
    selectivity, loosest = _selectivity(subquery)
    ordered = _read_in_order(subquery, plan.query)
    dealt = "any instance may take any tuple"
    if isinstance(subquery.stateful, Join) and plan.runtime == "spark":
        dealt = dealt_to_cells(subquery.stateful)
    elif isinstance(subquery.stateful, Join):
        dealt = "every instance sees every tuple and tries its share of the pairs, whatever their keys"
    elif subquery.stateful is not None:
        dealt = f"tuples that share a key ({_keys(subquery.stateful)}) meet in one instance"
    why = "; ".join(filter(None, (dealt, loosest, "what reads it needs its results in order" if ordered else "")))
    return Region("stateless" if subquery.stateful is None else "partitioned", ordered, selectivity, why)


def _keys(node: WindowAggregate | KeyedApply) -> str:
    """The keys of each input, those that are alike once."""
    each = node.keys if isinstance(node, KeyedApply) else (node.keys,)
    return " and ".join(dict.fromkeys(map(str, each)))


def _read_in_order(subquery: Subquery, query: Node) -> bool:
    inside = {id(node) for node in subquery.nodes}
    return any(
        isinstance(reader, _ORDER_BOUND) and any(id(upstream) in inside for upstream in reader.inputs)
        for reader in walk(query)
        if id(reader) not in inside
    )


def _selectivity(subquery: Subquery) -> tuple[Selectivity, str]:
    """The loosest selectivity of a subquery's steps, and which step it comes from."""
    found: tuple[Selectivity, str] = ("exactly one", "")
    for node in subquery.nodes:
        selectivity, reason = _of_step(node)
        if _LOOSENESS[selectivity] > _LOOSENESS[found[0]]:
            found = (selectivity, f"'{node.name}' {reason}")
    return found


def _of_step(node: Node) -> tuple[Selectivity, str]:
    match node:
        case Source() | Union() | WithColumns() | Select():
            return "exactly one", ""
        case Filter():
            return "at most one", "may drop it"
        case MapBatches():
            return "any", "may make any number of rows of one"
        case WindowAggregate(keys=Columns(), window=window) if window.every == window.size:
            return "at most one", "turns all tuples of a key and window into one row"
        case WindowAggregate(keys=Columns()):
            return "any", "counts a tuple in several windows"
        case WindowAggregate():
            return "any", "counts a tuple for many keys, or for none"
        case KeyedApply():
            return "any", "hands out what the user's functions return"
        case Join():
            return "any", "pairs a tuple with any number of others"
        case _:
            raise InternalError(f"no selectivity is known for {type(node).__name__}")
