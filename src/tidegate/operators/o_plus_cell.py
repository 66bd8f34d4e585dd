"""A cell of an O+: tuples wait in chunks until they are settled; the windows of its shards are kept as data.

A tuple of a source is late if it comes before the batch's watermark, so what a batch brings waits for a later one, and
what a batch settles came with batches before it or was made by another stateful step. Settled tuples are handled in
canonical order, so neither the cut of the stream into batches nor the number of instances can show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.cell_logic import END_US
from tidegate.operators.column_windows import ColumnWindows
from tidegate.operators.delta import Delta
from tidegate.operators.held_windows import NUMBER, HeldCodec
from tidegate.operators.instances import Instances
from tidegate.operators.settling import Settled, Settling
from tidegate.operators.tuple_pieces import times_of, tuple_piece, without_late
from tidegate.operators.tuple_windows import TupleWindows
from tidegate.operators.windowed_aggregate import SHARDS
from tidegate.query.nodes import OPlus
from tidegate.query.tuple_form import TupleForm
from tidegate.state import chunks
from tidegate.state.chunk_store import ChunkStore, Piece
from tidegate.state.directory import NO_GROUP, Chunk

Array = np.ndarray[Any, Any]
SHARDS_PER_GROUP = 16
MOST_PIECES = 4
_BEGINNING = -(2**63)


@dataclass(frozen=True, slots=True)
class OPlusLogic:
    """How the cells of an O+ work; there are ``cells`` of them."""

    node: OPlus
    cells: int

    @property
    def schema(self) -> pa.Schema:
        return self.node.schema

    @property
    def time(self) -> str:
        return self.node.time

    def open(self, cell: int, store: ChunkStore, instances: Instances) -> OPlusCell:
        return OPlusCell(self.node, self.cells, cell, store, instances, HeldCodec(self.node))


@dataclass(slots=True)
class OPlusCell:
    """The working side of a directory. A group of shards is read when a settled tuple or a window's end touches it."""

    node: OPlus
    cells: int
    cell: int
    store: ChunkStore
    instances: Instances
    codec: HeldCodec
    late: int = 0

    def receive(self, deltas: Sequence[Delta], watermark: int | None) -> Iterator[pa.Table]:
        """Take a batch at a watermark (None: nothing is known yet); yields results. ``late`` counts late tuples."""
        made = [(delta.side, chunks.decode(delta.piece.data)) for delta in deltas if delta.made and delta.piece]
        yield from self._advance(watermark, made)
        for side, source in enumerate(self.node.inputs):
            kept = []
            for delta in deltas:
                if delta.side == side and not delta.made:
                    piece, late = without_late(delta, source.time, watermark)
                    self.late += late
                    kept += [piece] if piece is not None else []
            for piece in self._joined(kept, source.time):
                self.store.append(piece, side)

    def advance(self, watermark: int | None) -> Iterator[pa.Table]:
        """Handle what is settled and hand out the windows that expire."""
        yield from self._advance(watermark, [])

    def next_due(self) -> int | None:
        """When the first tuple that waits is settled, or the first window ends."""
        held = self.store.directory.chunks
        return min((chunk.low + 1 if chunk.group == NO_GROUP else chunk.low for chunk in held), default=None)

    def _advance(self, watermark: int | None, made: Sequence[tuple[int, pa.Table]]) -> Iterator[pa.Table]:
        directory = self.store.directory
        before = _BEGINNING if directory.watermark is None else directory.watermark
        if watermark is None or (watermark <= before and not made):
            return
        settled = self._settle(before, watermark, made)
        groups = {
            shard // SHARDS_PER_GROUP for entries in settled.entries for shard in np.unique(entries.shards).tolist()
        }
        loaded = [c for c in directory.chunks if c.group != NO_GROUP and (c.low <= watermark or c.group in groups)]
        groups |= {chunk.group for chunk in loaded}
        if groups:
            windows = self._windows(loaded)
            yield from self._results(windows, settled, watermark >= END_US)
            self._keep(windows, groups, loaded)
        directory.watermark = watermark

    def _settle(self, before: int, watermark: int, made: Sequence[tuple[int, pa.Table]]) -> Settled:
        """Take out what is settled by a watermark; what waits on stays, or is written anew if it is little."""
        node = self.node
        schemas = tuple(source.schema for source in node.inputs)
        waiting = Settling(node.keys, tuple(node.key_schema.types), schemas, SHARDS, self.cells, self.cell)
        for side, tuples in made:
            ripe, rest = self._split(side, tuples, _BEGINNING, watermark)
            waiting.hold(0, side, ripe, node.inputs[side].time, _BEGINNING)
            if rest.num_rows:
                self.store.append(tuple_piece(rest, node.inputs[side].time), side)
        touched = [c for c in self.store.directory.chunks if c.group == NO_GROUP and c.low < watermark]
        fetched = [self.store.fetch(chunk) for chunk in touched]
        for chunk, tuples in zip(touched, self.instances.spread(chunks.decode, fetched), strict=True):
            time = node.inputs[chunk.side].time
            ripe, rest = self._split(chunk.side, tuples, before, watermark)
            waiting.hold(0, chunk.side, ripe, time, _BEGINNING)
            if 2 * rest.num_rows <= chunk.rows:
                self.store.drop(chunk)
                if rest.num_rows:
                    self.store.append(tuple_piece(rest, time), chunk.side)
            else:
                self._shorten(chunk, int(times_of(rest.slice(0, 1), time)[0]))
        return waiting.settle(0, before, watermark, False)

    def _split(self, side: int, tuples: pa.Table, before: int, watermark: int) -> tuple[pa.Table, pa.Table]:
        """Of tuples in the order of time, those from one watermark to the next, and those after."""
        times = times_of(tuples, self.node.inputs[side].time)
        start, stop = np.searchsorted(times, [before, watermark]).tolist()
        return tuples.slice(start, stop - start), tuples.slice(stop)

    def _shorten(self, chunk: Chunk, low: int) -> None:
        """Note that the tuples of a chunk before a time are done with."""
        listed = self.store.directory.chunks
        listed[listed.index(chunk)] = replace(chunk, low=low)

    def _joined(self, pieces: list[Piece], time: str) -> list[Piece]:
        """Many small pieces as one: a call to the state store costs the same whatever it carries."""
        if len(pieces) <= MOST_PIECES:
            return pieces
        tables = self.instances.spread(chunks.decode, [piece.data for piece in pieces])
        return [tuple_piece(pa.concat_tables(tables), time)]

    def _windows(self, loaded: Sequence[Chunk]) -> TupleWindows | ColumnWindows:
        """The windows of some groups of shards."""
        node = self.node
        windows: TupleWindows | ColumnWindows
        if isinstance(node.form, TupleForm):
            windows = TupleWindows.fresh(node, node.form, SHARDS)
        else:
            windows = ColumnWindows.fresh(node, node.form, SHARDS)
        for chunk in loaded:
            self.codec.decode(chunks.decode(self.store.fetch(chunk)), windows)
        return windows

    def _results(self, windows: TupleWindows | ColumnWindows, settled: Settled, ended: bool) -> Iterator[pa.Table]:
        """Let the instances handle what is settled, each for the shards it owns."""
        prepared: Any = windows.prepare(settled)
        number = self.instances.number
        owners = self.instances.owners(np.arange(SHARDS))
        owned = [None] if number == 1 else [owners == instance for instance in range(number)]
        yield from self.instances.run([windows.process(settled, prepared, mine, ended) for mine in owned])

    def _keep(self, windows: TupleWindows | ColumnWindows, groups: set[int], loaded: Sequence[Chunk]) -> None:
        """Write the groups that were touched anew."""
        for chunk in loaded:
            self.store.drop(chunk)
        for group in sorted(groups):
            first = group * SHARDS_PER_GROUP
            table = self.codec.encode(windows, range(first, first + SHARDS_PER_GROUP))
            if table.num_rows:
                low, high = self._ends(table)
                self.store.append(Piece(low, high, table.num_rows, chunks.encode(table)), group=group)

    def _ends(self, table: pa.Table) -> tuple[int, int]:
        """When the first and the last of some windows end; those that never do end with the input."""
        window = self.node.window
        if window is None:
            return END_US, END_US
        numbers = pc.min_max(table.column(NUMBER)).as_py()
        return window.end(numbers["min"]), window.end(numbers["max"])
