"""The chunks that a directory lists, in a state store and a local cache: written once, read, and forgotten."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidegate.errors import CheckpointError
from tidegate.state.cache import ChunkCache
from tidegate.state.directory import NO_GROUP, NO_NUMBER, Chunk, Directory, chunk_id

LOG = logging.getLogger(__name__)
# Below this a chunk is fetched as fast as its file is mapped.
LEAST_CACHED_BYTES = 32_768
_DAMAGED = "the checkpoint is damaged; restore it from a copy, or start from a new one"


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


@dataclass(frozen=True, slots=True)
class Piece:
    """An encoded table, ready to be a chunk: of the slices ``low`` to ``high``, or of tuples with such event times."""

    low: int
    high: int
    rows: int
    data: bytes


@dataclass(slots=True)
class ChunkStore:
    """Reads and writes chunks for the cell of a directory; called on one thread, the one that owns the state store.

    Bytes from either place are compared with what the directory says of them. A file of the cache that differs costs a
    warning and a read from the state store; ``damaged`` counts those.
    """

    directory: Directory
    blobs: Blobs
    cache: ChunkCache | None
    damaged: int = 0

    def append(self, piece: Piece, side: int = 0, group: int = NO_GROUP) -> Chunk:
        """Add a piece."""
        number = self.directory.written
        chunk = Chunk(
            chunk_id(number, piece.data), piece.low, piece.high, piece.rows, len(piece.data), side, group, number
        )
        self.blobs.put(chunk.id, piece.data)
        if self.cache is not None and chunk.bytes >= LEAST_CACHED_BYTES:
            self.cache.put(chunk.id, piece.data)
        self.directory.chunks.append(chunk)
        self.directory.written += 1
        return chunk

    def drop(self, chunk: Chunk) -> None:
        """Forget a chunk."""
        self.directory.chunks.remove(chunk)
        self.blobs.remove(chunk.id)
        if self.cache is not None and chunk.bytes >= LEAST_CACHED_BYTES:
            self.cache.drop(chunk.id)

    def fetch(self, chunk: Chunk) -> bytes | pa.Buffer:
        """The bytes of a chunk."""
        cache = self.cache if chunk.bytes >= LEAST_CACHED_BYTES and chunk.number != NO_NUMBER else None
        cached = cache.get(chunk.id) if cache is not None else None
        if cached is not None and chunk.is_made_of(cached):
            return cached
        if cache is not None and cached is not None:
            self.damaged += 1
            LOG.warning(
                "%s is not the chunk that was put there (%d bytes, %d expected): the chunk is read from the state store",
                cache.file(chunk.id),
                len(cached),
                chunk.bytes,
            )
        stored = self.blobs.get(chunk.id)
        if stored is None:
            raise CheckpointError(
                f"chunk {chunk.id:x} is listed in its cell's directory and missing from the state store: {_DAMAGED}"
            )
        if not chunk.is_made_of(stored):
            raise CheckpointError(
                f"the state store holds {len(stored)} bytes as chunk {chunk.id:x} that are not the {chunk.bytes} that were "
                f"written: {_DAMAGED}"
            )
        if cache is not None:
            cache.put(chunk.id, stored)
        return stored
