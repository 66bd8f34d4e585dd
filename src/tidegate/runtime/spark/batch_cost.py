"""What a batch of a Structured Streaming query costs, whatever its rows, and what each row costs.

A task of a small batch is mostly its own start, so at a low load a row seems many times as dear as it will be under load.
Batches of different sizes show the difference: seconds in tasks = fixed + rows x each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

NEW_WEIGHT = 0.3
"""The weight of a new measurement among those of batches of about its size."""

SIZES_APART = 2.0
"""How many times the rows of the smallest batches the largest must have before costs are estimated."""

LONGEST_SECONDS = 3.0
"""How long batches may get under load before their rows are late; a batch's fixed cost is paid at least that often."""


@dataclass(frozen=True, slots=True)
class BatchCost:
    """Seconds in tasks that any batch takes, and that each of its rows takes."""

    batch_seconds: float
    row_seconds: float

    def work_seconds(self, rows: float, seconds: float) -> float:
        """The work of so many rows in so long a time, in batches as long as they may get."""
        return rows * self.row_seconds + self.batch_seconds * seconds / LONGEST_SECONDS


@dataclass(slots=True)
class CostModel:
    """Fits the cost of batches from their task seconds by size; sizes that were seen once are not forgotten.

    >>> model = CostModel()
    >>> model.add(batches=1, rows=100, task_seconds=0.6)
    >>> model.fit() is None
    True
    >>> model.add(batches=2, rows=2000, task_seconds=4.8)
    >>> round(model.fit().batch_seconds, 6), round(model.fit().row_seconds, 6)
    (0.4, 0.002)
    """

    _by_size: dict[int, tuple[float, float]] = field(default_factory=dict)

    def add(self, batches: int, rows: float, task_seconds: float) -> None:
        """Adds the batches of one period; without rows or tasks they say nothing."""
        if batches < 1 or rows <= 0 or task_seconds <= 0:
            return
        size, seconds = rows / batches, task_seconds / batches
        known = self._by_size.get(place := math.frexp(size)[1])
        if known is not None:
            size, seconds = (old + NEW_WEIGHT * (new - old) for old, new in zip(known, (size, seconds), strict=True))
        self._by_size[place] = size, seconds

    def fit(self) -> BatchCost | None:
        """Estimates what batches and rows take; None as long as their costs cannot be separated.

        A straight line by least squares, of relative errors: small batches count as much as large ones.
        """
        if not self._by_size or max(self._by_size.values())[0] < SIZES_APART * min(self._by_size.values())[0]:
            return None
        sizes, seconds = np.array(list(self._by_size.values())).T
        row_seconds, batch_seconds = np.polyfit(sizes, seconds, 1, w=1 / seconds).tolist()
        # A batch without rows cannot take less than no time, nor can more rows take less.
        return BatchCost(batch_seconds, row_seconds) if row_seconds > 0 and batch_seconds >= 0 else None
