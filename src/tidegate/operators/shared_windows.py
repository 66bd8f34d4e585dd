"""The windows of an aggregate whose instances share memory: immutable runs of panes, found by slice.

All instances read one log of segments. Whoever lifts a segment inserts its panes, and from then on nobody changes them.
When a window expires, each instance hands out the keys of the shards it owns at that place of the log. Ownership only
says who computes what, so no state moves when it changes, and no instance waits for another to change it.

Nothing here reads the log itself: callers number the segments and give the watermark before and after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import as_numpy
from tidegate.operators.readers import SharedState
from tidegate.operators.windowed_aggregate import LEAST_RUN, SHARDS, SLICE, Panes
from tidegate.query.schema import contiguous
from tidegate.watermark import Watermark

Array = np.ndarray[Any, Any]

FAN_IN = 8
LOOK_EVERY = 4
"""Whether there is something to merge is looked at after so many segments."""
WORTH_MERGING = 3
"""Slices that are part of so many windows are merged as soon as no more tuples are due for them."""
SPLIT_PANES = 65_536
"""Windows over fewer panes are made by one instance: the others would spend more on finding their share than on it."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Panes in the order of their slices; `number` is the latest segment they come from.

    `settled` says that they were merged when no more panes of their slices were due.
    """

    number: int
    panes: pa.Table
    slices: Array
    shard_of: Callable[[pa.Table], Array]
    settled: bool = False
    low: int = field(init=False)
    high: int = field(init=False)
    _shards: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", int(self.slices[0]))
        object.__setattr__(self, "high", int(self.slices[-1]))

    @property
    def shards(self) -> Array:
        """The shard of each pane; made when it is first asked for, as small windows never ask."""
        if not self._shards:
            self._shards.append(self.shard_of(self.panes))
        return self._shards[0]

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return int(self.panes.nbytes) + self.slices.nbytes + sum(shards.nbytes for shards in self._shards)

    def between(self, low: int, high: int, owned: Array | None) -> pa.Table:
        """The panes of slices `low` to `high` that lie in owned shards; None owns all."""
        start, stop = np.searchsorted(self.slices, (low, high + 1)).tolist()
        part = self.panes.slice(start, stop - start)
        if owned is None or start == stop:
            return part
        kept = owned[self.shards[start:stop]]
        return part if kept.all() else part.take(pa.array(np.flatnonzero(kept)))


@dataclass(frozen=True, slots=True)
class Lifted:
    """What a segment adds: its runs, the tuples too late for all of their windows, the expired windows it touches."""

    runs: tuple[Run, ...]
    late: int
    reopened: tuple[int, ...]


@dataclass(slots=True)
class SharedWindows(SharedState):
    """The shared state of one windowed aggregate. Methods may be called from any thread.

    A segment is `lift`ed and `insert`ed once, by anybody. Then every instance, at its own pace, asks for its
    `revisions`, for the windows that have `expired`, and acknowledges the segment; slices are forgotten when
    all instances have passed their last use.
    """

    panes: Panes
    shards: int = SHARDS
    split_panes: int = SPLIT_PANES
    late: int = 0
    _runs: list[Run] = field(default_factory=list)
    _rounds: dict[int, list[int]] = field(default_factory=dict)
    _merging: bool = False
    _unseen: int = 0
    _least: int | None = None

    @property
    def rows(self) -> int:
        """How many panes are held."""
        return sum(len(run.slices) for run in tuple(self._runs))

    @property
    def bytes(self) -> int:
        """How much memory the panes take."""
        return sum(run.nbytes for run in tuple(self._runs))

    def lift(self, number: int, tuples: pa.Table, before: Watermark) -> Lifted:
        """The panes of a segment's tuples that are not late at the watermark before it. Touches no shared state."""
        window = self.panes.node.window
        panes, counts = self.panes.lift(tuples)
        least = window.least_open_slice(before)
        late = 0
        if any(slice_id < least for slice_id in counts):
            late = sum(count for slice_id, count in counts.items() if slice_id < least)
            panes = self.panes.from_slice(panes, least)
        runs = tuple(self._cut(number, panes))
        touched = {int(slice_id) for run in runs for slice_id in np.unique(run.slices)} if window.lateness else ()
        reopened = sorted({window_id for slice_id in touched for window_id in window.reopened(slice_id, before)})
        return Lifted(runs, late, tuple(reopened))

    def insert(self, number: int, lifted: Lifted) -> None:
        """Make a segment's panes visible; before any instance passes the segment."""
        with self._lock:
            self._runs.extend(lifted.runs)
            self._unseen += 1
            self.late += lifted.late
            for window_id in lifted.reopened:
                self._rounds.setdefault(window_id, []).append(number)

    def revisions(self, number: int, lifted: Lifted, owned: Array | None) -> Iterator[pa.Table]:
        """Results, anew, of the owned keys that a segment's late tuples touch in windows that had expired."""
        window = self.panes.node.window
        for window_id in lifted.reopened:
            low, high = 2 * window_id, window.slice_of(window.end(window_id) - 1)
            fresh = [run.between(low, high, owned) for run in lifted.runs]
            if not any(part.num_rows for part in fresh):
                continue
            held = pa.concat_tables([run.between(low, high, owned) for run in self._seen_at(number, low, high)])
            touched = self.panes.with_keys_of(held, pa.concat_tables(fresh))
            for table in self.panes.results(touched, window_id, window_id):
                yield self._numbered(table, number)

    def expired(self, number: int, before: Watermark, after: Watermark, owned: Array | None) -> Iterator[pa.Table]:
        """Results of the owned keys in the windows that expire as the watermark moves, earliest first."""
        if not self.may_expire(before, after):
            return
        held = self._seen_at(number)
        windows = self._expiring(held, before, after)
        if windows is None:
            return
        first, last = windows
        low, high = self._slices_of(first, last)
        parts = [run.between(low, high, owned) for run in held if run.low <= high and run.high >= low]
        if parts:
            for table in self.panes.results(pa.concat_tables(parts), first, last):
                yield self._numbered(table, number)

    def may_expire(self, before: Watermark, after: Watermark) -> bool:
        """Whether windows may expire as the watermark moves."""
        window = self.panes.node.window
        return window.first_open(before) != window.first_open(after)

    def worth_splitting(self, number: int, before: Watermark, after: Watermark) -> bool:
        """Whether the windows that expire hold enough for several instances to share the work; an estimate."""
        held = self._seen_at(number)
        windows = self._expiring(held, before, after)
        if windows is None:
            return False
        low, high = self._slices_of(*windows)
        return sum(len(run.slices) for run in held if run.low <= high and run.high >= low) >= self.split_panes

    def compact(self) -> bool:
        """Merge a few runs into one if there are many, unless somebody is at it; says whether it did."""
        with self._lock:
            if self._merging or self._unseen < LOOK_EVERY:
                return False
            self._unseen = 0
            chosen, settled = self._mergeable()
            self._merging = bool(chosen)
        if not chosen:
            return False
        try:
            panes = self.panes.merge([run.panes for run in chosen])
            merged = tuple(self._cut(max(run.number for run in chosen), panes, settled))
        finally:
            self._merging = False
        gone = set(map(id, chosen))
        with self._lock:
            # What was forgotten meanwhile stays forgotten: a run is replaced only if all of its parts are still held.
            if gone <= set(map(id, self._runs)):
                self._runs = [run for run in self._runs if id(run) not in gone] + list(merged)
        return True

    def _cut(self, number: int, panes: pa.Table, settled: bool = False) -> Iterator[Run]:
        """Runs of whole slices, each of at least `LEAST_RUN` panes but for the last."""
        if panes.num_rows == 0:
            return
        slices = as_numpy(contiguous(panes.column(SLICE)), pa.int64())
        edges = [len(slices)]
        if len(slices) >= LEAST_RUN and slices[0] != slices[-1]:
            edges = [*(np.flatnonzero(np.diff(slices)) + 1).tolist(), len(slices)]
        start = 0
        for stop in edges:
            if stop - start >= LEAST_RUN or stop == len(slices):
                run = Run(number, panes.slice(start, stop - start), slices[start:stop], self._shard_of, settled)
                if stop - start >= LEAST_RUN:
                    # Large runs are shared out in the end: whoever makes one also finds its shards, once for all.
                    _ = run.shards
                yield run
                start = stop

    def _shard_of(self, panes: pa.Table) -> Array:
        made: Array = self.panes.shards(panes, self.shards).astype(np.uint16)
        return made

    def _expiring(self, held: Sequence[Run], before: Watermark, after: Watermark) -> tuple[int, int] | None:
        """The first and the last window over some runs that expires as the watermark moves."""
        window = self.panes.node.window
        if not held:
            return None
        first = max(min(window.first_window(run.low) for run in held), window.first_open(before))
        last = min(max(window.last_window(run.high) for run in held), window.first_open(after) - 1)
        return (first, last) if first <= last else None

    def _slices_of(self, first: int, last: int) -> tuple[int, int]:
        """The first and the last slice of a run of windows."""
        window = self.panes.node.window
        return 2 * first, window.slice_of(window.end(last) - 1)

    def _seen_at(self, number: int, low: int | None = None, high: int | None = None) -> list[Run]:
        """The runs that were there after a segment, all or those that overlap some slices."""
        with self._lock:
            held = [run for run in self._runs if run.number <= number]
        if low is None or high is None:
            return held
        return [run for run in held if run.low <= high and run.high >= low]

    def _forget(self) -> None:
        """Drop what no window that is open for some instance needs."""
        least = self.panes.node.window.least_open_slice(self._watermark)
        if least == self._least:
            return
        self._least = least
        if any(run.high < least for run in self._runs):
            self._runs = [run for run in self._runs if run.high >= least]
        if self._rounds:
            self._rounds = {window_id: rounds for window_id, rounds in self._rounds.items() if 2 * window_id >= least}

    def _mergeable(self) -> tuple[Sequence[Run], bool]:
        """Runs that every instance has passed and that are better merged, and whether no more is due for their slices.

        Those are all runs of slices for which no more is due, where a slice takes part in several windows; else
        `FAN_IN` runs of the same slices and about the same size.
        """
        passed = self._acknowledged
        window = self.panes.node.window
        if window.slices_per_window >= WORTH_MERGING and not window.lateness:
            due = window.slice_of(self._watermark)
            ready = [run for run in self._runs if run.high < due and run.number <= passed and not run.settled]
            if len(ready) > 1:
                return ready, True
        alike: dict[tuple[int, int, int], list[Run]] = {}
        for run in self._runs:
            if run.number <= passed:
                tier = len(run.slices).bit_length() // 3
                group = alike.setdefault((run.low, run.high, tier), [])
                group.append(run)
                if len(group) == FAN_IN:
                    return group, False
        return (), False

    def _numbered(self, table: pa.Table, number: int) -> pa.Table:
        """Results with the revision that their window had reached after a segment."""
        if not self.panes.node.window.lateness:
            return table
        every = self.panes.node.window.every
        with self._lock:
            rounds = {window_id: sum(at <= number for at in when) for window_id, when in self._rounds.items()}
        starts = as_numpy(contiguous(table.column("window_start").cast(pa.int64())), pa.int64()) // every
        revision = pa.array([rounds.get(window_id, 0) for window_id in starts.tolist()], pa.int64())
        return table.set_column(table.schema.get_field_index("revision"), "revision", revision)
