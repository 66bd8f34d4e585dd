"""What crosses an exchange to cells: panes, combined before it, or whole tuples, routed to the cells of their keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array, as_numpy, in_time_order, is_first
from tidegate.operators.keys import key_hashes, key_sets, shards_of
from tidegate.operators.windowed_aggregate import SLICE, Panes
from tidegate.query.keys import Keys
from tidegate.state import chunks
from tidegate.state.chunks import Piece

ROWS_AT_ONCE = 65_536
THREADS = 2
MOST_PANES = 4_000_000
PRIMARY = "__tg_primary"
"""The column that marks the tuples which are counted in this cell; without it all are."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What one task has for a cell: panes, or tuples of the input ``side``, or numbers of tuples.

    ``tuples`` says how many fell in which slices, or at which event times. Each tuple is reported to exactly one cell, so
    that a late one is counted once, however many keys it has: by such numbers, or by the mark in its row. ``derived`` says
    that a stateful step emitted the tuples, as the watermark moved: they come before the watermark and are never late.
    """

    piece: Piece | None
    tuples: tuple[tuple[int, int], ...] = ()
    derived: bool = False
    side: int = 0


@dataclass(frozen=True, slots=True)
class Routing:
    """Entry ``i``: tuple ``rows[i]`` goes to the cell ``cells[i]``; if ``primary[i]``, that cell counts it if it is late.

    A tuple goes to a cell once, and exactly one of its cells is its primary cell. One without any entry goes nowhere; the
    caller has it counted.
    """

    rows: Array
    cells: Array
    primary: Array


class Router(Protocol):
    """Routes the tuples of one input to cells; a value that is shipped to workers."""

    def __call__(self, tuples: pa.Table) -> Routing: ...


def cells_of(hashes: Array, cells: int) -> Array:
    """The cell of each key by its hash; the shard inside the cell is the hash modulo `SHARDS`."""
    return shards_of(hashes, cells * SHARDS) // SHARDS


@dataclass(frozen=True, slots=True)
class RouteByKeys:
    """A tuple goes to every cell that owns a shard of one of its keys; its primary cell is that of its first key."""

    keys: Keys
    cells: int

    def __call__(self, tuples: pa.Table) -> Routing:
        found = key_sets(self.keys, tuples)
        cells = cells_of(key_hashes(found.columns), self.cells) if len(found) else np.empty(0, np.int64)
        if found.rows is None:
            return Routing(np.arange(len(cells)), cells, np.ones(len(cells), np.bool_))
        rows = found.rows
        # Entries are in the order of rows; of those that share row and cell the first stays.
        _, first = np.unique(rows * self.cells + cells, return_index=True)
        kept = np.sort(first)
        return Routing(rows[kept], cells[kept], is_first(rows)[kept])


def with_primary(tuples: pa.Table, primary: Array) -> pa.Table:
    """Tuples with the mark."""
    return tuples.append_column(PRIMARY, pa.array(primary))


def tuple_piece(tuples: pa.Table, time: str) -> Piece:
    """Encode tuples, at least one, in the order of their time."""
    tuples, times = in_time_order(tuples.combine_chunks(), times_of(tuples, time))
    if PRIMARY in tuples.column_names and pc.all(tuples.column(PRIMARY)).as_py():
        tuples = tuples.drop_columns([PRIMARY])
    return Piece(int(times[0]), int(times[-1]), len(times), chunks.encode(tuples))


def times_of(tuples: pa.Table, time: str) -> Array:
    """The event times of tuples in microseconds."""
    return as_numpy(tuples.column(time))


def timely_tuples(delta: Delta, time: str, least: int) -> tuple[pa.Table | None, int]:
    """The tuples of a delta with times from ``least`` on, without marks, and how many of the others count here."""
    late = sum(count for at, count in delta.tuples if at < least)
    if delta.piece is None:
        return None, late
    tuples = chunks.decode(delta.piece.data)
    cut = 0 if delta.piece.low >= least else int(np.searchsorted(times_of(tuples, time), least))
    if PRIMARY not in tuples.column_names:
        return tuples.slice(cut), late + cut
    late += pc.sum(tuples.column(PRIMARY).slice(0, cut)).as_py() or 0
    return tuples.drop_columns([PRIMARY]).slice(cut), late


@dataclass(slots=True)
class Combiner:
    """Takes the tuples of one task and gives deltas for ``cells`` cells, each of which owns 256 shards.

    ``prepare`` applies the steps before the aggregate. It and the lifting run on `THREADS` threads: most of it releases
    the GIL, and a task often has a second core to itself. Memory is bounded: no more tables wait than there are threads,
    and past `MOST_PANES` the panes so far are sent on and combining starts anew.
    """

    panes: Panes
    cells: int
    prepare: Callable[[pa.Table], pa.Table]
    _lifted_panes: list[pa.Table] = field(default_factory=list)
    _tuples: dict[int, int] = field(default_factory=dict)

    def deltas(self, tables: Iterable[pa.Table]) -> Iterator[tuple[int, Delta]]:
        """Deltas, each with the number of its cell."""
        for panes, tuples in self._lifted(regrouped(tables, ROWS_AT_ONCE)):
            self._lifted_panes.append(panes)
            for slice_id, count in tuples.items():
                self._tuples[slice_id] = self._tuples.get(slice_id, 0) + count
            if sum(panes.num_rows for panes in self._lifted_panes) > MOST_PANES:
                yield from self._flush()
        yield from self._flush()

    def _lifted(self, tables: Iterator[pa.Table]) -> Iterator[tuple[pa.Table, dict[int, int]]]:
        """The pane tables, in the order of their tuples, and how many tuples fell in each slice."""
        waiting: deque[Future[tuple[pa.Table, dict[int, int]]]] = deque()
        with ThreadPoolExecutor(THREADS, "tidegate-lift") as pool:
            for table in tables:
                if len(waiting) == THREADS:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(lambda each: self.panes.lift(self.prepare(each)), table))
            while waiting:
                yield waiting.popleft().result()

    def _flush(self) -> Iterator[tuple[int, Delta]]:
        if not self._lifted_panes:
            return
        merged = self.panes.merge(self._lifted_panes)
        tuples, self._lifted_panes, self._tuples = self._tuples, [], {}
        # One cell gets the numbers of tuples, so that a late one is counted once.
        yield 0, Delta(None, tuple(tuples.items()))
        cells = self.panes.shards(merged, self.cells * SHARDS) // SHARDS
        order = np.lexsort((as_numpy(merged.column(SLICE)), cells))
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
