"""Windows over panes: which of them expire, what they hold, and which of them late tuples reopen.

Panes are held in runs, in the order of their slices: in memory, where instances share them (`shared_windows`), or decoded
from the chunks of a cell (`window_cell`). Nothing here knows where they are held. A run is never changed, and says which
shard each of its panes is in, so instances compute the results of the shards they own from the same runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.windowed_aggregate import SLICE, Panes
from tidegate.watermark import Watermark

LEAST_RUN = 16_384
LEAST_APART = 4_096
"""Windows over fewer panes are computed together: a table more would cost more than merging does."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PaneRun:
    """Panes in the order of their slices, from ``low`` to ``high``; ``segment`` is the latest segment they come from.

    ``settled`` says that they were merged when no more panes of their slices were due.
    """

    panes: pa.Table
    slices: Array
    low: int
    high: int
    shard_of: Callable[[pa.Table], Array]
    segment: int = 0
    settled: bool = False
    _shards: list[Array] = field(default_factory=list)

    @property
    def shards(self) -> Array:
        """The shard of each pane; computed when it is first needed, as small windows never need it."""
        if not self._shards:
            self._shards.append(self.shard_of(self.panes))
        return self._shards[0]

    def shards_at(self, places: Array) -> Array:
        """The shards of some of its panes; those of the others stay unknown if they were."""
        return self._shards[0][places] if self._shards else self.shard_of(self.panes.take(pa.array(places)))

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return int(self.panes.nbytes) + self.slices.nbytes + sum(shards.nbytes for shards in self._shards)

    def between(self, low: int, high: int, owned: Array | None) -> pa.Table:
        """The panes of slices ``low`` to ``high`` that lie in owned shards; None owns all."""
        start, stop = np.searchsorted(self.slices, (low, high + 1)).tolist()
        part = self.panes.slice(start, stop - start)
        if owned is None or start == stop:
            return part
        kept = owned[self.shards[start:stop]]
        return part if kept.all() else part.take(pa.array(np.flatnonzero(kept)))


@dataclass(frozen=True, slots=True)
class WindowState:
    """Computes the windows of one aggregate from runs of panes; holds none itself.

    ``rounds`` counts, for each window, how often late tuples have changed it after it had expired.
    """

    panes: Panes

    def runs(self, panes: pa.Table, segment: int = 0, settled: bool = False) -> list[PaneRun]:
        """Panes, in the order of their slices, as runs of whole slices, of `LEAST_RUN` panes or more but the last."""
        slices = as_numpy(panes.column(SLICE))
        edges = [len(slices)] if len(slices) else []
        if len(slices) >= LEAST_RUN and slices[0] != slices[-1]:
            edges = [*(np.flatnonzero(np.diff(slices)) + 1).tolist(), len(slices)]
        runs, start = [], 0
        for stop in edges:
            if stop - start >= LEAST_RUN or stop == len(slices):
                runs.append(self.run(panes.slice(start, stop - start), segment, settled))
                start = stop
        return runs

    def run(self, panes: pa.Table, segment: int = 0, settled: bool = False) -> PaneRun:
        """Panes, in the order of their slices, as one run."""
        slices = as_numpy(panes.column(SLICE))
        run = PaneRun(panes, slices, int(slices[0]), int(slices[-1]), self._shard_of, segment, settled)
        if len(slices) >= 4 * LEAST_RUN:
            # Large runs are shared out in the end: the thread that builds one also finds its shards, once for all.
            _ = run.shards
        return run

    def empty_run(self, low: int, high: int) -> PaneRun:
        """A run over some slices that holds no pane."""
        return PaneRun(self.panes.empty, np.empty(0, np.int64), low, high, self._shard_of)

    def expiring(self, low: int, high: int, before: Watermark, after: Watermark) -> range:
        """The windows over the slices ``low`` to ``high`` that expire as the watermark moves."""
        window = self.panes.node.window
        first = max(window.first_window(low), window.first_open(before))
        return range(first, min(window.last_window(high), window.first_open(after) - 1) + 1)

    def slices(self, windows: range) -> tuple[int, int]:
        """The first and the last slice of some windows."""
        window = self.panes.node.window
        return 2 * windows[0], window.slice_of(window.end(windows[-1]) - 1)

    def results(
        self,
        runs: Iterable[PaneRun],
        windows: range,
        rounds: Mapping[int, int],
        owned: Array | None,
        changed: Iterable[PaneRun] | None = None,
    ) -> Iterator[pa.Table]:
        """The results of the owned keys in some windows, earliest first; of the keys of ``changed`` panes only, if given."""
        parts = self._between(runs, windows, owned)
        if changed is not None:
            fresh = self._between(changed, windows, owned)
            parts = [self.panes.with_keys_of(pa.concat_tables(parts), pa.concat_tables(fresh))] if fresh else []
        if not parts:
            return
        for panes, some, apart in self._stretches(parts, windows):
            found = self.panes.results_apart(panes) if apart else self.panes.results(panes, some[0], some[-1])
            yield from self._numbered(found, rounds)

    def reopened(self, runs: Iterable[PaneRun], watermark: Watermark) -> list[int]:
        """The windows that had expired at a watermark and that new panes change, earliest first."""
        window = self.panes.node.window
        if not window.lateness:
            return []
        touched = {int(slice_id) for run in runs for slice_id in np.unique(run.slices)}
        return sorted({number for slice_id in touched for number in window.reopened(slice_id, watermark)})

    def _between(self, runs: Iterable[PaneRun], windows: range, owned: Array | None) -> list[pa.Table]:
        low, high = self.slices(windows)
        parts = [run.between(low, high, owned) for run in runs if run.low <= high and run.high >= low]
        return [part for part in parts if part.num_rows]

    def _stretches(self, parts: Sequence[pa.Table], windows: range) -> Iterator[tuple[pa.Table, range, bool]]:
        """Panes by stretches of windows, in their order, and whether no two of them are of one window and key.

        Windows that do not overlap are of one slice each, so what one run alone has of them needs no merging.
        """
        window = self.panes.node.window
        if window.size != window.every or sum(part.num_rows for part in parts) < LEAST_APART:
            yield pa.concat_tables(parts), windows, False
            return
        numbers = [window.last_window(as_numpy(part.column(SLICE))) for part in parts]
        edges = sorted({int(edge) for each in numbers for edge in (each[0], each[-1] + 1)})
        for low, high in pairwise(edges):
            bounds = [np.searchsorted(each, (low, high)).tolist() for each in numbers]
            some = [
                part.slice(start, stop - start)
                for part, (start, stop) in zip(parts, bounds, strict=True)
                if start < stop
            ]
            if some:
                yield pa.concat_tables(some), range(low, high), len(some) == 1

    def _shard_of(self, panes: pa.Table) -> Array:
        found: Array = self.panes.shards(panes, SHARDS).astype(np.uint16)
        return found

    def _numbered(self, tables: Iterator[pa.Table], rounds: Mapping[int, int]) -> Iterator[pa.Table]:
        """Results with the revision that their windows have reached."""
        for table in tables:
            if self.panes.node.window.lateness:
                numbers = as_numpy(table.column("window_start")) // self.panes.node.window.every
                revision = pa.array([rounds.get(number, 0) for number in numbers.tolist()], pa.int64())
                table = table.set_column(table.schema.get_field_index("revision"), "revision", revision)
            yield table
