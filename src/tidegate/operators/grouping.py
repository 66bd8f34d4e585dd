"""From key columns to dense slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import as_numpy, hashes, identity_codes, mix

Array = np.ndarray[Any, Any]

_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class Grouped:
    """Slots: ``groups[i]`` is that of contribution ``i``; per slot its code, ascending, and its first contribution."""

    groups: Array
    ids: Array
    first: Array

    @property
    def size(self) -> int:
        return len(self.ids)


def key_codes(columns: Sequence[pa.Array]) -> tuple[Array, int]:
    """A code per row, equal where all key columns are, and a bound above every code."""
    codes, bound = _column_codes(columns[0])
    for column in columns[1:]:
        others, size = _column_codes(column)
        if bound * size >= _LARGEST:
            codes, bound = _densify(codes, bound)
        codes, bound = codes.astype(np.int64) * size + others, bound * size
    return _densify(codes, bound) if bound > 4 * len(codes) + 65_536 else (codes, bound)


def _column_codes(column: pa.Array) -> tuple[Array, int]:
    """A code per row of one key column. Whole numbers that lie close together are their own codes: no table is needed."""
    if pa.types.is_signed_integer(column.type) and column.null_count == 0 and len(column):
        values = as_numpy(column, pa.int64())
        low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span <= 2 * len(values) + 4_096:
            return values - low, span
    return identity_codes(column)


def group(codes: Array, bound: int) -> Grouped:
    """Dense slots for codes below a bound, in the order of the codes."""
    if bound > 8 * len(codes) + 1_048_576:
        ids, first, groups = np.unique(codes, return_index=True, return_inverse=True)
        return Grouped(groups, ids, first)
    from tidegate.operators.kernels.loops import dense_slots

    return Grouped(*dense_slots(codes, bound))


def distinct(values: Array) -> tuple[Array, Array]:
    """The distinct values of an int64 array, ascending, and for each element which of them it is.

    >>> distinct(np.array([7, 4, 7]))
    (array([4, 7]), array([1, 0, 1]))
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > len(values) + 1_024:
        seen, places = np.unique(values, return_inverse=True)
        return seen, places.astype(np.int64, copy=False)
    # Slices lie close together: counting is cheaper than sorting.
    places = values - low
    present = np.zeros(high - low + 1, np.int64)
    present[places] = 1
    seen = np.flatnonzero(present)
    return seen + low, (np.cumsum(present) - 1)[places]


def key_hashes(columns: Sequence[pa.Array]) -> Array:
    """A stable hash of each (composite) key."""
    made = hashes(columns[0])
    for column in columns[1:]:
        with np.errstate(over="ignore"):
            made = mix(made * np.uint64(31) + hashes(column))
    return made


def compact(column: pa.Array) -> pa.Array:
    """A dictionary column without the values that no row uses; other columns as they are."""
    if not pa.types.is_dictionary(column.type) or len(column.dictionary) <= len(column):
        return column
    used = group(np.asarray(column.indices.drop_null()), len(column.dictionary))
    indices = np.zeros(len(column), np.int32)
    valid = np.asarray(column.indices.is_valid())
    indices[valid] = used.groups
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~valid), column.dictionary.take(pa.array(used.ids)))


def _densify(codes: Array, bound: int) -> tuple[Array, int]:
    """The ranks of codes below a bound. They keep the order of the codes: results that leave sorted are written faster."""
    from tidegate.operators.kernels.loops import dense_ranks

    return dense_ranks(codes.astype(np.int64), bound.bit_length())
