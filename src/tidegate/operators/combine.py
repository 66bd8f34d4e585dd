"""Combining before the exchange: a task's tuples become packed pane tables, one per cell and run of slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import as_numpy
from tidegate.operators.delta import Delta
from tidegate.operators.windowed_aggregate import SHARDS, SLICE, Panes
from tidegate.query.schema import contiguous

ROWS_AT_ONCE = 65_536
THREADS = 2
MOST_PANES = 4_000_000


@dataclass(slots=True)
class Combiner:
    """Takes the tuples of one task and gives deltas for ``cells`` cells, each of which owns 256 shards.

    ``prepare`` makes tuples of what arrives. It and the lifting run on `THREADS` threads: most of it releases the GIL,
    and a task often has a second core to itself. Memory is bounded: no more tables wait than there are threads, and past
    `MOST_PANES` the panes made so far are sent on and combining starts anew.
    """

    panes: Panes
    cells: int
    prepare: Callable[[pa.Table], pa.Table]
    _made: list[pa.Table] = field(default_factory=list)
    _tuples: dict[int, int] = field(default_factory=dict)

    def deltas(self, tables: Iterable[pa.Table]) -> Iterator[tuple[int, Delta]]:
        """Deltas, each with the number of its cell."""
        for panes, tuples in self._lifted(regrouped(tables, ROWS_AT_ONCE)):
            self._made.append(panes)
            for slice_id, count in tuples.items():
                self._tuples[slice_id] = self._tuples.get(slice_id, 0) + count
            if sum(made.num_rows for made in self._made) > MOST_PANES:
                yield from self._flush()
        yield from self._flush()

    def _lifted(self, tables: Iterator[pa.Table]) -> Iterator[tuple[pa.Table, dict[int, int]]]:
        """The pane tables, in the order of their tuples; a task with one table starts no thread."""
        first, second = next(tables, None), next(tables, None)
        if first is None:
            return
        if second is None:
            yield self._lift(first)
            return
        with ThreadPoolExecutor(THREADS, "tidegate-lift") as pool:
            waiting = deque(pool.submit(self._lift, table) for table in (first, second))
            for table in tables:
                yield waiting.popleft().result()
                waiting.append(pool.submit(self._lift, table))
            while waiting:
                yield waiting.popleft().result()

    def _lift(self, table: pa.Table) -> tuple[pa.Table, dict[int, int]]:
        return self.panes.lift(self.prepare(table))

    def _flush(self) -> Iterator[tuple[int, Delta]]:
        if not self._made:
            return
        merged = self.panes.merge(self._made)
        tuples, self._made, self._tuples = self._tuples, [], {}
        # One cell is told how many tuples there were, so that a late one is counted once.
        yield 0, Delta(None, tuple(tuples.items()))
        cells = self.panes.shards(merged, self.cells * SHARDS) // SHARDS
        order = np.lexsort((as_numpy(contiguous(merged.column(SLICE)), pa.int64()), cells))
        counts = np.bincount(cells, minlength=self.cells).tolist()
        ordered, start = merged.take(pa.array(order)), 0
        for cell, count in enumerate(counts):
            for piece in self.panes.pieces(ordered.slice(start, count)):
                yield cell, Delta(piece)
            start += count


def regrouped(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of at least ``rows`` rows each, but for the last."""
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += table.num_rows
        if count >= rows:
            yield pa.concat_tables(held).combine_chunks()
            held, count = [], 0
    if count:
        yield pa.concat_tables(held).combine_chunks()
