"""Pass: where an exchange follows, tuples are combined before it."""

from __future__ import annotations

from dataclasses import replace

from tidegate.compile.plan import Plan, Subquery
from tidegate.compile.show_query import show_aggregate
from tidegate.errors import InternalError
from tidegate.query.aggregates import Aggregate, Count, Distinct, Extreme, Mean, Monoid, Ranked, Sum
from tidegate.query.nodes import WindowAggregate

# Runtimes that exchange tuples between instances before a stateful operator.
_EXCHANGING = frozenset({"spark"})


def choose_combine(plan: Plan) -> Plan:
    """Merge tuples of one key and slice before they are exchanged; every aggregate is a commutative monoid.

    ::

        before   a row per tuple and key crosses the exchange
        after    a state per key and slice crosses it, for each batch

    How much that saves depends on the aggregate: most states have a fixed size, ``distinct`` keeps the values it has
    seen, ``top_k`` at most k tuples, and ``collect`` keeps every tuple, so its rows only travel packed.
    """
    combine = plan.runtime in _EXCHANGING
    return replace(plan, subqueries=tuple(_choose(subquery, combine) for subquery in plan.subqueries))


def _choose(subquery: Subquery, combine: bool) -> Subquery:
    if not isinstance(subquery.stateful, WindowAggregate):
        return subquery
    why = _why(subquery.stateful) if combine else "one process: nothing is exchanged"
    return replace(subquery, combine=combine, combine_why=why)


def _why(node: WindowAggregate) -> str:
    """The aggregates grouped by what is left of them, in the order in which they are written."""
    groups: dict[str, list[str]] = {}
    for _, aggregate in node.aggregates:
        shown = groups.setdefault(_shrinks_to(aggregate), [])
        if show_aggregate(aggregate) not in shown:
            shown.append(show_aggregate(aggregate))
    return "; ".join(f"{', '.join(shown)}: {left}" for left, shown in groups.items())


def _shrinks_to(aggregate: Aggregate) -> str:
    match aggregate:
        case Count() | Sum() | Mean() | Extreme() | Monoid():
            return "shrinks to one state per key and slice"
        case Distinct():
            return "shrinks to the distinct values of a key and slice"
        case Ranked(limit=None):
            return "only packs, every tuple is shipped"
        case Ranked(limit=limit):
            return f"shrinks to {'1 tuple' if limit == 1 else f'at most {limit} tuples'} per key and slice"
        case _:
            raise InternalError(f"no combine is known for {type(aggregate).__name__}")
