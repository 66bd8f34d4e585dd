"""A cell of a windowed aggregate: the windows of the shards that are mapped to it, fed with panes and watermarks.

A batch's panes join their slices under the watermark before it: windows that had expired and still take late tuples are
revised. Then the watermark advances, and the windows that expire are emitted from what was kept and what has come. Only
what an open window still needs is written.

Panes are kept as a log of chunks: a batch appends a chunk for each run of slices it touches, whatever is stored already.
Where more than `MOST_CHUNKS` overlap the small ones are merged; a chunk is rewritten only together with others that amount
to at least half of it, so each pane is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from tidegate.operators.cells import Instances, worth_merging
from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.exchange import Delta
from tidegate.operators.keys import step_shards
from tidegate.operators.window_state import PaneRun, WindowState
from tidegate.operators.windowed_aggregate import SLICE, Panes
from tidegate.query.nodes import WindowAggregate
from tidegate.state.chunks import Chunk, ChunkStore, Data
from tidegate.state.epochs import ShardSet, members
from tidegate.watermark import Watermark

MOST_CHUNKS = 8
OwnPanes: TypeAlias = Callable[[Sequence[PaneRun]], list[PaneRun]]
"""Keeps the panes that are the cell's own."""


@dataclass(slots=True)
class WindowCell:
    """The working side of a directory; results are computed by the instances, each for its shards."""

    node: WindowAggregate
    cell: int
    store: ChunkStore
    instances: Instances
    windows: WindowState = field(init=False)

    def __post_init__(self) -> None:
        self.windows = WindowState(Panes(self.node))

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Add panes and advance; see `OpenCell`."""
        directory = self.store.directory
        fresh = [self.windows.run(delta.rows) for delta in deltas if delta.rows.num_rows]
        revised = self._revise(fresh, directory.watermark)
        expired = self._expire(fresh, directory.watermark, watermark)
        directory.watermark = max(directory.watermark, watermark)
        least = self.node.window.least_open_slice(directory.watermark)
        self._forget(least)
        self.keep(fresh, least)
        return chain(*revised, *expired)

    def _revise(self, fresh: Sequence[PaneRun], watermark: Watermark) -> list[Iterator[pa.Table]]:
        """The keys, anew, that late tuples change in windows that had expired."""
        revised = []
        for number in self.windows.reopened(fresh, watermark):
            rounds = self.store.directory.rounds
            rounds[number] = rounds.get(number, 0) + 1
            runs = [*self.read(self._overlapping(*self.windows.slices(range(number, number + 1)))), *fresh]
            for windows, mine in self._owned(range(number, number + 1)):
                held, new = mine(runs), mine(fresh)
                # Computed when they are asked for, by which time the directory has moved on.
                tasks = [
                    self.windows.results(held, windows, {number: rounds[number]}, owned, new)
                    for owned in self.instances.shares()
                ]
                revised.append(self.instances.run(tasks))
        return revised

    def _expire(self, fresh: Sequence[PaneRun], before: Watermark, after: Watermark) -> list[Iterator[pa.Table]]:
        """The results of the windows that expire as the watermark moves."""
        listed = self.store.directory.chunks
        if after <= before or not (listed or fresh):
            return []
        low = min(chain((chunk.low for chunk in listed), (run.low for run in fresh)))
        high = max(chain((chunk.high for chunk in listed), (run.high for run in fresh)))
        windows = self.windows.expiring(low, high, before, after)
        if not windows:
            return []
        runs = [*self.read(self._overlapping(*self.windows.slices(windows))), *fresh]
        rounds = dict(self.store.directory.rounds)
        owners = self.instances.shares(len(windows) * sum(run.panes.num_rows for run in runs))
        expired = []
        for part, mine in self._owned(windows):
            held = mine(runs)
            expired.append(self.instances.run([self.windows.results(held, part, rounds, owned) for owned in owners]))
        return expired

    def _owned(self, windows: range) -> list[tuple[range, OwnPanes]]:
        """Windows with what keeps the panes of the shards whose results the cell emits in them.

        While shards are handed over, those of windows that begin before the switch are their old cell's.
        """
        epoch = self.store.directory.epoch
        if epoch.handover is None:
            return [(windows, list)]
        first = epoch.handover.switch // self.node.window.every
        parts = (
            (range(windows.start, min(windows.stop, first)), epoch.owned_before(self.cell)),
            (range(max(windows.start, first), windows.stop), epoch.owned(self.cell)),
        )
        return [(part, partial(self._in_shards, shards=shards)) for part, shards in parts if part]

    def _in_shards(self, runs: Sequence[PaneRun], shards: ShardSet) -> list[PaneRun]:
        """Runs of the panes that lie in some shards."""
        return [self._part(run.panes, members(shards), run.low, run.high) for run in runs]

    def _part(self, panes: pa.Table, mine: Array, low: int, high: int) -> PaneRun:
        kept = panes.filter(pa.array(mine[step_shards(self.windows.panes.hashes(panes))])).combine_chunks()
        return self.windows.run(kept) if kept.num_rows else self.windows.empty_run(low, high)

    def _forget(self, least: int) -> None:
        """Drop chunks that no open window needs, and rewrite those in memory that are mostly such."""
        directory = self.store.directory
        for chunk in list(directory.chunks):
            if chunk.high < least:
                self.store.drop(chunk)
            elif chunk.low < least:
                run = self.store.remembered(chunk)
                kept = run.between(least, chunk.high, None) if run is not None else None
                if kept is not None and 2 * kept.num_rows <= chunk.rows:
                    self.store.drop(chunk)
                    self._append(kept)
        directory.rounds = {number: count for number, count in directory.rounds.items() if 2 * number >= least}

    def keep(self, fresh: Sequence[PaneRun], least: int) -> None:
        """Append the new panes that an open window needs, merged with small chunks over their slices if there are many."""
        needed = [run.between(least, run.high, None) for run in fresh]
        needed = [panes for panes in needed if panes.num_rows]
        if not needed:
            return
        low, high = min(run.low for run in fresh), max(run.high for run in fresh)
        merged = self._small_chunks(max(low, least), high, sum(panes.num_rows for panes in needed))
        needed += [run.between(least, run.high, None) for run in self.read(merged)]
        for chunk in merged:
            self.store.drop(chunk)
        self._append(self.windows.panes.merge(needed))

    def _append(self, panes: pa.Table) -> None:
        for run in self.windows.runs(panes):
            chunk = self.store.append(self.windows.panes.piece(run.panes, run.low, run.high))
            self.store.remember(chunk, run.nbytes, run)

    def _small_chunks(self, low: int, high: int, rows: int) -> list[Chunk]:
        """The chunks over some slices that so many new rows are to be merged with: none as long as they are few."""
        held = self._overlapping(low, high)
        if len(held) < MOST_CHUNKS:
            return []
        return worth_merging(sorted(held, key=lambda chunk: chunk.rows), rows, MOST_CHUNKS)

    def _overlapping(self, low: int, high: int) -> list[Chunk]:
        """The chunks that may hold panes of some slices."""
        return [chunk for chunk in self.store.directory.chunks if chunk.low <= high and chunk.high >= low]

    def read(self, listed: Sequence[Chunk]) -> list[PaneRun]:
        """The run of panes that each chunk holds in the shards for which it is listed."""

        def build(data: Data, chunk: Chunk) -> tuple[PaneRun, int]:
            panes = self.windows.panes.decode(data, chunk.low)
            if chunk.until is not None:
                begins = self.node.window.slice_start(as_numpy(panes.column(SLICE)))
                panes = panes.filter(pa.array(begins < chunk.until))
            whole = chunk.is_whole and panes.num_rows > 0
            run = self.windows.run(panes) if whole else self._part(panes, members(chunk.shards), chunk.low, chunk.high)
            return run, run.nbytes

        return self.store.read(listed, build, self.instances.spread)
