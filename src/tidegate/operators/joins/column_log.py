"""The tuples of one side in the order of their arrival, as the arrays that loops over pairs read."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.operators.joins.array_log import ArrayLog
from tidegate.operators.joins.columns import Columns


class ColumnLog:
    """All tuples of one side that are still needed. Writing is for one thread at a time."""

    def __init__(self, keys: int, kinds: tuple[Any, ...]) -> None:
        self._log = ArrayLog((np.int64, np.int64, *([np.int64] * keys), *kinds, *([np.bool_] * len(kinds))))
        self._keys = keys
        self._values = len(kinds)
        self._last_null = -1

    @property
    def nbytes(self) -> int:
        return self._log.nbytes

    def add(self, columns: Columns) -> None:
        """Add tuples behind the others; their arrival numbers follow on."""
        self._log.add(columns.arrays, len(columns))
        if columns.has_nulls:
            self._last_null = self._log.tail - 1

    def forget(self, least: int) -> None:
        """Tuples with lower arrival numbers are not needed any more."""
        self._log.forget(least)

    def view(self, first: int, stop: int) -> Columns:
        """The tuples with arrival numbers from ``first`` to before ``stop``."""
        arrays = self._log.view(first, stop)
        keys, values = 2 + self._keys, 2 + self._keys + self._values
        return Columns(
            arrays[0],
            arrays[1],
            tuple(arrays[2:keys]),
            tuple(arrays[keys:values]),
            tuple(arrays[values:]),
            self._last_null >= first,
        )
