"""The rows of one side, found by the number with which they arrived, to make results of them.

Columns of a fixed width are kept in arrays, from which a few rows are taken in some microseconds, whatever the number of
segments they came in. The others stay in Arrow batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import valid_mask
from tidegate.operators.joins.array_log import ArrayLog
from tidegate.operators.joins.row_batches import RowBatches

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows that somebody sees: they stay as they are while others are added and dropped.

    Row ``n`` is entry ``n - base`` of ``arrays``: the values of each column in ``plain``, then where they are valid. From
    ``last_null`` on, all are. ``batches`` has the other columns.
    """

    schema: pa.Schema
    plain: tuple[str, ...]
    arrays: tuple[Array, ...]
    base: int
    last_null: int
    batches: RowBatches

    def take(self, numbers: Array) -> pa.Table:
        """The rows with some numbers, in their order."""
        if len(numbers) == 0:
            return self.schema.empty_table()
        places = numbers - self.base
        nulls = bool(numbers.min() <= self.last_null)
        made: dict[str, Any] = {}
        for at, name in enumerate(self.plain):
            valid = self.arrays[len(self.plain) + at][places] if nulls else None
            made[name] = _as_arrow(self.arrays[at][places], self.schema.field(name).type, valid)
        if self.batches.schema.names:
            others = self.batches.take(numbers)
            made.update(zip(others.column_names, others.columns, strict=True))
        return pa.table([made[name] for name in self.schema.names], schema=self.schema)


class RowStore:
    """All rows of one side that are still needed. Changing it is for one thread at a time."""

    __slots__ = ("_last_null", "_log", "_plain", "batches", "schema")

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        plain = [field for field in schema if _is_plain(field.type)]
        self._plain = tuple(field.name for field in plain)
        self._log = ArrayLog([_dtype(field.type) for field in plain] + [np.bool_] * len(plain))
        self._last_null = -1
        self.batches = RowBatches(pa.schema([field for field in schema if not _is_plain(field.type)]))

    @property
    def nbytes(self) -> int:
        return self._log.nbytes + self.batches.nbytes

    def seen(self) -> Rows:
        """All rows as they are now."""
        return Rows(self.schema, self._plain, self._log.arrays, self._log.base, self._last_null, self.batches)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows behind the others."""
        columns = [rows.column(name) for name in self._plain]
        if self.batches.schema.names:
            self.batches = self.batches.with_rows(self._log.tail, rows.select(self.batches.schema.names))
        self._log.add([*map(_as_array, columns), *map(valid_mask, columns)], rows.num_rows)
        if any(column.null_count for column in columns):
            self._last_null = self._log.tail - 1

    def forget(self, least: int) -> None:
        """Rows with lower numbers are not needed any more."""
        self._log.forget(least)
        self.batches = self.batches.from_number(least)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) and kind.bit_width <= 64)


def _dtype(kind: pa.DataType) -> Any:
    """The type of the array that holds a column of a fixed width."""
    if pa.types.is_boolean(kind):
        return np.bool_
    if pa.types.is_floating(kind) or pa.types.is_unsigned_integer(kind):
        return kind.to_pandas_dtype()
    return np.dtype(f"int{kind.bit_width}")


def _as_array(column: pa.Array) -> Array:
    """The values of a column; what stands where it is null is not defined."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return np.asarray(column.fill_null(False))
    dtype = np.dtype(_dtype(kind))
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def _as_arrow(values: Array, kind: pa.DataType, valid: Array | None) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array(values, kind, mask=None if valid is None else ~valid)
    bits = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])
