"""Pass: where an exchange follows, tuples are combined before it."""

from __future__ import annotations

from dataclasses import replace

from tidegate.compile.plan import Combine, Plan, Subquery
from tidegate.query.nodes import SessionAggregate, WindowAggregate

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
    if not isinstance(subquery.operator, WindowAggregate | SessionAggregate):
        return subquery
    why = _why(subquery.operator) if combine else "one process: nothing is exchanged"
    return replace(subquery, combine=Combine(combine, why))


def _why(node: WindowAggregate | SessionAggregate) -> str:
    """The aggregates grouped by what is left of them, in the order in which they are written."""
    groups: dict[str, list[str]] = {}
    for _, aggregate in node.aggregates:
        left = aggregate.combined
        if isinstance(node, SessionAggregate):
            left = left.replace("slice", "part of a session" if node.session.most_us is None else "time")
        shown = groups.setdefault(left, [])
        if str(aggregate) not in shown:
            shown.append(str(aggregate))
    return "; ".join(f"{', '.join(shown)}: {left}" for left, shown in groups.items())
