"""Combining before the exchange: a task's tuples become one packed pane table per slice and cell."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tidegate.operators.cell import Delta
from tidegate.operators.columns import numbers, whole
from tidegate.operators.windowed_aggregate import SLICE, Panes
from tidegate.state import chunks

SHARDS_PER_CELL = 256
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
        shards = self.panes.shards(merged, self.cells * SHARDS_PER_CELL)
        slices = numbers(whole(merged.column(SLICE)), pa.int64())
        order = np.lexsort((shards, slices))
        slices, cells = slices[order], shards[order] // SHARDS_PER_CELL
        edges = np.flatnonzero((np.diff(slices) != 0) | (np.diff(cells) != 0)) + 1
        bounds = [0, *edges.tolist(), len(order)] if len(order) else []
        sorted_panes = merged.drop_columns([SLICE]).take(pa.array(order))
        for start, stop in pairwise(bounds):
            slice_id, cell = int(slices[start]), int(cells[start])
            part = self.panes.compacted(sorted_panes.slice(start, stop - start))
            told = tuples.pop(slice_id, 0) if cell == 0 else 0
            yield cell, Delta(slice_id, told, part.num_rows, chunks.encode(part))
        for slice_id, count in tuples.items():
            yield 0, Delta(slice_id, count, 0, None)


def regrouped(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of at least ``rows`` rows each, but for the last."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(part.num_rows for part in held) >= rows:
            yield pa.concat_tables(held).combine_chunks()
            held = []
    if held and any(part.num_rows for part in held):
        yield pa.concat_tables(held).combine_chunks()
