"""The tuples of one side in the order of their arrival, in arrays that grow: nothing in them is changed, only added.

A view of the tuples up to some number stays as it is while others are added behind them, so readers need no lock. When the
arrays are full, what is still needed moves to new ones, and the old ones live as long as somebody looks at them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.operators.joins.columns import Columns

Array = np.ndarray[Any, Any]

LEAST_ROWS = 4_096


class ColumnLog:
    """All tuples of one side that are still needed. Writing is for one thread at a time."""

    def __init__(self, keys: int, kinds: tuple[Any, ...]) -> None:
        dtypes = (np.int64, np.int64, *([np.int64] * keys), *kinds, *([np.bool_] * len(kinds)))
        self._keys = keys
        self._values = len(kinds)
        self._arrays = tuple(np.empty(0, dtype) for dtype in dtypes)
        self._base = 0
        self._head = 0
        self._tail = 0
        self._last_null = -1

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays)

    def add(self, columns: Columns) -> None:
        """Add tuples behind the others; their arrival numbers follow on."""
        if self._tail - self._base + len(columns) > len(self._arrays[0]):
            self._move(len(columns))
        start = self._tail - self._base
        for array, more in zip(self._arrays, columns.arrays, strict=True):
            array[start : start + len(columns)] = more
        self._tail += len(columns)
        if columns.has_nulls:
            self._last_null = self._tail - 1

    def forget(self, least: int) -> None:
        """Tuples with lower arrival numbers are not needed any more; when none is, the arrays go too."""
        self._head = max(self._head, min(least, self._tail))
        if self._head == self._tail:
            self._arrays, self._base = tuple(np.empty(0, array.dtype) for array in self._arrays), self._head

    def view(self, first: int, stop: int) -> Columns:
        """The tuples with arrival numbers from ``first`` to before ``stop``."""
        first = max(first, self._head)
        rows = slice(first - self._base, max(stop, first) - self._base)
        arrays = [array[rows] for array in self._arrays]
        keys, values = 2 + self._keys, 2 + self._keys + self._values
        return Columns(
            arrays[0],
            arrays[1],
            tuple(arrays[2:keys]),
            tuple(arrays[keys:values]),
            tuple(arrays[values:]),
            self._last_null >= first,
        )

    def _move(self, more: int) -> None:
        live = slice(self._head - self._base, self._tail - self._base)
        rows = self._tail - self._head
        size = max(LEAST_ROWS, 2 * (rows + more))
        fresh = []
        for array in self._arrays:
            longer = np.empty(size, array.dtype)
            longer[:rows] = array[live]
            fresh.append(longer)
        self._arrays, self._base = tuple(fresh), self._head
