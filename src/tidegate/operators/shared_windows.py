"""The windows of an aggregate whose instances share memory: immutable runs of panes, found by slice.

All instances read one log of segments. Whoever lifts a segment inserts its panes, and from then on nobody changes them.
When a window expires, each instance hands out the keys of the shards it owns at that place of the log. Ownership only
says who computes what, so no state moves when it changes, and no instance waits for another to change it.

Nothing here reads the log itself: callers number the segments and give the watermark before and after each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import numbers, whole
from tidegate.operators.windowed_aggregate import LEAST_RUN, SHARDS, SLICE, Panes

Array = np.ndarray[Any, Any]

FAN_IN = 8


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Panes in the order of their slices, with the shard of each; `number` is the latest segment they come from."""

    number: int
    panes: pa.Table
    slices: Array
    shards: Array
    low: int = field(init=False)
    high: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", int(self.slices[0]))
        object.__setattr__(self, "high", int(self.slices[-1]))

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
class SharedWindows:
    """The shared state of one windowed aggregate. Methods may be called from any thread.

    A segment is `lift`ed and `insert`ed once, by anybody. Then every instance, at its own pace, asks for its
    `revisions`, for the windows that have `expired`, and says that it `passed` the segment; slices are forgotten when
    all instances have passed their last use.
    """

    panes: Panes
    shards: int = SHARDS
    late: int = 0
    _runs: list[Run] = field(default_factory=list)
    _rounds: dict[int, list[int]] = field(default_factory=dict)
    _reached: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    _merging: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        """How many panes are held."""
        return sum(len(run.slices) for run in tuple(self._runs))

    @property
    def bytes(self) -> int:
        """How much memory the panes take."""
        return sum(run.panes.nbytes + run.slices.nbytes + run.shards.nbytes for run in tuple(self._runs))

    def lift(self, number: int, tuples: pa.Table, before: int | None) -> Lifted:
        """The panes of a segment's tuples that are not late at the watermark before it. Touches no shared state."""
        window = self.panes.node.window
        panes, counts = self.panes.lift(tuples)
        least = window.least_open_slice(before)
        late = 0
        if least is not None and any(slice_id < least for slice_id in counts):
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

    def expired(self, number: int, before: int | None, after: int | None, owned: Array | None) -> Iterator[pa.Table]:
        """Results of the owned keys in the windows that expire as the watermark moves, earliest first."""
        window = self.panes.node.window
        if after is None or (before is not None and window.first_open(before) == window.first_open(after)):
            return
        held = self._seen_at(number)
        if not held:
            return
        first = min(window.first_window(run.low) for run in held)
        if before is not None:
            first = max(first, window.first_open(before))
        last = min(max(window.last_window(run.high) for run in held), window.first_open(after) - 1)
        if first > last:
            return
        low, high = 2 * first, window.slice_of(window.end(last) - 1)
        parts = [run.between(low, high, owned) for run in held if run.low <= high and run.high >= low]
        if parts:
            for table in self.panes.results(pa.concat_tables(parts), first, last):
                yield self._numbered(table, number)

    def join(self, instance: int, number: int, watermark: int | None) -> None:
        """An instance begins after a segment at whose end the watermark stood there."""
        with self._lock:
            self._reached[instance] = (number, watermark)

    def leave(self, instance: int) -> None:
        """An instance ends."""
        with self._lock:
            del self._reached[instance]
            self._forget()

    def passed(self, instance: int, number: int, watermark: int | None) -> None:
        """An instance has done all of its work on a segment."""
        with self._lock:
            moved = self._reached[instance][1] != watermark
            self._reached[instance] = (number, watermark)
            if moved:
                self._forget()

    def compact(self) -> bool:
        """Merge a few runs into one if there are many, unless somebody is at it; says whether it did."""
        with self._lock:
            chosen = () if self._merging else self._mergeable()
            self._merging = self._merging or bool(chosen)
        if not chosen:
            return False
        try:
            merged = tuple(self._cut(max(run.number for run in chosen), self.panes.merge([r.panes for r in chosen])))
        finally:
            self._merging = False
        gone = set(map(id, chosen))
        with self._lock:
            # What was forgotten meanwhile stays forgotten: a run is replaced only if all of its parts are still held.
            if gone <= set(map(id, self._runs)):
                self._runs = [run for run in self._runs if id(run) not in gone] + list(merged)
        return True

    def _cut(self, number: int, panes: pa.Table) -> Iterator[Run]:
        """Runs of whole slices, each of at least `LEAST_RUN` panes but for the last."""
        if panes.num_rows == 0:
            return
        slices = numbers(whole(panes.column(SLICE)), pa.int64())
        shards = self.panes.shards(panes, self.shards).astype(np.uint16)
        edges = [*(np.flatnonzero(np.diff(slices)) + 1).tolist(), len(slices)]
        start = 0
        for stop in edges:
            if stop - start >= LEAST_RUN or stop == len(slices):
                yield Run(number, panes.slice(start, stop - start), slices[start:stop], shards[start:stop])
                start = stop

    def _seen_at(self, number: int, low: int | None = None, high: int | None = None) -> list[Run]:
        """The runs that were there after a segment, all or those that overlap some slices."""
        with self._lock:
            held = [run for run in self._runs if run.number <= number]
        if low is None or high is None:
            return held
        return [run for run in held if run.low <= high and run.high >= low]

    def _forget(self) -> None:
        """Drop what no window that is open for some instance needs."""
        reached = [watermark for _, watermark in self._reached.values()]
        if not reached or any(watermark is None for watermark in reached):
            return
        watermark = min(reached)  # type: ignore[type-var]  # no None is left
        least = self.panes.node.window.least_open_slice(watermark)
        assert least is not None
        if any(run.high < least for run in self._runs):
            self._runs = [run for run in self._runs if run.high >= least]
        if self._rounds:
            self._rounds = {window_id: rounds for window_id, rounds in self._rounds.items() if 2 * window_id >= least}

    def _mergeable(self) -> Sequence[Run]:
        """`FAN_IN` runs of the same slices and about the same size that every instance has passed."""
        if len(self._runs) < FAN_IN or not self._reached:
            return ()
        settled = min(number for number, _ in self._reached.values())
        alike: dict[tuple[int, int, int], list[Run]] = {}
        for run in self._runs:
            if run.number <= settled:
                tier = len(run.slices).bit_length() // 3
                group = alike.setdefault((run.low, run.high, tier), [])
                group.append(run)
                if len(group) == FAN_IN:
                    return group
        return ()

    def _numbered(self, table: pa.Table, number: int) -> pa.Table:
        """Results with the revision that their window had reached after a segment."""
        if not self.panes.node.window.lateness:
            return table
        every = self.panes.node.window.every
        with self._lock:
            rounds = {window_id: sum(at <= number for at in when) for window_id, when in self._rounds.items()}
        starts = numbers(whole(table.column("window_start").cast(pa.int64())), pa.int64()) // every
        revision = pa.array([rounds.get(window_id, 0) for window_id in starts.tolist()], pa.int64())
        return table.set_column(table.schema.get_field_index("revision"), "revision", revision)
