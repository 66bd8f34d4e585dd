"""Arrow rows in batches, found by the number with which they arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.joins.adjacent import merge_candidates

Array = np.ndarray[Any, Any]

MOST_ROWS = 65_536
FEW_ROWS = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class RowBatches:
    """Rows in batches, each after the one before; a value: what adds or drops rows makes another one."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...] = ()
    firsts: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self.batches)

    def with_rows(self, first: int, rows: pa.RecordBatch) -> RowBatches:
        """The rows and more of them, of which the first has the number ``first``."""
        return RowBatches(self.schema, (*self.batches, rows), (*self.firsts, first)) if rows.num_rows else self

    def from_number(self, least: int) -> RowBatches:
        """Without the batches whose rows all have lower numbers."""
        gone = 0
        while gone < len(self.firsts) and self.firsts[gone] + self.batches[gone].num_rows <= least:
            gone += 1
        return RowBatches(self.schema, self.batches[gone:], self.firsts[gone:]) if gone else self

    def mergeable(self) -> range | None:
        """Which batches are worth merging."""
        return merge_candidates([batch.num_rows for batch in self.batches], MOST_ROWS)

    def merged(self, chosen: range) -> pa.RecordBatch:
        """Some neighbours as one batch."""
        return pa.concat_batches([self.batches[place] for place in chosen])

    def replaced(self, first: int, last: int, merged: pa.RecordBatch) -> RowBatches:
        """With one batch in the place of those that begin with rows ``first`` to ``last``, if all are there."""
        if first not in self.firsts or last not in self.firsts:
            return self
        start, stop = self.firsts.index(first), self.firsts.index(last) + 1
        return RowBatches(
            self.schema,
            (*self.batches[:start], merged, *self.batches[stop:]),
            (*self.firsts[: start + 1], *self.firsts[stop:]),
        )

    def take(self, numbers: Array) -> pa.Table:
        """The rows with some numbers, in their order."""
        if len(numbers) == 0:
            return self.schema.empty_table()
        place = np.searchsorted(np.array(self.firsts), numbers, "right") - 1
        used = np.unique(place)
        if len(used) == 1:
            rows = self.batches[used[0]].take(pa.array(numbers - self.firsts[used[0]]))
            return pa.Table.from_batches([rows])
        first, last = int(used[0]), int(used[-1])
        spanned = self.batches[first : last + 1]
        if sum(batch.num_rows for batch in spanned) <= FEW_ROWS:
            # Arrow copies all of them to take some: less work than to take from each, as long as they are few.
            return pa.Table.from_batches(spanned).take(pa.array(numbers - self.firsts[first])).combine_chunks()
        order = np.argsort(place, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        edges = [*np.searchsorted(place[order], used, "left").tolist(), len(order)]
        parts = [
            self.batches[which].take(pa.array(numbers[order[start:stop]] - self.firsts[which]))
            for which, start, stop in zip(used.tolist(), edges[:-1], edges[1:], strict=True)
        ]
        return pa.Table.from_batches([pa.concat_batches(parts).take(pa.array(back))])
