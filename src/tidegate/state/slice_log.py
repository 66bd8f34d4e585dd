"""The slices of a cell as a log of chunks: a batch appends, nothing is rewritten, and small chunks are merged in time.

A batch costs a write per run of slices it touches, whatever is stored already. Where more than `MOST_CHUNKS` overlap the
small ones are merged; a chunk is rewritten only together with others that amount to at least half of it, so each pane is
rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.state.chunk_store import ChunkStore, Piece
from tidegate.state.directory import Chunk, Directory

MOST_CHUNKS = 8


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

    store: ChunkStore
    merge: Callable[[Sequence[pa.Table]], Iterable[Piece]]
    decode: Callable[[Sequence[Encoded]], list[pa.Table]]

    @property
    def directory(self) -> Directory:
        """The directory that lists the chunks."""
        return self.store.directory

    def append(self, piece: Piece) -> None:
        """Add a piece."""
        self.store.append(piece)

    def overlapping(self, low: int, high: int) -> list[Chunk]:
        """The chunks that may hold panes of some slices."""
        return [chunk for chunk in self.directory.chunks if chunk.low <= high and chunk.high >= low]

    def drop(self, chunk: Chunk) -> None:
        """Forget a chunk."""
        self.store.drop(chunk)

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
        return self.decode([Encoded(self.store.fetch(chunk), chunk.low) for chunk in chunks])
