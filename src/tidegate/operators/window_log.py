"""The windows of an O+ in a cell as a log of chunks: a batch reads what it touches and appends what it changed.

A chunk holds windows as they were after some batch; the newest row of a window counts. A row whose window has ended by
the watermark counts no more, so nothing has to be written when windows expire. Python values are made of the windows
that a batch touches, and of no others; the rest is looked through as columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.columns import as_numpy
from tidegate.operators.held_windows import ALIVE, NUMBER, Held, HeldCodec
from tidegate.operators.instances import Instances
from tidegate.state import chunks
from tidegate.state.chunk_store import ChunkStore, Piece
from tidegate.state.directory import NO_GROUP, Chunk
from tidegate.watermark import END, Watermark

Array = np.ndarray[Any, Any]
ALL = 0
"""The group of shards that chunks of windows are of: all of the cell's."""
MOST_CHUNKS = 8


@dataclass(frozen=True, slots=True)
class WindowLog:
    """Reads and writes the windows of a cell; chunks of windows are listed from old to new."""

    codec: HeldCodec
    store: ChunkStore
    instances: Instances

    @property
    def listed(self) -> list[Chunk]:
        """The chunks of windows."""
        return [chunk for chunk in self.store.directory.chunks if chunk.group != NO_GROUP]

    def load(self, touched: Array, watermark: Watermark) -> tuple[list[Held], Array]:
        """The windows of keys with some hashes, and those that end by a watermark; and the hash of each one's key."""
        found = []
        wanted = [chunk for chunk in self.listed if len(touched) or (self._ends and chunk.low <= watermark)]
        for chunk, table in zip(wanted, self._read(wanted), strict=True):
            found.append(table.filter(pa.array(self._counts(table, touched, watermark))))
            self._wake(chunk, table, watermark)
        latest = self.codec.latest(found)
        alive = latest.filter(latest.column(ALIVE))
        return self.codec.decode(alive), self.codec.hashes(alive)

    def keep(self, changed: Sequence[Held], gone: Iterable[Held], watermark: Watermark) -> None:
        """Append windows that have changed, and those that are gone though they have not ended by the watermark."""
        noted = [one for one in gone if self._end(one.number) > watermark]
        if changed or noted:
            self._append(self.codec.encode(changed, noted))
        for chunk in self.listed:
            if chunk.high <= watermark:
                self.store.drop(chunk)
        self._compact(watermark)

    def _counts(self, table: pa.Table, touched: Array, watermark: Watermark) -> Array:
        """Which rows are asked for, of windows that had not ended before."""
        made: Array = np.isin(self.codec.hashes(table), touched)
        window, reached = self.codec.node.window, self.store.directory.watermark
        if window is not None:
            places = as_numpy(table.column(NUMBER))
            made |= places < window.first_open(watermark)
            made &= places >= window.first_open(reached)
        return made

    def _wake(self, chunk: Chunk, table: pa.Table, watermark: Watermark) -> None:
        """Note when a chunk that was read has something to do again: when the next of its windows ends."""
        window = self.codec.node.window
        if window is None or chunk.low > watermark:
            return
        places = as_numpy(table.column(NUMBER))
        after = places[places >= window.first_open(watermark)]
        listed = self.store.directory.chunks
        listed[listed.index(chunk)] = replace(chunk, low=window.end(int(after.min())) if len(after) else chunk.high)

    def _compact(self, watermark: Watermark) -> None:
        """Merge the newest chunks if there are many, and older ones with them as long as they are not much larger."""
        listed = self.listed
        if len(listed) <= MOST_CHUNKS:
            return
        start, rows = len(listed) - 1, listed[-1].rows
        while start > 0 and (len(listed) - start < MOST_CHUNKS // 2 or listed[start - 1].rows <= 2 * rows):
            start -= 1
            rows += listed[start].rows
        merged = self.codec.latest(self._read(listed[start:]))
        window = self.codec.node.window
        if window is not None:
            merged = merged.filter(pc.greater_equal(merged.column(NUMBER), window.first_open(watermark)))
        if start == 0:
            merged = merged.filter(merged.column(ALIVE))
        for chunk in listed[start:]:
            self.store.drop(chunk)
        if merged.num_rows:
            self._append(merged)

    def _append(self, table: pa.Table) -> None:
        ends = pc.min_max(table.column(NUMBER)).as_py()
        piece = Piece(self._end(ends["min"]), self._end(ends["max"]), table.num_rows, chunks.encode(table))
        self.store.append(piece, group=ALL)

    def _read(self, listed: Sequence[Chunk]) -> list[pa.Table]:
        return self.instances.spread(chunks.decode, [self.store.fetch(chunk) for chunk in listed])

    @property
    def _ends(self) -> bool:
        return self.codec.node.window is not None

    def _end(self, number: int) -> int:
        """When a window ends; one that never does ends with the input."""
        window = self.codec.node.window
        return END if window is None else window.end(number)
