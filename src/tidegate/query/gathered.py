"""Several streams, each with its own columns, under common keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from tidegate.errors import QueryError
from tidegate.query.advice import Advises, advised
from tidegate.query.apply import Declared, GatheredWindows, Unbounded
from tidegate.query.event_time import Duration
from tidegate.query.forms import Tuple
from tidegate.query.keyed import B, Keyed
from tidegate.query.running import running_node
from tidegate.query.schema import show_columns
from tidegate.query.windows import Window


@dataclass(frozen=True, slots=True, eq=False)
class Gathered(Advises, Generic[B]):
    """Several streams, each with its own columns, that share keys; see `gather`."""

    parts: tuple[Keyed[B], ...]

    @advised
    def window(self, size: Duration, *, every: Duration | None = None, name: str | None = None) -> GatheredWindows[B]:
        """Cut event time into windows, as `Keyed.window` does."""
        return GatheredWindows(self.parts, Window.parse(self.parts[0].stream._step("window", name), size, every))

    def unbounded(self) -> Unbounded[B]:
        """Give each key one window that never ends."""
        return Unbounded(self.parts)

    @advised
    def running(
        self,
        create: Callable[[Tuple], Any],
        add: Callable[[Any, Tuple], Any],
        merge: Callable[[Any, Any], Any],
        output: Callable[[Any], Any],
        *,
        every: Duration,
        state: Declared,
        returns: Declared,
        name: str | None = None,
    ) -> B:
        """Keep a running state per key, as `Keyed.running` does; ``tuple.input`` says which stream a tuple came by."""
        stream = self.parts[0].stream
        return stream._then(running_node(self.parts, create, add, merge, output, every, state, returns, name))


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
