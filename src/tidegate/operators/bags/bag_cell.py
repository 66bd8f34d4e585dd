"""A cell of an Aggregate of bags: its tuples of all inputs as chunks in a store, and the bags of windows that expire.

A batch appends a chunk for each input that has tuples which are needed past the watermark. Where windows expire, the tuples
that lie in them are read. Nothing has to be written for a window that is gone: its tuples count for no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.operators.bags.emit_bags import emitter_of
from tidegate.operators.bags.held_bags import HeldBags
from tidegate.operators.cells import Instances, worth_merging
from tidegate.operators.exchange import Delta, times_of, tuple_piece
from tidegate.query.nodes import BagAggregate
from tidegate.state import chunks
from tidegate.state.chunks import Chunk, ChunkStore, Data
from tidegate.state.epochs import ShardSet
from tidegate.watermark import Watermark

MOST_CHUNKS = 8
"""So many chunks of an input are merged."""


@dataclass(slots=True)
class BagCell:
    """The working side of a directory."""

    node: BagAggregate
    cell: int
    store: ChunkStore
    instances: Instances

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Add tuples and emit the windows that expire; see `OpenCell`."""
        directory = self.store.directory
        before = directory.watermark
        held = HeldBags(self.node)
        results: Iterator[pa.Table] = iter(())
        if held.expires(before, watermark):
            for delta in deltas:
                held.hold(0, delta.side, delta.rows, self.store.owned)
            end = self.node.window.end(self.node.window.first_open(watermark) - 1)
            needed = [chunk for chunk in directory.chunks if chunk.low < end]
            for chunk, tuples in zip(needed, self.read(needed), strict=True):
                held.hold(0, chunk.side, tuples, chunk.shards)
            results = self._emitted(held, before, watermark)
        directory.watermark = max(before, watermark)
        self._keep(deltas)
        return results

    def _emitted(self, held: HeldBags, before: Watermark, watermark: Watermark) -> Iterator[pa.Table]:
        expiring = held.expire(0, before, watermark)
        if expiring is None:
            return iter(())
        shares = self.instances.shares(expiring.size)
        keyed = held.keyed(expiring, len(shares) > 1)
        emit = emitter_of(self.node)
        return self.instances.run([emit(held, expiring, keyed, owned) for owned in shares])

    def _keep(self, deltas: Sequence[Delta]) -> None:
        """Append what is still needed of a batch, drop what is not, and merge many small chunks."""
        least = self.node.window.least_arriving(self.store.directory.watermark)
        for chunk in [chunk for chunk in self.store.directory.chunks if chunk.high < least]:
            self.store.drop(chunk)
        for side, _ in enumerate(self.node.inputs):
            self.append([delta.rows for delta in deltas if delta.side == side], side, least, self.store.owned)
            # Tuples that are held for other shards, since those came from another cell, stay apart.
            for shards in {chunk.shards: None for chunk in self.store.directory.chunks if chunk.side == side}:
                listed = [c for c in self.store.directory.chunks if (c.side, c.shards) == (side, shards)]
                if len(listed) > MOST_CHUNKS:
                    chosen = worth_merging(listed[::-1], 0, MOST_CHUNKS)
                    merged = self.read(chosen)
                    for chunk in chosen:
                        self.store.drop(chunk)
                    self.append(merged, side, least, shards)

    def append(self, tables: Sequence[pa.Table], side: int, least: int, shards: ShardSet) -> None:
        """Write the tuples from a time on, if there are any."""
        time = self.node.inputs[side].time
        kept = [table.filter(pa.array(times_of(table, time) >= least)) for table in tables if table.num_rows]
        joined = pa.concat_tables(kept) if kept else None
        if joined is not None and joined.num_rows:
            self.store.append(tuple_piece(joined, time), side, shards=shards)

    def read(self, listed: Sequence[Chunk]) -> list[pa.Table]:
        """The tuples of each chunk."""
        return self.store.read(listed, _decoded, self.instances.spread)


def _decoded(data: Data, chunk: Chunk) -> tuple[pa.Table, int]:
    table = chunks.decode(data)
    return table, table.nbytes
