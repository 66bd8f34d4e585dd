"""Sums and means.

Integers are added as two halves of 32 bits: neither can overflow in any order of addition, so whether a sum fits int64
is decided once, on the result, and never depends on how tuples were batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DataError
from tidegate.operators.aggregates.logic import Array, taken
from tidegate.operators.columns import as_numpy, valid_mask
from tidegate.query.schema import contiguous


@dataclass(frozen=True, slots=True)
class IntegerSum:
    """State: the high and low halves of the sum, and how many values were not null."""

    column: str
    mean: bool
    fields: tuple[pa.Field, ...] = tuple(pa.field(name, pa.int64()) for name in ("high", "low", "present"))

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import sum_halves

        values = taken(contiguous(rows.column(self.column)), take)
        halves = sum_halves(as_numpy(values), valid_mask(values), groups, size)
        return [pa.array(half) for half in halves]

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import sum_integers

        return [pa.array(sum_integers(as_numpy(taken(s, take)), groups, size)) for s in states]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        high, low, present = (as_numpy(state) for state in states)
        absent = pa.array(present == 0)
        upper = high + (low >> 32)
        if self.mean:
            total = upper.astype(np.float64) * 2.0**32 + (low & 0xFFFFFFFF)
            fits = (upper >= -(2**31)) & (upper < 2**31)
            exact = (np.where(fits, upper, 0) << 32) | (low & 0xFFFFFFFF)
            mean = np.where(fits, exact.astype(np.float64), total) / np.maximum(present, 1)
            return pc.if_else(absent, pa.scalar(None, pa.float64()), pa.array(mean))
        if ((upper < -(2**31)) | (upper >= 2**31)).any():
            raise DataError(
                f"a sum of '{self.column}' does not fit int64; cast the column to float64 to allow rounding instead"
            )
        return pc.if_else(absent, pa.scalar(None, pa.int64()), pa.array((upper << 32) | (low & 0xFFFFFFFF)))


@dataclass(frozen=True, slots=True)
class FloatSum:
    """State: the sum, and how many values were not null."""

    column: str
    mean: bool
    fields: tuple[pa.Field, ...] = (pa.field("total", pa.float64()), pa.field("present", pa.int64()))

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import sum_floats

        values = taken(contiguous(rows.column(self.column)), take)
        sums = sum_floats(as_numpy(values, pa.float64()), valid_mask(values), groups, size)
        return [pa.array(part) for part in sums]

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import sum_floats, sum_integers

        totals = as_numpy(taken(states[0], take), pa.float64())
        present = as_numpy(taken(states[1], take))
        total, _ = sum_floats(totals, np.ones(len(totals), np.bool_), groups, size)
        return [pa.array(total), pa.array(sum_integers(present, groups, size))]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        total, present = as_numpy(states[0], pa.float64()), as_numpy(states[1])
        value = total / np.maximum(present, 1) if self.mean else total
        return pc.if_else(pa.array(present == 0), pa.scalar(None, pa.float64()), pa.array(value))
