"""The tuples that a join holds of one side: their rows, by the number with which they arrived, and their arrays.

Columns of a fixed width are kept in arrays, from which a few rows are taken in some microseconds, whatever the number of
segments they came in. The others stay in Arrow batches. Nothing that was added changes: a snapshot stays as it is while
others are added and dropped, so readers need no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, valid_mask
from tidegate.operators.joins.encode_side import EncodedSide, SideEncoder, TupleArrays

LEAST_ROWS = 4_096
MOST_ROWS = 65_536
MOST_IN_RUN = 1 << 20
FEW_ROWS = 65_536
MANY_OF = 16
FAN_IN = 4
"""So many are merged: every piece is inspected for every segment, which soon costs more than to copy it now and then."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedRun:
    """Tuples grouped by key, or sorted by their ``order``: those in a range are found by bisection (as in an LSM tree).

    ``number`` is the latest segment they come from, and their times lie in ``low`` to ``high``.
    """

    number: int
    tuples: TupleArrays
    low: int
    high: int

    @property
    def largest(self) -> int:
        """How many tuples the most frequent key has."""
        return 0 if self.tuples.groups is None else self.tuples.groups.largest

    @staticmethod
    def of(number: int, tuples: TupleArrays) -> SortedRun:
        return SortedRun(number, tuples, int(tuples.times.min()), int(tuples.times.max()))

    @staticmethod
    def merged(runs: Sequence[SortedRun], least_time: int) -> SortedRun | None:
        """One run of several, without tuples before ``least_time``; None if nothing is left."""
        parts = [run.tuples for run in runs]
        arrays = [np.concatenate(each) for each in zip(*(part.arrays for part in parts), strict=True)]
        order = np.concatenate([part.order for part in parts if part.order is not None])
        joined = TupleArrays.of(arrays, len(parts[0].keys), any(part.has_nulls for part in parts))
        if min(run.low for run in runs) < least_time:
            needed = np.flatnonzero(joined.times >= least_time)
            joined, order = joined.take(needed), order[needed]
        if len(joined) == 0:
            return None
        if parts[0].groups is None:
            joined = joined.sorted_by(order)
        else:
            # Within a group, parts that follow one another in time leave tuples in its order.
            if any(one.high > other.low for one, other in pairwise(runs)):
                by_time = np.argsort(joined.times, kind="stable")
                joined, order = joined.take(by_time), order[by_time]
            joined = joined.grouped_by(order)
        return SortedRun.of(max(run.number for run in runs), joined)


