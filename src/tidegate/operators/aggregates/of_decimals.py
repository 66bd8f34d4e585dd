"""Sums and means of decimals.

The digits of a decimal are a whole number of 128 bits. It is added as four parts of 32 bits: none can overflow in any order
of addition, so whether a sum fits is decided once, on the result, and never depends on how tuples were batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.operators.aggregates import taken
from tidegate.operators.aggregates.of_columns import AdditiveLogic
from tidegate.operators.columns import Array, as_numpy, decimal_words, valid_mask
from tidegate.query.aggregates import DECIMAL_STATE, decimal_overflow
from tidegate.query.schema import contiguous

_LOW = 0xFFFFFFFF
_LIMIT_HIGH, _LIMIT_LOW = divmod(10**38, 2**64)


@dataclass(frozen=True, slots=True)
class DecimalSum(AdditiveLogic):
    """State: the four parts of the sum, the lowest first, and how many values were not null."""

    column: str
    mean: bool
    scale: int
    fields: tuple[pa.Field, ...] = DECIMAL_STATE

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import add_up

        values = taken(contiguous(rows.column(self.column)), take)
        valid = valid_mask(values)
        parts = np.ascontiguousarray(decimal_words(values)).view(np.uint32).astype(np.int64)
        parts[:, 3] = parts[:, 3].astype(np.int32)  # the sign
        parts[~valid] = 0
        sums = [add_up(np.ascontiguousarray(part), groups, size) for part in (*parts.T, valid.astype(np.int64))]
        return [pa.array(each) for each in sums]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        *parts, present = (as_numpy(state) for state in states)
        carry = np.zeros(len(present), np.int64)
        carried = []
        for part in parts:
            carried.append(part + carry)
            carry = carried[-1] >> 32
        first, second, third, top = carried
        digits = [first & _LOW, second & _LOW, third & _LOW, top]
        if self.mean:
            return pa.array(self._means(digits, present), mask=present == 0)
        self._check(digits)
        words = np.stack([each & _LOW for each in digits], axis=1).astype(np.uint32)
        validity = np.packbits(present > 0, bitorder="little")
        return pa.Array.from_buffers(
            pa.decimal128(38, self.scale), len(present), [pa.py_buffer(validity), pa.py_buffer(words)]
        )

    def _means(self, digits: Sequence[Array], present: Array) -> Array:
        """Floats of the size of each number, since those of its parts would lose what a negative one has in common."""
        negative = digits[3] < 0
        size = negative.astype(np.float64)  # −x is the complement of x, and one more
        for place, part in enumerate(digits):
            flipped = (~part & _LOW) if place < 3 else ~part
            size += np.where(negative, flipped, part).astype(np.float64) * 2.0 ** (32 * place)
        means: Array = np.where(negative, -size, size) / np.maximum(present, 1) / 10.0**self.scale
        return means

    def _check(self, digits: Sequence[Array]) -> None:
        """Refuse sums of more than 38 digits."""
        low = (digits[1].astype(np.uint64) << np.uint64(32)) | digits[0].astype(np.uint64)
        top = digits[3]
        fits = (top >= -(2**31)) & (top < 2**31)
        high = (np.where(fits, top, 0) << 32) | digits[2]
        above = (high > _LIMIT_HIGH) | ((high == _LIMIT_HIGH) & (low >= np.uint64(_LIMIT_LOW)))
        below = (high < ~_LIMIT_HIGH) | ((high == ~_LIMIT_HIGH) & (low <= np.uint64(2**64 - _LIMIT_LOW)))
        if (~fits | above | below).any():
            raise decimal_overflow(self.column)
