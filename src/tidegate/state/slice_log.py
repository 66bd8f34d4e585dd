"""The slices of a cell as a log of chunks: a batch appends, nothing is rewritten, and small chunks are merged in time.

A batch costs a write per run of slices it touches, whatever is stored already. Where more than `MOST_CHUNKS` overlap the
small ones are merged; a chunk is rewritten only together with others that amount to at least half of it, so each pane is
rewritten a logarithmic number of times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidegate.errors import InternalError
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


@dataclass(frozen=True, slots=True)
class Piece:
    """An encoded pane table of the slices ``low`` to ``high``, ready to be a chunk."""

    low: int
    high: int
    rows: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of a pane table that begins with the slice ``low``."""

    data: bytes | pa.Buffer
    low: int


@dataclass(slots=True)
class SliceLog:
    """Reads and writes the chunks that a directory lists; ``merge`` makes new pieces of several pane tables.

    ``decode`` makes pane tables of their bytes. It and ``merge`` may work on threads; the state store is called on the
    caller's alone.
    """

    directory: Directory
    blobs: Blobs
    cache: ChunkCache | None
    merge: Callable[[Sequence[pa.Table]], Iterable[Piece]]
    decode: Callable[[Sequence[Encoded]], list[pa.Table]]
    ids: random.Random = field(default_factory=random.SystemRandom)

    def append(self, piece: Piece) -> None:
        """Add a piece."""
        chunk = Chunk(self.ids.getrandbits(62), piece.low, piece.high, piece.rows, len(piece.data))
        self.blobs.put(chunk.id, piece.data)
        if self.cache is not None and chunk.bytes >= LEAST_CACHED_BYTES:
            self.cache.put(chunk.id, piece.data)
        self.directory.chunks.append(chunk)

    def overlapping(self, low: int, high: int) -> list[Chunk]:
        """The chunks that may hold panes of some slices."""
        return [chunk for chunk in self.directory.chunks if chunk.low <= high and chunk.high >= low]

    def drop(self, chunk: Chunk) -> None:
        """Forget a chunk."""
        self.directory.chunks.remove(chunk)
        self.blobs.remove(chunk.id)
        if self.cache is not None and chunk.bytes >= LEAST_CACHED_BYTES:
            self.cache.drop(chunk.id)

    def compact(self, low: int, high: int) -> None:
        """Merge the small chunks over some slices if there are too many."""
        held = self.overlapping(low, high)
        if len(held) <= MOST_CHUNKS:
            return
        held.sort(key=lambda chunk: chunk.rows)
        taken, rows = 1, held[0].rows
        while taken < len(held) and (taken < MOST_CHUNKS // 2 or held[taken].rows <= 2 * rows):
            rows += held[taken].rows
            taken += 1
        merged = list(self.merge(self.read(held[:taken])))
        for chunk in held[:taken]:
            self.drop(chunk)
        for piece in merged:
            self.append(piece)

    def read(self, chunks: Sequence[Chunk]) -> list[pa.Table]:
        """The pane tables of some chunks."""
        return self.decode([Encoded(self._fetch(chunk), chunk.low) for chunk in chunks])

    def _fetch(self, chunk: Chunk) -> bytes | pa.Buffer:
        """The bytes of a chunk."""
        cache = self.cache if chunk.bytes >= LEAST_CACHED_BYTES else None
        data = cache.get(chunk.id) if cache is not None else None
        if data is not None:
            return data
        stored = self.blobs.get(chunk.id)
        if stored is None:
            raise InternalError(f"chunk {chunk.id:x} is listed in the directory and missing from the state store")
        if cache is not None:
            cache.put(chunk.id, stored)
        return stored
