"""Instances as piles of shards, with the most and the least loaded at hand while shards move one by one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import heapify, heappop, heappush

import numpy as np

from tidegate.control.balancers.balance import Floats, Ints, instance_loads

Entry = tuple[float, int, int]
"""A shard in a pile: its load, then its size and number negated, so that of equal loads the last is cheapest to move."""


class Piles:
    """A mapping that is being changed.

    Finding the most and least loaded instance and the shard nearest to a load costs a logarithm each; a move costs one
    insertion into a sorted list, which is made when its instance is first looked into. Of equally loaded instances the
    one with the lowest number counts as most and as least loaded. `set_aside` hides an instance from `most` for good. A
    caller that only moves shards from the most to the least loaded, and less than their gap, may do so once nothing
    there helps: the least load never falls, so the gap only narrows, and by the time the instance is itself the least
    loaded no gap is left.
    """

    def __init__(self, owners: Ints, loads: Floats, instances: int, sizes: Ints | None) -> None:
        weights = np.zeros(len(owners), dtype=np.int64) if sizes is None else sizes
        shards = np.arange(len(owners))
        order = np.lexsort((-shards, -weights, loads, owners))
        self._sorted = (loads[order], -weights[order], -order)
        self._ends = np.cumsum(np.bincount(owners, minlength=instances)).tolist()
        self._piles: dict[int, list[Entry]] = {}
        self.loads: list[float] = instance_loads(owners, loads, instances).tolist()
        self.owners = owners.copy()
        self._most = [(-load, instance) for instance, load in enumerate(self.loads)]
        self._least = [(load, instance) for instance, load in enumerate(self.loads)]
        heapify(self._most)
        heapify(self._least)
        self._aside: set[int] = set()

    def most(self) -> int | None:
        """The most loaded instance that is not set aside; None if all are."""
        while self._most:
            load, instance = self._most[0]
            if -load == self.loads[instance] and instance not in self._aside:
                return instance
            heappop(self._most)
        return None

    def least(self) -> int:
        """The least loaded instance."""
        while self._least[0][0] != self.loads[self._least[0][1]]:
            heappop(self._least)
        return self._least[0][1]

    def set_aside(self, instance: int) -> None:
        """Pass over an instance that has nothing worth moving."""
        self._aside.add(instance)

    def largest_within(self, instance: int, least: float, most: float) -> Entry | None:
        """The heaviest shard of an instance whose load lies in [least, most]."""
        pile = self._pile(instance)
        index = bisect_right(pile, most, key=_load) - 1
        return pile[index] if index >= 0 and pile[index][0] >= least else None

    def nearest(self, instance: int, load: float) -> Entry | None:
        """The shard of an instance whose load is nearest to `load`; of two as near, the lighter."""
        pile = self._pile(instance)
        if not pile:
            return None
        above = bisect_left(pile, load, key=_load)
        if above == len(pile):
            return pile[-1]
        heavier = pile[bisect_right(pile, pile[above][0], key=_load) - 1]
        if above == 0 or heavier[0] - load < load - pile[above - 1][0]:
            return heavier
        return pile[above - 1]

    def move(self, entry: Entry, source: int, target: int) -> None:
        """Take a shard from one pile to another."""
        left = self._pile(source)
        left.pop(bisect_left(left, entry))
        insort(self._pile(target), entry)
        self.owners[-entry[2]] = target
        self.loads[source] -= entry[0]
        self.loads[target] += entry[0]
        for instance in (source, target):
            heappush(self._most, (-self.loads[instance], instance))
            heappush(self._least, (self.loads[instance], instance))

    def _pile(self, instance: int) -> list[Entry]:
        """The shards of an instance, lightest first."""
        if instance not in self._piles:
            rows = slice(self._ends[instance - 1] if instance else 0, self._ends[instance])
            self._piles[instance] = list(zip(*(column[rows].tolist() for column in self._sorted), strict=True))
        return self._piles[instance]


def _load(entry: Entry) -> float:
    return entry[0]
