"""A cell of a windowed aggregate: the windows of a fixed set of shards, fed with pane tables and watermarks.

A batch is one `receive`: first every window that expires at the batch's watermark is emitted, then the batch's panes join
their slices; those of tuples that another stateful step derived join them before. A contribution is late for a window when
``end + lateness ≤ W`` at that moment. Cells without input get `advance` at the watermark that their `next_due` gave.

Panes are kept as a log of chunks: a batch appends a chunk for each run of slices it touches, whatever is stored already.
Where more than `MOST_CHUNKS` overlap the small ones are merged; a chunk is rewritten only together with others that amount
to at least half of it, so each pane is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.operators.cells import CellLogic, Instances
from tidegate.operators.exchange import Delta
from tidegate.operators.window_state import PaneRun, WindowState
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import WindowAggregate
from tidegate.state.chunks import Chunk, ChunkStore, Piece
from tidegate.watermark import Watermark

MOST_CHUNKS = 8


@dataclass(frozen=True, slots=True)
class WindowCellLogic(CellLogic):
    """How the cells of a windowed aggregate work."""

    node: WindowAggregate

    def open(self, cell: int, store: ChunkStore, instances: Instances) -> WindowCell:
        return WindowCell(WindowState(Panes(self.node)), store, instances)


@dataclass(slots=True)
class WindowCell:
    """The working side of a directory; results are computed by the instances, each for its shards."""

    windows: WindowState
    store: ChunkStore
    instances: Instances
    late: int = 0

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Take a batch at a watermark; yields results. ``late`` counts late tuples."""
        for delta in deltas:
            if delta.derived and delta.piece is not None:
                self.store.append(delta.piece)
        yield from self.advance(watermark)
        window = self.windows.panes.node.window
        fresh: list[PaneRun] = []
        touched = []
        least = window.least_open_slice(watermark)
        for delta in deltas:
            if delta.derived:
                continue
            self.late += sum(count for slice_id, count in delta.tuples if slice_id < least)
            for piece in self._still_open(delta.piece, least):
                if window.reopened(piece.low, watermark):
                    fresh.append(self.windows.run(self.windows.panes.decode(piece.data, piece.low)))
                self.store.append(piece)
                touched.append((piece.low, piece.high))
        yield from self._revise(fresh, watermark)
        for low, high in touched:
            self._compact(low, high)

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Emit the windows that expire, in order, and forget the slices that no open window needs."""
        directory = self.store.directory
        if watermark <= directory.watermark:
            return
        read: list[tuple[Chunk, PaneRun]] = []
        if directory.chunks:
            low, high = min(chunk.low for chunk in directory.chunks), max(chunk.high for chunk in directory.chunks)
            windows = self.windows.expiring(low, high, directory.watermark, watermark)
            if windows:
                read = self._read(self._overlapping(*self.windows.slices(windows)))
                runs = [run for _, run in read]
                owners = self.instances.shares(self.windows.shards)
                yield from self.instances.run(
                    [self.windows.results(runs, windows, directory.rounds, owned) for owned in owners]
                )
        directory.watermark = watermark
        self._forget(read)

    def next_due(self) -> Watermark | None:
        """The watermark at which this cell may have something to do: the next end of a window, or a slice's last use."""
        directory, window = self.store.directory, self.windows.panes.node.window
        due = []
        for chunk in directory.chunks:
            last = window.last_window(chunk.high)
            first = max(window.first_window(chunk.low), window.first_open(directory.watermark))
            due.append(window.end(first) if first <= last else window.end(last) + window.lateness)
        return min(due, default=None)

    def _revise(self, fresh: Sequence[PaneRun], watermark: Watermark) -> Iterator[pa.Table]:
        """Emit again the keys that late tuples changed in windows that had expired."""
        rounds = self.store.directory.rounds
        for number in self.windows.reopened(fresh, watermark):
            rounds[number] = rounds.get(number, 0) + 1
            read = self._read(self._overlapping(*self.windows.slices(range(number, number + 1))))
            runs = [run for _, run in read]
            owners = self.instances.shares(self.windows.shards)
            yield from self.instances.run(
                [self.windows.revisions(runs, fresh, number, rounds, owned) for owned in owners]
            )

    def _forget(self, read: Sequence[tuple[Chunk, PaneRun]]) -> None:
        """Drop chunks that no open window needs, and rewrite those at hand that are mostly such."""
        directory, panes = self.store.directory, self.windows.panes
        least = panes.node.window.least_open_slice(directory.watermark)
        for chunk in [chunk for chunk in directory.chunks if chunk.high < least]:
            self.store.drop(chunk)
        for chunk, run in read:
            if chunk.low < least <= chunk.high:
                kept = run.between(least, chunk.high, None)
                if 2 * kept.num_rows <= chunk.rows:
                    self._replace([chunk], panes.pieces(kept))
        directory.rounds = {number: count for number, count in directory.rounds.items() if 2 * number >= least}

    def _still_open(self, piece: Piece | None, least: int) -> Iterator[Piece]:
        """A piece without the slices that are closed: what is late for all windows of a slice is left out."""
        panes = self.windows.panes
        if piece is not None and piece.low >= least:
            yield piece
        elif piece is not None and piece.high >= least:
            yield from panes.pieces(panes.from_slice(panes.decode(piece.data, piece.low), least))

    def _compact(self, low: int, high: int) -> None:
        """Merge the small chunks over some slices if there are too many."""
        held = self._overlapping(low, high)
        if len(held) <= MOST_CHUNKS:
            return
        held.sort(key=lambda chunk: chunk.rows)
        taken, rows = 1, held[0].rows
        while taken < len(held) and (taken < MOST_CHUNKS // 2 or held[taken].rows <= 2 * rows):
            rows += held[taken].rows
            taken += 1
        merged = self.windows.panes.merge([run.panes for _, run in self._read(held[:taken])])
        self._replace(held[:taken], self.windows.panes.pieces(merged))

    def _replace(self, gone: Sequence[Chunk], pieces: Iterator[Piece]) -> None:
        for chunk in gone:
            self.store.drop(chunk)
        for piece in pieces:
            self.store.append(piece)

    def _overlapping(self, low: int, high: int) -> list[Chunk]:
        """The chunks that may hold panes of some slices."""
        return [chunk for chunk in self.store.directory.chunks if chunk.low <= high and chunk.high >= low]

    def _read(self, listed: Sequence[Chunk]) -> list[tuple[Chunk, PaneRun]]:
        """Chunks with the run of panes that each holds; the state store is read on this thread alone."""
        fetched = [(chunk, self.store.fetch(chunk)) for chunk in listed]
        return self.instances.spread(lambda each: (each[0], self._run(*each)), fetched)

    def _run(self, chunk: Chunk, data: bytes | pa.Buffer) -> PaneRun:
        return self.windows.run(self.windows.panes.decode(data, chunk.low))
