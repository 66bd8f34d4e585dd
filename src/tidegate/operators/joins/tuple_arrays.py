"""The tuples of one side as plain arrays, which loops over pairs read; in order of arrival, or in sorted runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from tidegate.operators.columns import Array

FAN_IN = 4
"""So many are merged: every piece is inspected for every segment, which soon costs more than to copy it now and then."""


@dataclass(frozen=True, slots=True)
class TupleArrays:
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

    @staticmethod
    def of(arrays: Sequence[Array], keys: int, has_nulls: bool, order: Array | None = None) -> TupleArrays:
        """The inverse of `arrays`, given how many of them are keys."""
        first = 2 + keys
        middle = (first + len(arrays)) // 2
        keyed, values, valid = tuple(arrays[2:first]), tuple(arrays[first:middle]), tuple(arrays[middle:])
        return TupleArrays(arrays[0], arrays[1], keyed, values, valid, has_nulls, order)

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: Any) -> TupleArrays:
        """Some of the tuples, by a mask, positions or a slice."""
        order = None if self.order is None else self.order[rows]
        return TupleArrays.of([array[rows] for array in self.arrays], len(self.keys), self.has_nulls, order)

    def arrived_from(self, first: int) -> TupleArrays:
        """The same tuples with their final arrival numbers; until then they count from 0."""
        return replace(self, arrivals=self.arrivals + first)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays but the order, always as many and in the same order."""
        return (self.times, self.arrivals, *self.keys, *self.values, *self.valid)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays) + (0 if self.order is None else self.order.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class SortedRun:
    """Tuples sorted by their ``order``, so that those in a range are found by bisection (as in an LSM tree).

    ``number`` is the latest segment they come from, and their times lie in ``low`` to ``high``.
    """

    number: int
    tuples: TupleArrays
    low: int
    high: int

    @staticmethod
    def of(number: int, tuples: TupleArrays) -> SortedRun:
        return SortedRun(number, tuples, int(tuples.times.min()), int(tuples.times.max()))

    @staticmethod
    def merged(runs: Sequence[SortedRun], least_time: int) -> SortedRun | None:
        """One run of several, without tuples before ``least_time``; None if nothing is left."""
        parts = [run.tuples for run in runs]
        arrays = [np.concatenate(each) for each in zip(*(part.arrays for part in parts), strict=True)]
        order = np.concatenate([part.order for part in parts if part.order is not None])
        joined = TupleArrays.of(arrays, len(parts[0].keys), any(part.has_nulls for part in parts), order)
        by = np.argsort(order, kind="stable")
        kept = joined.take(by[joined.times[by] >= least_time])
        return SortedRun.of(max(run.number for run in runs), kept) if len(kept) else None


def merge_candidates(sizes: Sequence[int], most: int) -> range | None:
    """The last stretch of at least `FAN_IN` neighbours of about the same size, of at most ``most`` together.

    Merging them leaves few pieces, and copies each row a few times only.

    >>> merge_candidates([4000, 500, 10, 9, 11, 10], 10_000)
    range(2, 6)
    """
    stop = len(sizes)
    groups = [list(group) for _, group in groupby(sizes, key=lambda size: size.bit_length() // 2)]
    for group in reversed(groups):
        start = stop - len(group)
        taken = total = 0
        while taken < len(group) and total + group[taken] <= most:
            total += group[taken]
            taken += 1
        if taken >= FAN_IN:
            return range(start, start + taken)
        stop = start
    return None
