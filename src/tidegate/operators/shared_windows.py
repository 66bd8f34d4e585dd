"""The windows of an aggregate whose instances share memory.

All instances read one log of segments. The instance that lifts a segment inserts its panes, which never change after that.
When a window expires, each instance emits the keys of the shards it owns at that place of the log. Ownership only decides
which instance computes what, so no state moves when it changes, and no instance waits for another to change it.

Nothing here reads the log itself: callers number the segments and give the watermark before and after each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array
from tidegate.operators.readers import BEFORE, SharedState
from tidegate.operators.window_state import PaneRun, WindowState
from tidegate.state.chunks import Chunk, Data
from tidegate.state.snapshot import SnapshotStore
from tidegate.watermark import Watermark

FAN_IN = 8
MERGE_EVERY = 4
"""Runs that could be merged are searched for after so many segments."""
SAMPLED_PANES = 4_096
"""So many panes tell how memory is spread over shards."""
SPLIT_PANES = 65_536
"""Windows over fewer panes are computed by one instance: the others would spend more on finding their share than on it."""


@dataclass(frozen=True, slots=True)
class LiftedPanes:
    """What a segment adds: its runs, and the expired windows it changes."""

    runs: Sequence[PaneRun]
    reopened: Sequence[int]


@dataclass(frozen=True, slots=True)
class WindowsCut:
    """The panes of open windows at a marker, and how often windows had been revised."""

    windows: WindowState
    runs: Sequence[PaneRun]
    rounds: Mapping[int, int]

    def write(self, store: SnapshotStore) -> None:
        """Put all runs into a snapshot; see `StateCut`."""
        for run in self.runs:
            store.put(run, partial(self.windows.panes.piece, run.panes, run.low, run.high))
        store.chunks.directory.rounds = dict(self.rounds)


@dataclass(slots=True, eq=False)
class SharedWindows(SharedState):
    """The shared state of one windowed aggregate. Methods may be called from any thread.

    A segment is `lift`ed once, by any instance. Then every instance, at its own pace, asks for its
    `revisions` and for the windows that have `expired`, and acknowledges the segment; slices are forgotten when all
    instances are past their last use.
    """

    windows: WindowState
    split_panes: int = SPLIT_PANES
    merge_settled: bool = False
    _runs: list[PaneRun] = field(default_factory=list)
    _rounds: dict[int, list[int]] = field(default_factory=dict)
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

    def shard_bytes(self) -> Array:
        """About how much memory the panes of each shard take, by the shards of `SAMPLED_PANES` of them."""
        runs = tuple(self._runs)
        every = max(1, sum(len(run.slices) for run in runs) // SAMPLED_PANES)
        found = np.zeros(SHARDS)
        for run in runs:
            places = np.arange(0, len(run.slices), every)
            found += np.bincount(run.shards_at(places), minlength=SHARDS) * (run.nbytes / len(places))
        return found

    def lift(self, segment: int, tuples: pa.Table, before: Watermark) -> LiftedPanes:
        """Add the panes of a segment's tuples, none of them late at the watermark before it.

        To be done before any instance acknowledges the segment.
        """
        runs = self.windows.runs(self.windows.panes.lift(tuples), segment)
        reopened = self.windows.reopened(runs, before)
        with self._lock:
            self._runs.extend(runs)
            self._unseen += 1
            for number in reopened:
                self._rounds.setdefault(number, []).append(segment)
        return LiftedPanes(runs, reopened)

    def revisions(self, segment: int, lifted: LiftedPanes, owned: Array | None) -> Iterator[pa.Table]:
        """Results, anew, of the owned keys that a segment's late tuples change in windows that had expired."""
        runs, rounds = self._seen_at(segment)
        for number in lifted.reopened:
            yield from self.windows.results(runs, range(number, number + 1), rounds, owned, lifted.runs)

    def expired(self, segment: int, before: Watermark, after: Watermark, owned: Array | None) -> Iterator[pa.Table]:
        """Results of the owned keys in the windows that expire as the watermark moves, earliest first."""
        runs, rounds = self._seen_at(segment)
        if windows := self._expiring(runs, before, after):
            yield from self.windows.results(runs, windows, rounds, owned)

    def may_expire(self, before: Watermark, after: Watermark) -> bool:
        """Whether windows may expire as the watermark moves."""
        window = self.windows.panes.node.window
        return window.first_open(before) != window.first_open(after)

    def worth_splitting(self, segment: int, before: Watermark, after: Watermark) -> bool:
        """Whether the windows that expire hold enough for several instances to share the work; an estimate."""
        runs, _ = self._seen_at(segment)
        windows = self._expiring(runs, before, after)
        if not windows:
            return False
        low, high = self.windows.slices(windows)
        return sum(len(run.slices) for run in runs if run.low <= high and run.high >= low) >= self.split_panes

    def cut(self, segment: int, watermark: Watermark) -> WindowsCut:
        """What windows that are open after a segment need; the panes of all segments before are lifted."""
        runs, rounds = self._seen_at(segment)
        least = self.windows.panes.node.window.least_open_slice(watermark)
        return WindowsCut(self.windows, [run for run in runs if run.high >= least], rounds)

    def restore(self, store: SnapshotStore) -> None:
        """Begin with what a snapshot holds."""

        def run_of(data: Data, chunk: Chunk) -> PaneRun:
            return self.windows.run(self.windows.panes.decode(data, chunk.low), BEFORE)

        self._runs = store.parts(run_of)
        self._rounds = {number: [BEFORE] * count for number, count in store.chunks.directory.rounds.items()}

    def _compact(self) -> None:
        """Merge a few runs into one if there are many."""
        with self._lock:
            if self._unseen < MERGE_EVERY:
                return
            self._unseen = 0
            chosen, settled = self._mergeable()
        if not chosen:
            return
        panes = self.windows.panes.merge([run.panes for run in chosen])
        merged = self.windows.runs(panes, max(run.segment for run in chosen), settled)
        gone = set(map(id, chosen))
        with self._lock:
            # What was forgotten meanwhile stays forgotten: a run is replaced only if all of its parts are still held.
            if gone <= set(map(id, self._runs)):
                self._runs = [run for run in self._runs if id(run) not in gone] + merged

    def _expiring(self, runs: Sequence[PaneRun], before: Watermark, after: Watermark) -> range:
        if not runs:
            return range(0)
        return self.windows.expiring(min(run.low for run in runs), max(run.high for run in runs), before, after)

    def _seen_at(self, segment: int) -> tuple[list[PaneRun], dict[int, int]]:
        """The runs that were there after a segment, and how often windows had been revised by then."""
        with self._lock:
            rounds = {number: sum(at <= segment for at in when) for number, when in self._rounds.items()}
            return [run for run in self._runs if run.segment <= segment], rounds

    def _forget(self) -> None:
        least = self.windows.panes.node.window.least_open_slice(self._watermark)
        if least == self._least:
            return
        self._least = least
        if any(run.high < least for run in self._runs):
            self._runs = [run for run in self._runs if run.high >= least]
        if self._rounds:
            self._rounds = {number: rounds for number, rounds in self._rounds.items() if 2 * number >= least}

    def _mergeable(self) -> tuple[Sequence[PaneRun], bool]:
        """Runs that every instance has passed and that are better merged, and whether no more is due for their slices.

        Those are all runs of slices for which no more is due, where a slice takes part in several windows; else
        `FAN_IN` runs of the same slices and about the same size.
        """
        acknowledged = self._acknowledged
        seen = [run for run in self._runs if run.segment <= acknowledged]
        window = self.windows.panes.node.window
        if self.merge_settled:
            due = window.slice_of(self._watermark)
            ready = [run for run in seen if run.high < due and not run.settled]
            if len(ready) > 1:
                return ready, True
        alike: dict[tuple[int, int, int], list[PaneRun]] = {}
        for run in seen:
            tier = len(run.slices).bit_length() // 3
            group = alike.setdefault((run.low, run.high, tier), [])
            group.append(run)
            if len(group) == FAN_IN:
                return group, False
        return (), False
