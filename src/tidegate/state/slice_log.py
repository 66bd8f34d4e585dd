"""The slices of a cell as a log of chunks: a batch appends, nothing is rewritten, and small chunks are merged in time.

A batch costs one write per slice it touches, whatever is stored already. Past `MOST_CHUNKS` in a slice the small ones
are merged; a chunk is rewritten only together with others that amount to at least half of it, so each pane is rewritten
a logarithmic number of times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.state import chunks
from tidegate.state.cache import ChunkCache
from tidegate.state.directory import Chunk, Directory

MOST_CHUNKS = 8
# Below this a chunk is fetched as fast as its file is mapped.
LEAST_CACHED_BYTES = 32_768


class Blobs(Protocol):
    """Durable bytes by id: a state store. Calls are costly, so they are few."""

    def get(self, blob_id: int) -> bytes | None:
        """The bytes, or None."""
        ...

    def put(self, blob_id: int, data: bytes) -> None:
        """Write bytes."""
        ...

    def remove(self, blob_id: int) -> None:
        """Forget bytes."""
        ...


@dataclass(slots=True)
class SliceLog:
    """Reads and writes the chunks that a directory lists; ``merge`` makes one pane table of several."""

    directory: Directory
    blobs: Blobs
    cache: ChunkCache | None
    merge: Callable[[Sequence[pa.Table]], pa.Table]
    ids: random.Random = field(default_factory=random.SystemRandom)

    def append(self, slice_id: int, data: bytes, rows: int) -> None:
        """Add an encoded chunk to a slice."""
        chunk = Chunk(self.ids.getrandbits(62), rows, len(data))
        self.blobs.put(chunk.id, data)
        if self.cache is not None and chunk.bytes >= LEAST_CACHED_BYTES:
            self.cache.put(chunk.id, data)
        self.directory.slices.setdefault(slice_id, []).append(chunk)

    def read(self, slice_id: int) -> list[pa.Table]:
        """All chunks of a slice, decoded; in no order."""
        return [self._table(chunk) for chunk in self.directory.slices.get(slice_id, ())]

    def drop(self, slice_id: int) -> None:
        """Forget a slice."""
        for chunk in self.directory.slices.pop(slice_id, ()):
            self._forget(chunk)

    def compact(self, slice_id: int) -> None:
        """Merge the small chunks of a slice if it has too many."""
        held = self.directory.slices.get(slice_id, [])
        if len(held) <= MOST_CHUNKS:
            return
        held = sorted(held, key=lambda chunk: chunk.rows)
        taken, rows = 1, held[0].rows
        while taken < len(held) and (taken < MOST_CHUNKS // 2 or held[taken].rows <= 2 * rows):
            rows += held[taken].rows
            taken += 1
        merged = self.merge([self._table(chunk) for chunk in held[:taken]])
        for chunk in held[:taken]:
            self._forget(chunk)
        self.directory.slices[slice_id] = held[taken:]
        self.append(slice_id, chunks.encode(merged), merged.num_rows)

    def _table(self, chunk: Chunk) -> pa.Table:
        cache = self.cache if chunk.bytes >= LEAST_CACHED_BYTES else None
        data = cache.get(chunk.id) if cache is not None else None
        if data is None:
            stored = self.blobs.get(chunk.id)
            if stored is None:
                raise InternalError(f"chunk {chunk.id:x} is listed in the directory and missing from the state store")
            if cache is not None:
                cache.put(chunk.id, stored)
            data = stored
        return chunks.decode(data)

    def _forget(self, chunk: Chunk) -> None:
        self.blobs.remove(chunk.id)
        if self.cache is not None and chunk.bytes >= LEAST_CACHED_BYTES:
            self.cache.drop(chunk.id)
