"""The fluent face behind `key_by`: a window is chosen, then what to compute in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from tidegate.query.advice import Advises, advised
from tidegate.query.aggregates import Aggregate
from tidegate.query.apply import Applies, Declared, Unbounded
from tidegate.query.count_windows import CountWindow
from tidegate.query.event_time import Duration
from tidegate.query.forms import Tuple
from tidegate.query.keys import Keys
from tidegate.query.nodes import CountAggregate, SessionAggregate, WindowAggregate
from tidegate.query.running import running_node
from tidegate.query.sessions import SessionWindow
from tidegate.query.top_n import top_rows
from tidegate.query.windowed_columns import windowed_columns
from tidegate.query.windows import Window

if TYPE_CHECKING:
    from tidegate.query.builder import Builder

B = TypeVar("B", bound="Builder")


@dataclass(frozen=True, slots=True, eq=False)
class Keyed(Advises, Generic[B]):
    """A stream whose tuples have keys: what is left to choose is the window."""

    stream: B
    keys: Keys
    key_schema: pa.Schema = field(repr=False)

    @advised
    def window(
        self, size: Duration, *, every: Duration | None = None, lateness: Duration = 0, name: str | None = None
    ) -> Windowed[B]:
        """Cut event time into windows of ``size``, one beginning ``every`` so often (default: back to back).

        With ``lateness``, a window stays open to late tuples that long after the watermark passed its end, and each
        refinement is emitted with a higher ``revision``.
        """
        return Windowed((self,), Window.parse(self.stream._step("window", name), size, every, lateness))

    @advised
    def session(self, gap: Duration, *, most: Duration | None = None, name: str | None = None) -> Sessions[B]:
        """Put tuples of a key that follow one another by less than ``gap`` into one window, a session.

        A tuple opens a session that lasts for ``gap``; those that overlap are one. With ``most`` a session ends so long
        after its first tuple, whatever comes, and tuples are taken in the order of their time, once they are settled.
        """
        return Sessions(self, SessionWindow.parse(self.stream._step("session", name), gap, most))

    @advised
    def count_window(self, size: int, *, every: int | None = None, name: str | None = None) -> CountWindows[B]:
        """Put each ``size`` tuples of a key into one window, and begin one ``every`` so many (default: back to back).

        Tuples count in the order of event time, and among those of one time of all columns from left to right, once they
        are settled. A window that never fills gives nothing.
        """
        return CountWindows(self, CountWindow.parse(self.stream._step("count_window", name), size, every))

    def unbounded(self) -> Unbounded[B]:
        """Give each key one window that never ends; its state stays until `apply`'s ``update`` retires the key."""
        return Unbounded((self,))

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
        """Keep a running state per key and emit it at the end of every period, whether or not the period had tuples.

        In a period ``create(tuple)`` makes a state of a key's first tuple and ``add(state, tuple)`` adds the others, in
        canonical order. At its end ``merge(carried, period)`` puts it onto the state carried over from earlier periods,
        once, and ``output(state)`` gives the rows of the key: one, a list, or None. They are emitted at the end of this
        period, and of every one that follows, until the state changes; ``tg.updated(rows=..., retire=True)`` emits them
        once and forgets the key. ``state`` declares the state, ``returns`` the columns of rows, to which the event time
        (the period's end − 1 µs) and the key are added.

        >>> import pyarrow as pa, tidegate as tg
        >>> trades = tg.stream({"ts": pa.timestamp("us"), "share": pa.string(), "n": pa.int64()}, time="ts")
        >>> held = trades.key_by("share").running(
        ...     create=lambda trade: {"n": trade["n"]},
        ...     add=lambda state, trade: {"n": state["n"] + trade["n"]},
        ...     merge=lambda carried, period: {"n": carried["n"] + period["n"]},
        ...     output=lambda state: tg.updated(rows={"held": state["n"]}, retire=state["n"] == 0),
        ...     every="1 minute", state={"n": pa.int64()}, returns={"held": pa.int64()})
        >>> held.schema.names
        ['ts', 'share', 'held']
        """
        return self.stream._then(running_node((self,), create, add, merge, output, every, state, returns, name))


class Windowed(Applies[B]):
    """A stream with keys and windows: what is left to choose is what to compute."""

    __slots__ = ()

    @advised
    def aggregate(self, *, name: str | None = None, **aggregates: Aggregate) -> B:
        """Compute aggregates per key and window.

        The result has the event time (the window's end − 1 µs), the keys, ``window_start``, ``window_end``, one column
        per aggregate and, with lateness, ``revision``.
        """
        (keyed,), window = self.parts, self.window
        assert window is not None
        stream = keyed.stream
        step = stream._step("aggregate", name)
        schema = windowed_columns(step, keyed, aggregates, refined=window.lateness > 0)
        named = tuple(aggregates.items())
        return stream._then(
            WindowAggregate(step, (stream.node,), schema, stream.time, keyed.keys, keyed.key_schema, window, named)
        )

    @advised
    def top_n(self, n: int, *, by: str, name: str | None = None) -> B:
        """The ``n`` tuples of each key and window with the greatest values of a column, as rows with a ``rank`` from 1 on.

        Ties are broken by event time, then all columns from left to right; tuples without a value are left out. A row has
        the event time of its window (end − 1 µs), the keys, ``window_start``, ``window_end``, ``rank``, and the other
        columns of the tuple; its own time is there if a column says it: ``with_columns(at=nw.col("ts"))``.
        """
        (keyed,), window = self.parts, self.window
        return top_rows(keyed.stream, self.aggregate, n, by, name, refined=window is not None and window.lateness > 0)


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

    @advised
    def top_n(self, n: int, *, by: str, name: str | None = None) -> B:
        """The ``n`` tuples of each key and session with the greatest values of a column, as `Windowed.top_n` has them."""
        return top_rows(self.keyed.stream, self.aggregate, n, by, name)


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

    @advised
    def top_n(self, n: int, *, by: str, name: str | None = None) -> B:
        """The ``n`` tuples of each key and window with the greatest values of a column, as `Windowed.top_n` has them."""
        return top_rows(self.keyed.stream, self.aggregate, n, by, name)
