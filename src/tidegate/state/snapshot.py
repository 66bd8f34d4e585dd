"""State as chunks of a snapshot: what is asked of it at a marker, and which of its chunks are written already."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import pyarrow as pa

from tidegate.state.chunks import NO_GROUP, Chunk, ChunkStore, Data, Piece, decode, encode
from tidegate.state.epochs import ShardSet


@dataclass(slots=True)
class SnapshotStore:
    """The chunks of one step in one snapshot. What is never changed is written once and listed again as long as it lives."""

    chunks: ChunkStore
    known: WeakKeyDictionary[Any, Chunk] = field(default_factory=WeakKeyDictionary)

    def put(self, part: Any, piece: Callable[[], Piece], side: int = 0, group: int = NO_GROUP) -> None:
        """List an immutable part of the state, encoded by ``piece`` if no snapshot has it yet."""
        chunk = self.known.get(part)
        if chunk is None:
            self.known[part] = self.chunks.append(piece(), side, group)
        else:
            self.chunks.directory.chunks.append(chunk)

    def put_table(self, table: pa.Table, side: int = 0, group: int = NO_GROUP, shards: ShardSet | None = None) -> None:
        """Write a table of this snapshot alone, of which the keys in some ``shards`` of the step count if not all do."""
        if table.num_rows:
            self.chunks.append(Piece(0, 0, table.num_rows, encode(table)), side, group, shards)

    def parts(self, build: Callable[[Data, Chunk], Any], group: int = NO_GROUP) -> list[Any]:
        """The parts of the snapshot in a group, each built of its chunk and known from now on; built on all cores."""
        listed = [chunk for chunk in self.chunks.directory.chunks if chunk.group == group]
        parts = self.chunks.read(listed, lambda data, chunk: (build(data, chunk), 0), _on_all_cores, keep=False)
        self.known.update(zip(parts, listed, strict=True))
        return parts

    def tables(self, group: int = NO_GROUP) -> list[tuple[Chunk, pa.Table]]:
        """The tables of the snapshot in a group, each with the chunk that says its side and shards."""
        listed = [chunk for chunk in self.chunks.directory.chunks if chunk.group == group]
        found = self.chunks.read(listed, lambda data, _: (decode(data), 0), _on_all_cores, keep=False)
        return list(zip(listed, found, strict=True))


class StateCut(Protocol):
    """State as it was at a marker: values that nothing changes any more. Encoded later, on another thread."""

    def write(self, store: SnapshotStore) -> None:
        """Put all of it into a snapshot."""
        ...


def _on_all_cores(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(items))) as pool:
        return list(pool.map(work, items))
