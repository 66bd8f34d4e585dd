"""The fluent face of windows in number of tuples: checks the aggregates and builds the node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tidegate.query.advice import Advises, advised
from tidegate.query.aggregates import Aggregate
from tidegate.query.count_windows import CountWindow
from tidegate.query.nodes import CountAggregate
from tidegate.query.windowed_columns import windowed_columns

if TYPE_CHECKING:
    from tidegate.query.builder import Builder, Keyed

B = TypeVar("B", bound="Builder")


@dataclass(frozen=True, slots=True, eq=False)
class CountWindows(Advises, Generic[B]):
    """A stream with keys and windows in number of tuples: what is left to choose is what to compute."""

    keyed: Keyed[B]
    counted: CountWindow

    @advised
    def aggregate(self, *, name: str | None = None, **aggregates: Aggregate) -> B:
        """Compute aggregates per key and window.

        The result has the event time of the tuple that fills the window, the keys, ``window_start`` and ``window_end``,
        which are the times of the window's first and last tuple, and one column per aggregate.
        """
        keyed, stream = self.keyed, self.keyed.stream
        step = stream._step("aggregate", name)
        schema = windowed_columns(step, keyed, aggregates)
        named = tuple(aggregates.items())
        return stream._then(
            CountAggregate(
                step, (stream.node,), schema, stream.time, (keyed.keys,), keyed.key_schema, self.counted, named
            )
        )
