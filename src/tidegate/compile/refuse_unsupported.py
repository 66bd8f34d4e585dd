"""Pass: what the chosen runtime cannot do is refused, before anything is planned for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tidegate.compile.plan import Plan
from tidegate.errors import UnsupportedError, choices
from tidegate.query.nodes import BagAggregate, Node, sources, walk


def _looping(query: Node) -> tuple[Node, ...]:
    """Aggregates that read their own rows; not loops of the user's, of which a batch runs all rounds."""
    return tuple(node for node in walk(query) if isinstance(node, BagAggregate) and node.loop_us is not None)


def _ahead_of_itself(query: Node) -> tuple[Node, ...]:
    return tuple(source for source in sources(query) if source.ahead_of == "stream")


LIMITS: Mapping[str, tuple[tuple[Callable[[Node], tuple[Node, ...]], str, str], ...]] = MappingProxyType(
    {
        "spark": (
            (
                _ahead_of_itself,
                "Spark cannot compare a tuple with the newest one before it, as ahead_of='stream' asks",
                "run it on=\"local\", or compare with the clock: ahead_of='clock'",
            ),
            (
                _looping,
                "a plan of Spark's has no edge back, over which a step made with operators='single' reads its own rows",
                "run it on=\"local\", or with operators='multi', which needs none",
            ),
        ),
        "local": (),
        "reference": (),
    }
)
"""What each runtime cannot do: how to find the steps that ask for it, what is wrong, and what to do instead."""


def refuse_unsupported(plan: Plan) -> Plan:
    """Raise `UnsupportedError` for a query, or a runtime, that `LIMITS` rules out; else change nothing.

    ::

        before   calls, whose tuples are compared with the newest one before them, on spark
        after    UnsupportedError: Spark cannot compare a tuple with the newest one before it, …
    """
    if plan.runtime not in LIMITS:
        raise UnsupportedError(f"there is no runtime '{plan.runtime}'; choose one of {choices(LIMITS)}")
    for finds, problem, remedy in LIMITS[plan.runtime]:
        if steps := finds(plan.query):
            raise UnsupportedError(f"{problem}; it has {choices(step.name for step in steps)}; {remedy}")
    return plan
