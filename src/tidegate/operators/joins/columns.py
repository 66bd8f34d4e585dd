"""The tuples of one side as plain arrays: what loops over pairs read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """Tuples of one side: event times, arrival numbers, codes of the keys, and the columns that the predicate reads.

    ``order`` is what they are sorted by, if they are. ``values`` of nulls are not defined; ``valid`` says where they are,
    and ``has_nulls`` whether there may be any.
    """

    times: Array
    arrivals: Array
    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    valid: tuple[Array, ...]
    has_nulls: bool
    order: Array | None = None

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: Any) -> Columns:
        """Some of the tuples, by a mask, positions or a slice."""
        return Columns(
            self.times[rows],
            self.arrivals[rows],
            tuple(key[rows] for key in self.keys),
            tuple(values[rows] for values in self.values),
            tuple(valid[rows] for valid in self.valid),
            self.has_nulls,
            None if self.order is None else self.order[rows],
        )

    def arrived_from(self, first: int) -> Columns:
        """The same tuples with their final arrival numbers; until then they count from 0."""
        return Columns(
            self.times, self.arrivals + first, self.keys, self.values, self.valid, self.has_nulls, self.order
        )

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays but the order, always as many and in the same order."""
        return (self.times, self.arrivals, *self.keys, *self.values, *self.valid)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays) + (0 if self.order is None else self.order.nbytes)


def concatenated(parts: Sequence[Columns]) -> Columns:
    """The tuples of several, one after the other."""
    joined = [np.concatenate(arrays) for arrays in zip(*(part.arrays for part in parts), strict=True)]
    first = parts[0]
    keys, values = 2 + len(first.keys), 2 + len(first.keys) + len(first.values)
    orders = [part.order for part in parts if part.order is not None]
    return Columns(
        joined[0],
        joined[1],
        tuple(joined[2:keys]),
        tuple(joined[keys:values]),
        tuple(joined[values:]),
        any(part.has_nulls for part in parts),
        np.concatenate(orders) if len(orders) == len(parts) else None,
    )
