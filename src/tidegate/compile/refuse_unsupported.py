"""Pass: what the chosen runtime cannot do is refused, before anything is planned for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidegate.compile.plan import Plan
from tidegate.errors import UnsupportedError, choices
from tidegate.query.nodes import Node, is_stateful, sources, walk


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing a runtime cannot do: how to find the steps that ask for it, what is wrong, and what to do instead."""

    finds: Callable[[Node], tuple[Node, ...]]
    problem: str
    remedy: str


def _stateful_read_twice(query: Node) -> tuple[Node, ...]:
    """Stateful steps whose results more than one step reads, directly or through stateless ones."""
    readers: dict[int, int] = {}
    for node in walk(query):
        for upstream in node.inputs:
            readers[id(upstream)] = readers.get(id(upstream), 0) + 1
    shared = [node for node in walk(query) if readers.get(id(node), 0) > 1]
    above = {id(upstream) for node in shared for upstream in walk(node)}
    return tuple(node for node in walk(query) if is_stateful(node) and id(node) in above)


def _with_dead_letters(query: Node) -> tuple[Node, ...]:
    return tuple(source for source in sources(query) if source.dead_letters is not None)


def _ahead_of_itself(query: Node) -> tuple[Node, ...]:
    return tuple(source for source in sources(query) if source.ahead_of == "stream")


LIMITS: Mapping[str, tuple[Limit, ...]] = MappingProxyType(
    {
        "spark": (
            Limit(
                finds=_stateful_read_twice,
                problem="Spark would run a stateful step once for each step that reads it, with a state of its own",
                remedy='run it on="local", or write the results to a table and start a second query from it',
            ),
            Limit(
                finds=_with_dead_letters,
                problem="Spark stops at a malformed record and cannot set it aside, as dead_letters=... asks",
                remedy='run it on="local" or on="reference", or leave dead_letters out',
            ),
            Limit(
                finds=_ahead_of_itself,
                problem="Spark cannot compare a tuple with the newest one before it, as ahead_of='stream' asks",
                remedy="run it on=\"local\", or compare with the clock: ahead_of='clock'",
            ),
        ),
        "local": (),
        "reference": (),
    }
)


def refuse_unsupported(plan: Plan) -> Plan:
    """Raise `UnsupportedError` for a query, or a runtime, that `LIMITS` rules out; else change nothing.

    ::

        before   calls | aggregate 'hourly', read by 'daily' and by a union, on spark
        after    UnsupportedError: Spark would run a stateful step once for each step that reads it, …
    """
    if plan.runtime not in LIMITS:
        raise UnsupportedError(f"there is no runtime '{plan.runtime}'; choose one of {choices(LIMITS)}")
    for limit in LIMITS[plan.runtime]:
        steps = limit.finds(plan.query)
        if steps:
            raise UnsupportedError(f"{limit.problem}; it has {choices(step.name for step in steps)}; {limit.remedy}")
    return plan
