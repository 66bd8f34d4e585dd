"""From the Arrow rows of one side to the arrays that loops over pairs read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.operators.columns import as_numpy, canonical_floats, mix, valid_mask
from tidegate.operators.joins.columns import Columns
from tidegate.operators.joins.text_codes import TextCodes
from tidegate.query.nodes import Join
from tidegate.query.predicates.bounds import Band
from tidegate.query.predicates.tree import Column, Side, Tree, columns_of
from tidegate.query.schema import contiguous

Array = np.ndarray[Any, Any]

_KINDS = {"int": np.int64, "float": np.float64, "bool": np.bool_, "text": np.int64}


@dataclass(frozen=True, slots=True)
class Arrived:
    """The tuples of one side of a segment that can still join: their rows, their arrays, the largest number of each column.

    ``late`` counts those that could join nothing.
    """

    rows: pa.RecordBatch
    columns: Columns
    sizes: dict[Column, int]
    late: int


@dataclass(frozen=True, slots=True)
class ReadSide:
    """How the tuples of one side of a join are read."""

    node: Join
    side: Side
    tree: Tree
    band: Band | None
    codes: TextCodes
    columns: tuple[Column, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", columns_of(self.tree, self.side))

    @property
    def time(self) -> str:
        return self.node.inputs[self.side].time

    @property
    def kept(self) -> list[str]:
        """The columns that results or an interpreted predicate need."""
        return list(self.node.inputs[self.side].schema.names)

    def read(self, rows: pa.Table, least_time: int | None) -> Arrived:
        """Read tuples; those before ``least_time`` are late. They come out in order of time, or sorted for bisection."""
        times = self._times(rows)
        late = 0
        if least_time is not None and len(times) and times.min() < least_time:
            keep = times >= least_time
            late = int(len(times) - keep.sum())
            rows, times = rows.filter(pa.array(keep)), times[keep]
        for names in self.node.on:
            column = rows.column(names[self.side])
            if column.null_count:
                keep = valid_mask(contiguous(column))
                rows, times = rows.filter(pa.array(keep)), times[keep]
        if len(times) > 1 and (np.diff(times) < 0).any():
            order = np.argsort(times, kind="stable")
            rows, times = rows.take(pa.array(order)), times[order]
        batch = _one_batch(rows.select(self.kept))
        keys = tuple(self._key(contiguous(rows.column(names[self.side]))) for names in self.node.on)
        values, valid, sizes = [], [], {}
        nulls = False
        for column in self.columns:
            array = contiguous(rows.column(column.name))
            values.append(self._values(array, column))
            valid.append(valid_mask(array))
            nulls = nulls or array.null_count > 0
            if column.kind == "int" and len(array):
                sizes[column] = max(abs(int(values[-1].min())), abs(int(values[-1].max())))
        made = Columns(times, np.arange(len(times)), keys, tuple(values), tuple(valid), nulls, None)
        return Arrived(batch, self._sorted(made), sizes, late)

    def _sorted(self, columns: Columns) -> Columns:
        """By the hash of the keys or by the band's column, if there are keys or a band."""
        order = self._order(columns)
        if order is None:
            return columns
        by = np.argsort(order, kind="stable")
        return Columns(
            columns.times, columns.arrivals, columns.keys, columns.values, columns.valid, columns.has_nulls, order
        ).take(by)

    def _order(self, columns: Columns) -> Array | None:
        if self.node.on:
            return hash_of(columns.keys)
        if self.band is None:
            return None
        column = self.band.left if self.side == 0 else self.band.right
        values = columns.values[self.columns.index(column)]
        return values if self.band.is_whole else values.astype(np.float64)

    def _times(self, rows: pa.Table) -> Array:
        column = contiguous(rows.column(self.time))
        if column.null_count:
            raise DataError(
                f"step '{self.node.name}': {column.null_count} tuples have no event time in '{self.time}'; filter them out "
                "before the join"
            )
        return np.array(column.view(pa.int64()))

    def _key(self, array: pa.Array) -> Array:
        """A number for each key, equal where the keys are: NaN is equal to itself, and −0.0 to 0.0."""
        if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            return self.codes.encode(array)
        if pa.types.is_floating(array.type):
            return as_numpy(canonical_floats(array), pa.float64()).astype(np.float64).view(np.int64)
        return _whole_numbers(array)

    def _values(self, array: pa.Array, column: Column) -> Array:
        match column.kind:
            case "text":
                return self.codes.encode(array)
            case "int":
                return _whole_numbers(array)
            case "float":
                return as_numpy(array, pa.float64()).astype(np.float64)
            case _:
                return np.array(array.fill_null(False) if array.null_count else array, np.bool_)


def hash_of(keys: tuple[Array, ...]) -> Array:
    """What tuples with keys are sorted by: the only key itself, or a hash of several."""
    if len(keys) == 1:
        return keys[0]
    made = mix(keys[0].view(np.uint64))
    for key in keys[1:]:
        with np.errstate(over="ignore"):
            made = mix(made * np.uint64(31) + key.view(np.uint64))
    return made.view(np.int64)


def dtype_of(column: Column) -> Any:
    """The type of the array that holds a column."""
    return _KINDS[column.kind]


def _whole_numbers(array: pa.Array) -> Array:
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    return as_numpy(array).astype(np.int64)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
