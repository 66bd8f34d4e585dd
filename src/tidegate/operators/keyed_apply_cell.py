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

from tidegate.operators.column_windows import ColumnWindows
from tidegate.operators.exchange import Delta, times_of, tuple_piece, without_late
from tidegate.operators.held_windows import Held, HeldCodec
from tidegate.operators.instances import SHARDS, Instances
from tidegate.operators.keys import key_hashes
from tidegate.operators.settling import Settled, Settling
from tidegate.operators.tuple_windows import TupleWindows
from tidegate.operators.window_log import WindowLog
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import KeyedApply
from tidegate.state import chunks
from tidegate.state.chunk_store import ChunkStore, Piece
from tidegate.state.directory import NO_GROUP, Chunk
from tidegate.watermark import START, Watermark, has_ended

Array = np.ndarray[Any, Any]
MOST_PIECES = 4
_NONE = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class KeyedApplyLogic:
    """How the cells of an O+ work; there are ``cells`` of them."""

    node: KeyedApply
    cells: int

    @property
    def schema(self) -> pa.Schema:
        return self.node.schema

    @property
    def time(self) -> str:
        return self.node.time

    def open(self, cell: int, store: ChunkStore, instances: Instances) -> KeyedApplyCell:
        return KeyedApplyCell(
            self.node, self.cells, cell, store, instances, WindowLog(HeldCodec(self.node), store, instances)
        )


@dataclass(slots=True)
class KeyedApplyCell:
    """The working side of a directory."""

    node: KeyedApply
    cells: int
    cell: int
    store: ChunkStore
    instances: Instances
    log: WindowLog
    late: int = 0

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Take a batch at a watermark; yields results. ``late`` counts late tuples."""
        made = [(delta.side, chunks.decode(delta.piece.data)) for delta in deltas if delta.derived and delta.piece]
        yield from self._advance(watermark, made)
        for side, source in enumerate(self.node.inputs):
            kept = []
            for delta in deltas:
                if delta.side == side and not delta.derived:
                    piece, late = without_late(delta, source.time, watermark)
                    self.late += late
                    kept += [piece] if piece is not None else []
            for piece in self._joined(kept, source.time):
                self.store.append(piece, side)

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Handle what is settled and hand out the windows that expire."""
        yield from self._advance(watermark, [])

    def next_due(self) -> int | None:
        """When the first tuple that waits is settled, or the first window ends."""
        held = self.store.directory.chunks
        return min((chunk.low + 1 if chunk.group == NO_GROUP else chunk.low for chunk in held), default=None)

    def _advance(self, watermark: Watermark, made: Sequence[tuple[int, pa.Table]]) -> Iterator[pa.Table]:
        directory = self.store.directory
        before = directory.watermark
        if watermark <= before and not made:
            return
        settled = self._settle(before, watermark, made)
        touched = [key_hashes(entries.columns) for entries in settled.entries if len(entries.rows)]
        loaded, hashes = self.log.load(np.unique(np.concatenate(touched)) if touched else _NONE, watermark)
        if touched or loaded:
            windows = self._windows()
            for shard, held in zip((hashes % np.uint64(SHARDS)).tolist(), loaded, strict=True):
                windows.put_back(shard, held)
            yield from self._results(windows, settled, has_ended(watermark))
            self._keep(windows, loaded, watermark)
        else:
            self.log.keep((), (), watermark)
        directory.watermark = watermark

    def _settle(self, before: Watermark, watermark: Watermark, made: Sequence[tuple[int, pa.Table]]) -> Settled:
        """Take out what is settled by a watermark; what waits on stays, or is written anew if it is little."""
        node = self.node
        schemas = tuple(source.schema for source in node.inputs)
        waiting = Settling(node.keys, tuple(node.key_schema.types), schemas, SHARDS, self.cells, self.cell)
        for side, tuples in made:
            ripe, rest = self._split(side, tuples, START, watermark)
            waiting.hold(0, side, ripe, node.inputs[side].time, START)
            if rest.num_rows:
                self.store.append(tuple_piece(rest, node.inputs[side].time), side)
        touched = [c for c in self.store.directory.chunks if c.group == NO_GROUP and c.low < watermark]
        fetched = [self.store.fetch(chunk) for chunk in touched]
        for chunk, tuples in zip(touched, self.instances.spread(chunks.decode, fetched), strict=True):
            time = node.inputs[chunk.side].time
            ripe, rest = self._split(chunk.side, tuples, before, watermark)
            waiting.hold(0, chunk.side, ripe, time, START)
            if 2 * rest.num_rows <= chunk.rows:
                self.store.drop(chunk)
                if rest.num_rows:
                    self.store.append(tuple_piece(rest, time), chunk.side)
            else:
                self._shorten(chunk, int(times_of(rest.slice(0, 1), time)[0]))
        return waiting.settle(0, before, watermark)

    def _split(self, side: int, tuples: pa.Table, before: Watermark, watermark: Watermark) -> tuple[pa.Table, pa.Table]:
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

    def _windows(self) -> TupleWindows | ColumnWindows:
        node = self.node
        if isinstance(node.form, TupleForm):
            return TupleWindows.fresh(node, node.form, SHARDS)
        return ColumnWindows.fresh(node, node.form, SHARDS)

    def _results(self, windows: TupleWindows | ColumnWindows, settled: Settled, ended: bool) -> Iterator[pa.Table]:
        """Let the instances handle what is settled, each for the shards it owns."""
        prepared: Any = windows.prepare(settled)
        shares = self.instances.shares(SHARDS)
        yield from self.instances.run([windows.process(settled, prepared, owned, ended) for owned in shares])

    def _keep(self, windows: TupleWindows | ColumnWindows, loaded: Sequence[Held], watermark: Watermark) -> None:
        """Write the windows that are not as they were."""
        before = {(held.number, windows.identity(held.key)): held for held in loaded}
        changed = []
        for shard in range(SHARDS):
            for held in windows.held(shard):
                was = before.pop((held.number, windows.identity(held.key)), None)
                # A function that changes a state makes a new one.
                if was is None or was.states is not held.states or was.last != held.last:
                    changed.append(held)
        self.log.keep(changed, before.values(), watermark)
