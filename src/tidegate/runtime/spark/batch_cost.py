"""What the rows of a batch cost, told apart from what a batch costs whatever it carries.

A task of a small batch is mostly its own start, so at a low load a row seems many times as dear as it will be under load.
Batches of different sizes show the difference: seconds in tasks = fixed + rows x each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

NEW = 0.3
"""The weight of a new measurement among those of batches of about its size."""

DIFFERENT = 2.0
"""How many times the rows of the smallest batches the largest must have before anything is told apart."""


LONGEST_SECONDS = 3.0
"""How long batches may get under load before their rows are late; their price is paid at least that often."""


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds in tasks that any batch takes, and that each of its rows takes."""

    batch_seconds: float
    row_seconds: float

    def work_seconds(self, rows: float, seconds: float) -> float:
        """The work of so many rows in so long a time, in batches as long as they may get."""
        return rows * self.row_seconds + self.batch_seconds * seconds / LONGEST_SECONDS


@dataclass(slots=True)
class BatchCost:
    """Follows the seconds in tasks of batches by their size; sizes that were seen once are not forgotten.

    >>> cost = BatchCost()
    >>> cost.see(batches=1, rows=100, task_seconds=0.6)
    >>> cost.price is None
    True
    >>> cost.see(batches=2, rows=2000, task_seconds=4.8)
    >>> round(cost.price.batch_seconds, 6), round(cost.price.row_seconds, 6)
    (0.4, 0.002)
    """

    _by_size: dict[int, tuple[float, float]] = field(default_factory=dict)

    def see(self, batches: int, rows: float, task_seconds: float) -> None:
        """Take in batches of one period; without rows or tasks they say nothing."""
        if batches < 1 or rows <= 0 or task_seconds <= 0:
            return
        size, seconds = rows / batches, task_seconds / batches
        known = self._by_size.get(place := math.frexp(size)[1])
        if known is not None:
            size, seconds = (old + NEW * (new - old) for old, new in zip(known, (size, seconds), strict=True))
        self._by_size[place] = size, seconds

    @property
    def price(self) -> Price | None:
        """What batches and rows take; None as long as they cannot be told apart.

        A straight line by least squares, of relative errors: small batches count as much as large ones.
        """
        seen = [(size, seconds, 1 / seconds**2) for size, seconds in self._by_size.values()]
        if not seen or max(seen)[0] < DIFFERENT * min(seen)[0]:
            return None
        total = sum(weight for *_, weight in seen)
        middle = sum(weight * size for size, _, weight in seen) / total
        mean = sum(weight * seconds for _, seconds, weight in seen) / total
        across = sum(weight * (size - middle) ** 2 for size, _, weight in seen)
        slope = sum(weight * (size - middle) * (seconds - mean) for size, seconds, weight in seen) / across
        # A batch without rows cannot take less than no time, nor can more rows take less.
        return Price(mean - slope * middle, slope) if 0 < slope <= mean / middle else None
