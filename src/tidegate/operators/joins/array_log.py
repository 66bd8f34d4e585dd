"""Arrays that grow: nothing in them is changed, only added.

A view of the entries up to some number stays as it is while others are added behind them, so readers need no lock. When the
arrays are full, what is still needed moves to new ones, and the old ones live as long as somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LEAST_ROWS = 4_096


class ArrayLog:
    """Several arrays of equal length, whose entries are numbered as they are added. Writing is for one thread at a time."""

    __slots__ = ("_base", "_head", "_tail", "arrays")

    def __init__(self, dtypes: Sequence[Any]) -> None:
        self.arrays = tuple(np.empty(0, dtype) for dtype in dtypes)
        self._base = 0
        self._head = 0
        self._tail = 0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @property
    def base(self) -> int:
        """The number of the entry that the arrays begin with, whether or not it is still needed."""
        return self._base

    @property
    def head(self) -> int:
        """The number of the first entry that is still needed."""
        return self._head

    @property
    def tail(self) -> int:
        """The number that the next entry gets."""
        return self._tail

    def add(self, columns: Sequence[Array], rows: int) -> None:
        """Add so many entries behind the others."""
        if self._tail - self._base + rows > (len(self.arrays[0]) if self.arrays else 0):
            self._move(rows)
        start = self._tail - self._base
        for array, more in zip(self.arrays, columns, strict=True):
            array[start : start + rows] = more
        self._tail += rows

    def forget(self, least: int) -> None:
        """Entries with lower numbers are not needed any more; when none is, the arrays go too."""
        self._head = max(self._head, min(least, self._tail))
        if self._head == self._tail:
            self.arrays, self._base = tuple(np.empty(0, array.dtype) for array in self.arrays), self._head

    def view(self, first: int, stop: int) -> list[Array]:
        """The entries from number ``first`` to before ``stop``, as far as they are needed."""
        first = max(first, self._head)
        rows = slice(first - self._base, max(stop, first) - self._base)
        return [array[rows] for array in self.arrays]

    def _move(self, more: int) -> None:
        live = slice(self._head - self._base, self._tail - self._base)
        rows = self._tail - self._head
        size = max(LEAST_ROWS, 2 * (rows + more))
        fresh = []
        for array in self.arrays:
            longer = np.empty(size, array.dtype)
            longer[:rows] = array[live]
            fresh.append(longer)
        self.arrays, self._base = tuple(fresh), self._head
