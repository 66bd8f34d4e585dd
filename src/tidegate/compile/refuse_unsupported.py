"""Pass: what the chosen runtime cannot do is refused, before anything is planned for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidegate.compile.plan import Plan
from tidegate.errors import UnsupportedError, choices
from tidegate.query.nodes import Join, Node, is_stateful, walk


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing a runtime cannot do: how to find the steps that ask for it, what is wrong, and what to do instead."""

    finds: Callable[[Node], tuple[Node, ...]]
    problem: str
    remedy: str


def _several_stateful(query: Node) -> tuple[Node, ...]:
    stateful = tuple(node for node in walk(query) if is_stateful(node))
    return stateful if len(stateful) > 1 else ()


def _joins(query: Node) -> tuple[Node, ...]:
    return tuple(node for node in walk(query) if isinstance(node, Join))


LIMITS: Mapping[str, tuple[Limit, ...]] = MappingProxyType(
    {
        "spark": (
            Limit(
                finds=_joins,
                problem="joins on Spark are not supported yet",
                remedy='run it on="local"',
            ),
            Limit(
                finds=_several_stateful,
                problem="a second stateful step on Spark is not supported yet",
                remedy='run it on="reference" or write the first\'s result to a table and start a second query from it',
            ),
        ),
        "local": (),
        "reference": (),
    }
)


def refuse_unsupported(plan: Plan) -> Plan:
    """Raise `UnsupportedError` for a query, or a runtime, that `LIMITS` rules out; else change nothing.

    ::

        before   calls | aggregate 'hourly' | aggregate 'daily', on spark
        after    UnsupportedError: a second stateful step on Spark is not supported yet; it has 'hourly', 'daily'; …
    """
    if plan.runtime not in LIMITS:
        raise UnsupportedError(f"there is no runtime '{plan.runtime}'; choose one of {choices(LIMITS)}")
    for limit in LIMITS[plan.runtime]:
        steps = limit.finds(plan.query)
        if steps:
            raise UnsupportedError(f"{limit.problem}; it has {choices(step.name for step in steps)}; {limit.remedy}")
    return plan