def merge_candidates(sizes: Sequence[int], most: int) -> range | None:
    """The last stretch of at least `FAN_IN` neighbours of about the same size, of at most ``most`` together.

    Merging them leaves few pieces, and copies each row a few times only.

    >>> merge_candidates([4000, 500, 10, 9, 11, 10], 10_000)
    range(2, 6)
    """
    stop = len(sizes)
    groups = [list(group) for _, group in groupby(sizes, key=lambda size: size.bit_length() // 2)]
    for group in reversed(groups):
        start = stop - len(group)
        taken = total = 0
        while taken < len(group) and total + group[taken] <= most:
            total += group[taken]
            taken += 1
        if taken >= FAN_IN:
            return range(start, start + taken)
        stop = start
    return None


class ArrayLog:
    """Several arrays of equal length, whose entries are numbered as they are added. Writing is for one thread at a time.

    ``base`` is the number of the entry that the arrays begin with, ``head`` that of the first that is still needed, and
    ``tail`` the number that the next entry gets. When the arrays are full, what is still needed moves to new ones; the
    old ones live as long as a snapshot refers to them.
    """

    __slots__ = ("arrays", "base", "head", "tail")

    def __init__(self, dtypes: Sequence[Any]) -> None:
        self.arrays = tuple(np.empty(0, dtype) for dtype in dtypes)
        self.base = self.head = self.tail = 0

    def add(self, columns: Sequence[Array | None], rows: int) -> None:
        """Add so many entries behind the others; None for marks that are not set."""
        start = self.tail - self.base
        if start + rows > len(self.arrays[0]):
            live, held = slice(self.head - self.base, start), self.tail - self.head
            size = max(LEAST_ROWS, 2 * (held + rows))
            # Marks are zero until they are written, and most never are: such memory is not touched.
            fresh = tuple(
                (np.zeros if array.dtype == np.bool_ else np.empty)(size, array.dtype) for array in self.arrays
            )
            for longer, array in zip(fresh, self.arrays, strict=True):
                longer[:held] = array[live]
            self.arrays, self.base, start = fresh, self.head, held
        for array, more in zip(self.arrays, columns, strict=True):
            if more is not None:
                array[start : start + rows] = more
        self.tail += rows

    def forget(self, least: int) -> None:
        """Entries with lower numbers are not needed any more; when none is, the arrays go too."""
        self.head = max(self.head, min(least, self.tail))
        if self.head == self.tail:
            self.arrays, self.base = tuple(np.empty(0, array.dtype) for array in self.arrays), self.head


@dataclass(frozen=True, slots=True, eq=False)
class RowBatches:
    """Rows in batches, each after the one before; a value: adding or dropping rows gives another one."""

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

    def merged(self) -> tuple[int, int, pa.RecordBatch] | None:
        """Neighbours worth merging as one batch, and the rows with which the first and the last of them begin."""
        chosen = merge_candidates([batch.num_rows for batch in self.batches], MOST_ROWS)
        if chosen is None:
            return None
        batch = pa.concat_batches(self.batches[chosen.start : chosen.stop])
        return self.firsts[chosen[0]], self.firsts[chosen[-1]], batch

    def replaced(self, first: int, last: int, merged: pa.RecordBatch) -> RowBatches:
        """With one batch in the place of those that begin with rows ``first`` to ``last``, if all are there."""
        if first not in self.firsts or last not in self.firsts:
            return self
        start, stop = self.firsts.index(first), self.firsts.index(last) + 1
        batches = (*self.batches[:start], merged, *self.batches[stop:])
        return RowBatches(self.schema, batches, (*self.firsts[: start + 1], *self.firsts[stop:]))

    def take(self, numbers: Array, missing: Array | None = None, names: list[str] | None = None) -> pa.Table:
        """The rows with some numbers, in their order, nulls for those that are missing; all columns of them, or some."""
        wanted = self.schema.names if names is None else names
        if len(numbers) == 0 or not wanted:
            return self.schema.empty_table().select(wanted)
        ends = np.array([numbers.min(), numbers.max()])
        first, last = (np.searchsorted(self.firsts, ends, "right") - 1).tolist()
        spanned = [batch.select(wanted) for batch in self.batches[first : last + 1]]
        if sum(batch.num_rows for batch in spanned) <= max(FEW_ROWS, MANY_OF * len(numbers)):
            # Arrow copies texts of all of them to take some: less work than to take from each, unless they are many more.
            places = pa.array(numbers - self.firsts[first], mask=missing)
            return pa.Table.from_batches(spanned).take(places).combine_chunks()
        place = np.searchsorted(self.firsts[first : last + 1], numbers, "right") - 1
        used, order = np.unique(place), np.argsort(place, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        edges = [*np.searchsorted(place[order], used, "left").tolist(), len(order)]
        parts = [
            spanned[which].take(pa.array(numbers[order[start:stop]] - self.firsts[first + which]))
            for which, start, stop in zip(used.tolist(), edges[:-1], edges[1:], strict=True)
        ]
        return pa.Table.from_batches([pa.concat_batches(parts).take(pa.array(back, mask=missing))])


@dataclass(frozen=True, slots=True, eq=False)
class SideSnapshot:
    """One side as it was at some moment.

    Row ``n`` is entry ``n - base`` of ``arrays``: the values of each column in ``plain``, then marks where they are null,
    then the arrays of the tuples unless they are in ``runs``. Behind ``last_null`` none is. ``batches`` has the other
    columns. ``in_order`` says whether the tuples are in the order of time.
    """

    schema: pa.Schema
    plain: tuple[str, ...]
    arrays: tuple[Array, ...]
    base: int
    head: int
    batches: RowBatches
    runs: Sequence[SortedRun]
    last_null: int
    has_nulls: bool
    in_order: bool

    def times(self, column: str, stop: int) -> tuple[Array, Array]:
        """The numbers of all tuples before ``stop``, and their event times, which are in a column."""
        numbers = np.arange(self.head, max(stop, self.head))
        return numbers, self.arrays[self.plain.index(column)][numbers - self.base]

    def rows(self, numbers: Array) -> pa.Table:
        """The rows with some numbers, in their order; nulls for a number below 0."""
        if len(numbers) == 0:
            return self.schema.empty_table()
        missing = numbers < 0
        if missing.all():
            return pa.table([pa.nulls(len(numbers), each.type) for each in self.schema], schema=self.schema)
        nobody = bool(missing.any())
        if nobody:
            # Some row that is there stands for those that are not, which are null.
            numbers = np.where(missing, numbers.max(), numbers)
        places = numbers - self.base
        nulls = bool(numbers.min() <= self.last_null)
        columns: dict[str, Any] = {}
        for at, name in enumerate(self.plain):
            null = missing if nobody else None
            if nulls:
                marked = self.arrays[len(self.plain) + at][places]
                null = marked if null is None else marked | null
            columns[name] = _as_arrow(self.arrays[at][places], self.schema.field(name).type, null)
        if self.batches.schema.names:
            others = self.batches.take(numbers, missing if nobody else None)
            columns.update(zip(others.column_names, others.columns, strict=True))
        return pa.table([columns[name] for name in self.schema.names], schema=self.schema)

    def tuples(self, stop: int) -> TupleArrays:
        """The tuples that arrived before the number ``stop``, where they are not kept in runs."""
        held = slice(self.head - self.base, max(stop, self.head) - self.base)
        return TupleArrays.of([array[held] for array in self.arrays[2 * len(self.plain) :]], 0, self.has_nulls)


@dataclass(slots=True)
class JoinSide:
    """All tuples of one side that are still needed: rows, and their arrays in the order of arrival or in sorted runs.

    Changed under the join's lock. Tuples are numbered as they arrive.
    """

    encoder: SideEncoder
    sorted: bool = field(init=False)
    log: ArrayLog = field(init=False)
    batches: RowBatches = field(init=False)
    runs: list[SortedRun] = field(default_factory=list)
    _plain: tuple[str, ...] = field(init=False)
    _latest: deque[tuple[int, int]] = field(default_factory=deque)
    _in_order_from: int = 0
    _last_null: int = -1
    _last_null_read: int = -1

    def __post_init__(self) -> None:
        self.sorted = bool(self.encoder.node.on) or self.encoder.band is not None
        plain = [field for field in self.encoder.schema if _is_plain(field.type)]
        self._plain = tuple(field.name for field in plain)
        dtypes = [*(_dtype(field.type) for field in plain), *([np.bool_] * len(plain))]
        self.log = ArrayLog([*dtypes, *(() if self.sorted else self.encoder.dtypes)])
        self.batches = RowBatches(pa.schema([field for field in self.encoder.schema if field not in plain]))

    @property
    def held(self) -> int:
        """How many tuples are held."""
        return self.log.tail - self.log.head

    @property
    def nbytes(self) -> int:
        arrays = sum(array.nbytes for array in self.log.arrays)
        return arrays + self.batches.nbytes + sum(run.tuples.nbytes for run in tuple(self.runs))

    def snapshot(self) -> SideSnapshot:
        """All tuples as they are now."""
        return SideSnapshot(
            self.encoder.schema,
            self._plain,
            self.log.arrays,
            self.log.base,
            self.log.head,
            self.batches,
            self.runs,
            self._last_null,
            self._last_null_read >= self.log.head,
            self._in_order_from <= self.log.head,
        )

    def add(self, number: int, arrived: EncodedSide) -> None:
        """Number the tuples of a segment and let them be seen."""
        rows, first = arrived.rows, self.log.tail
        if rows.num_rows == 0:
            return
        tuples, times = arrived.tuples.arrived_from(first), arrived.times
        if self._latest and times[0] < self._latest[-1][1]:
            self._in_order_from = first
        if self.batches.schema.names:
            self.batches = self.batches.with_rows(first, rows.select(self.batches.schema.names))
        if self.sorted and len(tuples):
            self.runs = [*self.runs, SortedRun.of(number, tuples)]
        plain, arrays = [rows.column(name) for name in self._plain], () if self.sorted else tuples.arrays
        null = [~valid_mask(column) if column.null_count else None for column in plain]
        self.log.add([*map(_as_array, plain), *null, *arrays], rows.num_rows)
        if any(column.null_count for column in plain):
            self._last_null = self.log.tail - 1
        if tuples.has_nulls:
            self._last_null_read = self.log.tail - 1
        self._latest.append((self.log.tail, int(times[-1])))

    def forget(self, least_time: int) -> None:
        """Drop tuples before a time, as far as they arrived before all others."""
        while self._latest and self._latest[0][1] < least_time:
            self.log.forget(self._latest.popleft()[0])
        self.batches = self.batches.from_number(self.log.head)
        if any(run.high < least_time for run in self.runs):
            self.runs = [run for run in self.runs if run.high >= least_time]

    def codes_held(self) -> Iterator[Array]:
        """All numbers that may be codes of texts."""
        for tuples in [run.tuples for run in self.runs] if self.sorted else [self.snapshot().tuples(self.log.tail)]:
            yield from self.encoder.codes_in(tuples)

    def mergeable_runs(self, settled: int, span: int) -> list[SortedRun]:
        """Neighbours worth merging, of segments up to ``settled``, that together take no more than ``span`` of time.

        The span bounds what is held in vain: a run is dropped as a whole, when its last tuple is not needed any more.
        """
        ready = [run for run in self.runs if run.number <= settled]
        chosen = merge_candidates([len(run.tuples) for run in ready], MOST_IN_RUN)
        found = [ready[place] for place in chosen or ()]
        if not found or max(run.high for run in found) - min(run.low for run in found) > span:
            return []
        return found

    def replace_runs(self, gone: list[SortedRun], merged: SortedRun | None) -> None:
        """Put a merged run in the place of its parts, if all are still held."""
        places = {id(run): place for place, run in enumerate(self.runs)}
        if all(id(run) in places for run in gone):
            first = places[id(gone[0])]
            kept = [] if merged is None else [merged]
            self.runs = [*self.runs[:first], *kept, *self.runs[first + len(gone) :]]


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) and kind.bit_width <= 64)


def _dtype(kind: pa.DataType) -> Any:
    """The type of the array that holds a column of a fixed width."""
    if pa.types.is_boolean(kind):
        return np.bool_
    return np.dtype(f"{'float' if pa.types.is_floating(kind) else 'int'}{kind.bit_width}")


def _as_array(column: pa.Array) -> Array:
    """The values of a column; those of nulls are not defined."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return np.asarray(column.fill_null(False))
    dtype = np.dtype(_dtype(kind))
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def _as_arrow(values: Array, kind: pa.DataType, null: Array | None) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array(values, kind, mask=null)
    bits = None if null is None or not null.any() else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])
