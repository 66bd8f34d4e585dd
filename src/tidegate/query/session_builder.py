"""The fluent face of session windows: checks the aggregates and builds the node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tidegate.query.advice import Advises, advised
from tidegate.query.aggregates import Aggregate
from tidegate.query.nodes import SessionAggregate
from tidegate.query.sessions import SessionWindow
from tidegate.query.windowed_columns import windowed_columns

if TYPE_CHECKING:
    from tidegate.query.builder import Builder, Keyed

B = TypeVar("B", bound="Builder")


@dataclass(frozen=True, slots=True, eq=False)
class Sessions(Advises, Generic[B]):
    """A stream with keys and session windows: what is left to choose is what to compute."""

    keyed: Keyed[B]
    session: SessionWindow

    @advised
    def aggregate(self, *, name: str | None = None, **aggregates: Aggregate) -> B:
        """Compute aggregates per key and session.

        The result has the event time (the session's end − 1 µs), the keys, ``window_start``, which is the time of the
        session's first tuple, ``window_end``, and one column per aggregate.
        """
        keyed, stream = self.keyed, self.keyed.stream
        step = stream._step("aggregate", name)
        schema = windowed_columns(step, keyed, aggregates)
        named = tuple(aggregates.items())
        return stream._then(
            SessionAggregate(
                step, (stream.node,), schema, stream.time, keyed.keys, keyed.key_schema, self.session, named
            )
        )
