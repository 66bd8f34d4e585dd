"""A cell: the windows of a fixed set of shards, fed with pane tables and watermarks.

A batch is one `receive`: first every window that expires at the batch's watermark is handed out, then the batch's panes
join their slices. A contribution is late for a window when ``end + lateness ≤ W`` at that moment. Cells without input
get `advance` when the time they asked for with `next_due` comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.operators.windowed_aggregate import Panes
from tidegate.state import chunks
from tidegate.state.slice_log import SliceLog


@dataclass(frozen=True, slots=True)
class Delta:
    """What one task combined for one slice of a cell.

    ``tuples`` is how many tuples fell in the slice, with a key here or not; exactly one cell is told, so that a late
    tuple is counted once. ``data`` is the encoded pane table, None if only tuples are told.
    """

    slice_id: int
    tuples: int
    rows: int
    data: bytes | None


@dataclass(slots=True)
class Cell:
    """The working side of a directory."""

    panes: Panes
    log: SliceLog
    late: int = 0

    def receive(self, deltas: Sequence[Delta], watermark: int | None) -> Iterator[pa.Table]:
        """Take a batch at a watermark (None: nothing is known yet); yields results. ``late`` counts late tuples."""
        yield from self.advance(watermark)
        revised: dict[int, list[pa.Table]] = {}
        touched = set()
        for delta in deltas:
            if self._closed(delta.slice_id, watermark):
                self.late += delta.tuples
                continue
            if delta.data is None:
                continue
            if watermark is not None and self._expired_windows(delta.slice_id, watermark):
                fresh = self.panes.in_slice(delta.slice_id, chunks.decode(delta.data))
                revised.setdefault(delta.slice_id, []).append(fresh)
            self.log.append(delta.slice_id, delta.data, delta.rows)
            touched.add(delta.slice_id)
        if revised and watermark is not None:
            yield from self._revise(revised, watermark)
        for slice_id in touched:
            self.log.compact(slice_id)

    def advance(self, watermark: int | None) -> Iterator[pa.Table]:
        """Hand out the windows that expire, in order, and forget the slices that no open window needs."""
        directory = self.log.directory
        if watermark is None or (directory.watermark is not None and watermark <= directory.watermark):
            return
        first, last = self._expiring(directory.watermark, watermark)
        if first is not None and last is not None:
            window = self.panes.node.window
            needed = [s for s in directory.slices if window.first_window(s) <= last and window.last_window(s) >= first]
            for table in self.panes.results(self._read(needed), first, last):
                yield self._numbered(table)
        directory.watermark = watermark
        for slice_id in [s for s in directory.slices if self._closed(s, watermark)]:
            self.log.drop(slice_id)
        horizon = self.panes.node.window
        directory.rounds = {
            n: count for n, count in directory.rounds.items() if horizon.end(n) + horizon.lateness > watermark
        }

    def next_due(self) -> int | None:
        """The watermark at which this cell has something to do: the next end of a window, or a slice's last use."""
        directory, window = self.log.directory, self.panes.node.window
        due = []
        for slice_id in directory.slices:
            first = window.first_window(slice_id)
            if directory.watermark is not None:
                first = max(first, (directory.watermark - window.size) // window.every + 1)
            last = window.last_window(slice_id)
            due.append(window.end(first) if first <= last else window.end(last) + window.lateness)
        return min(due, default=None)

    def _expiring(self, before: int | None, watermark: int) -> tuple[int | None, int | None]:
        """The first and last window over held slices with ``before < end ≤ watermark``."""
        window, held = self.panes.node.window, self.log.directory.slices
        if not held:
            return None, None
        first = min(window.first_window(s) for s in held)
        if before is not None:
            first = max(first, (before - window.size) // window.every + 1)
        last = min(max(window.last_window(s) for s in held), (watermark - window.size) // window.every)
        return (first, last) if first <= last else (None, None)

    def _closed(self, slice_id: int, watermark: int | None) -> bool:
        window = self.panes.node.window
        return watermark is not None and window.last_end(slice_id) + window.lateness <= watermark

    def _expired_windows(self, slice_id: int, watermark: int) -> range:
        """Windows over a slice that were handed out already and are still open to late tuples."""
        window = self.panes.node.window
        if not window.lateness:
            return range(0)
        first = max(window.first_window(slice_id), (watermark - window.lateness - window.size) // window.every + 1)
        last = min(window.last_window(slice_id), (watermark - window.size) // window.every)
        return range(first, last + 1)

    def _revise(self, revised: dict[int, list[pa.Table]], watermark: int) -> Iterator[pa.Table]:
        """Hand out again the keys that late tuples touched in windows that had expired."""
        window, directory = self.panes.node.window, self.log.directory
        windows = sorted({n for slice_id in revised for n in self._expired_windows(slice_id, watermark)})
        for number in windows:
            slices = [s for s in directory.slices if window.first_window(s) <= number <= window.last_window(s)]
            fresh = pa.concat_tables([table for s in slices for table in revised.get(s, ())])
            directory.rounds[number] = directory.rounds.get(number, 0) + 1
            touched = self.panes.with_keys_of(self._read(slices), fresh)
            for table in self.panes.results(touched, number, number):
                yield self._numbered(table)

    def _read(self, slice_ids: Sequence[int]) -> pa.Table:
        held = [self.panes.in_slice(number, table) for number in slice_ids for table in self.log.read(number)]
        return pa.concat_tables(held) if held else self.panes.schema.empty_table()

    def _numbered(self, table: pa.Table) -> pa.Table:
        """Results with the revision their window has reached."""
        if not self.panes.node.window.lateness:
            return table
        every, rounds = self.panes.node.window.every, self.log.directory.rounds
        starts = table.column("window_start").cast(pa.int64()).to_pylist()
        revision = pa.array([rounds.get(start // every, 0) for start in starts], pa.int64())
        return table.set_column(table.schema.get_field_index("revision"), "revision", revision)
