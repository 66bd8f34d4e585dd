"""A cell of a windowed aggregate: the windows of a fixed set of shards, fed with pane tables and watermarks.

A batch is one `receive`: first every window that expires at the batch's watermark is handed out, then the batch's panes
join their slices; those of tuples that another stateful step made join them before. A contribution is late for a window
when ``end + lateness ≤ W`` at that moment. Cells without input get `advance` when the time they asked for with
`next_due` comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.delta import Delta
from tidegate.operators.instances import Instances
from tidegate.operators.spread_panes import SpreadPanes
from tidegate.operators.windowed_aggregate import SLICE, Panes
from tidegate.state.chunk_store import ChunkStore, Piece
from tidegate.state.directory import Chunk
from tidegate.state.slice_log import SliceLog
from tidegate.watermark import Watermark


@dataclass(frozen=True, slots=True)
class AggregateLogic:
    """How the cells of a windowed aggregate work."""

    panes: Panes

    @property
    def schema(self) -> pa.Schema:
        return self.panes.node.schema

    @property
    def time(self) -> str:
        return self.panes.node.time

    def open(self, cell: int, store: ChunkStore, instances: Instances) -> Cell:
        spread = SpreadPanes(self.panes, instances)
        return Cell(spread, SliceLog(store, spread.merge_pieces, spread.decode))


@dataclass(slots=True)
class Cell:
    """The working side of a directory; what costs most runs on the instances of ``spread``."""

    spread: SpreadPanes
    log: SliceLog
    late: int = 0

    @property
    def panes(self) -> Panes:
        """How the aggregate is computed."""
        return self.spread.panes

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Take a batch at a watermark; yields results. ``late`` counts late tuples."""
        for delta in deltas:
            if delta.derived and delta.piece is not None:
                self.log.append(delta.piece)
        yield from self.advance(watermark)
        yield from self._receive([delta for delta in deltas if not delta.derived], watermark)

    def _receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Add what sources delivered, and hand out revisions."""
        least = self.panes.node.window.least_open_slice(watermark)
        revised: list[pa.Table] = []
        touched = []
        for delta in deltas:
            self.late += sum(count for slice_id, count in delta.tuples if slice_id < least)
            if delta.piece is None:
                continue
            for piece in self._still_open(delta.piece, least):
                if self.panes.node.window.reopened(piece.low, watermark):
                    revised.append(self.panes.decode(piece.data, piece.low))
                self.log.append(piece)
                touched.append((piece.low, piece.high))
        if revised:
            yield from self._revise(pa.concat_tables(revised), watermark)
        for low, high in touched:
            self.log.compact(low, high)

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Hand out the windows that expire, in order, and forget the slices that no open window needs."""
        directory, window = self.log.directory, self.panes.node.window
        if watermark <= directory.watermark:
            return
        first, last = self._expiring(watermark)
        read: dict[Chunk, pa.Table] = {}
        if first <= last:
            needed = self.log.overlapping(2 * first, window.slice_of(window.end(last) - 1))
            read = dict(zip(needed, self.log.read(needed), strict=True))
            if read:
                for table in self.spread.results(list(read.values()), first, last):
                    yield self._numbered(table)
        directory.watermark = watermark
        self._forget(read, watermark)

    def _forget(self, read: dict[Chunk, pa.Table], watermark: Watermark) -> None:
        """Drop chunks that no open window needs, and rewrite those at hand that are mostly such."""
        directory, window = self.log.directory, self.panes.node.window
        least = window.least_open_slice(watermark)
        for chunk in [chunk for chunk in directory.chunks if chunk.high < least]:
            self.log.drop(chunk)
        for chunk, table in read.items():
            if chunk.low < least <= chunk.high:
                kept = self.panes.from_slice(table, least)
                if 2 * kept.num_rows <= chunk.rows:
                    self.log.drop(chunk)
                    for piece in self.panes.merge_pieces([kept]):
                        self.log.append(piece)
        directory.rounds = {
            n: count for n, count in directory.rounds.items() if window.end(n) + window.lateness > watermark
        }

    def _still_open(self, piece: Piece, least: int) -> Iterator[Piece]:
        """A piece without the slices that are closed: what is late for all windows of a slice is left out."""
        if piece.low >= least:
            yield piece
        elif piece.high >= least:
            yield from self.panes.merge_pieces([self.panes.from_slice(self.panes.decode(piece.data, piece.low), least)])

    def next_due(self) -> int | None:
        """The watermark at which this cell may have something to do: the next end of a window, or a slice's last use."""
        directory, window = self.log.directory, self.panes.node.window
        due = []
        for chunk in directory.chunks:
            first, last = self._not_before(window.first_window(chunk.low)), window.last_window(chunk.high)
            due.append(window.end(first) if first <= last else window.end(last) + window.lateness)
        return min(due, default=None)

    def _expiring(self, watermark: Watermark) -> tuple[int, int]:
        """The first and last window over held slices that expire at a watermark; last < first if there is none."""
        window, held = self.panes.node.window, self.log.directory.chunks
        if not held:
            return 0, -1
        first = self._not_before(min(window.first_window(chunk.low) for chunk in held))
        latest = max(window.last_window(chunk.high) for chunk in held)
        return first, min(latest, window.first_open(watermark) - 1)

    def _not_before(self, number: int) -> int:
        """A window, or the first that has not been handed out yet."""
        return max(number, self.panes.node.window.first_open(self.log.directory.watermark))

    def _revise(self, fresh: pa.Table, watermark: Watermark) -> Iterator[pa.Table]:
        """Hand out again the keys that late tuples touched in windows that had expired."""
        window, directory = self.panes.node.window, self.log.directory
        slices = pc.unique(fresh.column(SLICE)).to_pylist()
        for number in sorted({number for slice_id in slices for number in window.reopened(slice_id, watermark)}):
            low, high = 2 * number, window.slice_of(window.end(number) - 1)
            held = pa.concat_tables(self.log.read(self.log.overlapping(low, high)))
            places = fresh.column(SLICE)
            inside = fresh.filter(pc.and_(pc.greater_equal(places, low), pc.less_equal(places, high)))
            directory.rounds[number] = directory.rounds.get(number, 0) + 1
            for table in self.spread.results([self.panes.with_keys_of(held, inside)], number, number):
                yield self._numbered(table)

    def _numbered(self, table: pa.Table) -> pa.Table:
        """Results with the revision their window has reached."""
        if not self.panes.node.window.lateness:
            return table
        every, rounds = self.panes.node.window.every, self.log.directory.rounds
        starts = table.column("window_start").cast(pa.int64()).to_pylist()
        revision = pa.array([rounds.get(start // every, 0) for start in starts], pa.int64())
        return table.set_column(table.schema.get_field_index("revision"), "revision", revision)
