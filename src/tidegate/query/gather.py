"""Several streams of their own columns under common keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.errors import QueryError
from tidegate.query.advice import Advises, advised
from tidegate.query.apply import GatheredWindows, Unbounded
from tidegate.query.builder import Builder, Keyed, window_of
from tidegate.query.event_time import Duration
from tidegate.query.schema import show_columns

B = TypeVar("B", bound=Builder)


@dataclass(frozen=True, slots=True, eq=False)
class Gathered(Advises, Generic[B]):
    """Several streams, each with its own columns, that share keys; see `gather`."""

    parts: tuple[Keyed[B], ...]

    @advised(positional="how far a window advances is said with every=...")
    def window(self, size: Duration, *, every: Duration | None = None, name: str | None = None) -> GatheredWindows[B]:
        """Cut event time into windows, as `Keyed.window` does."""
        return GatheredWindows(self.parts, window_of(self.parts[0].stream._step("window", name), size, every, 0))

    def unbounded(self) -> Unbounded[B]:
        """Give each key one window that never ends."""
        return Unbounded(self.parts)


def gather(*keyed: Keyed[B]) -> Gathered[B]:
    """Bring streams of different columns together under common keys, for `apply` with one state per input.

    >>> import pyarrow as pa, tidegate as tg
    >>> asked = tg.stream({"ts": pa.timestamp("us"), "user": pa.string()}, time="ts", name="asked")
    >>> bought = tg.stream({"ts": pa.timestamp("us"), "by": pa.string(), "price": pa.int64()}, time="ts", name="bought")
    >>> both = tg.gather(asked.key_by("user"), bought.key_by("by")).window("1 hour")
    """
    if not keyed or not all(isinstance(part, Keyed) for part in keyed):
        raise QueryError(
            f"gather: takes streams with keys, as in tg.gather(a.key_by('x'), b.key_by('y')); got {keyed!r}"
        )
    first = keyed[0].key_schema
    for part in keyed[1:]:
        if part.key_schema.types != first.types:
            raise QueryError(
                f"gather: all streams need keys of the same types; ({show_columns(part.key_schema)}) is not "
                f"({show_columns(first)})"
            )
    return Gathered(keyed)
