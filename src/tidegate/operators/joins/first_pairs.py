"""Which tuples of a join's side have been in a pair: what outer, semi and anti joins know beside the tuples themselves.

Within a distance that is a time for each tuple, that of its first pair, and it is final as soon as the watermark is past it:
a pair that is still to come has a time at or after the watermark. A tuple whose last moment for a pair has passed without
any is *alone*. Over windows nothing is kept: what a tuple has met in a window is known when the window expires.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

import numpy as np

from tidegate.operators.columns import Array
from tidegate.operators.joins.find_pairs import FoundPairs
from tidegate.operators.joins.join_side import ArrayLog
from tidegate.operators.joins.near import InSameWindow
from tidegate.query.predicates.tree import LEFT, Side
from tidegate.watermark import END, Watermark

NEVER = END
NOBODY = -1
"""The number of a tuple that is not there."""


class DueTuples(NamedTuple):
    """Tuples that leave alone, by their numbers, and when."""

    numbers: Array
    times: Array


class FirstPairs:
    """When each tuple of one side was first in a pair, within a distance ``span``. Called under the join's lock.

    Tuples have the numbers that their side gives them. With ``met`` those leave that are in a pair, else those in none.
    """

    __slots__ = ("_log", "_met", "_undecided", "met", "span")

    def __init__(self, span: int, met: bool) -> None:
        self.span = span
        self.met = met
        self._log = ArrayLog([np.int64, np.int64])
        self._undecided: list[tuple[int, int, int, int]] = []
        self._met: list[Array] = []

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._log.arrays)

    def add(self, times: Array) -> None:
        """Add tuples, at least one, in the order of their times."""
        first = self._log.tail
        self._log.add([times, np.full(len(times), NEVER)], len(times))
        if not self.met:
            insort(self._undecided, (int(times[0]), int(times[-1]), first, self._log.tail))

    def note(self, numbers: Array, times: Array) -> None:
        """Note pairs that tuples are in, and the times of those."""
        # Imported here: numba takes a while, and a query can be built without it.
        from tidegate.operators.kernels import lower_times

        lowered = lower_times(self._log.arrays[1], numbers - self._log.base, times)
        if self.met:
            self._met.append(lowered + self._log.base)

    def due(self, before: Watermark, after: Watermark) -> DueTuples:
        """The tuples that leave as the watermark moves."""
        return self._first_met(before, after) if self.met else self._left_alone(before, after)

    def forget(self, least: int) -> None:
        """Tuples with lower numbers are not needed any more."""
        self._log.forget(least)

    def _left_alone(self, before: Watermark, after: Watermark) -> DueTuples:
        """Those that can be in no pair any more, and have been in none, at the last moment for one."""
        numbers, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        stop = bisect_left(self._undecided, (after - self.span,))
        kept = []
        for low, high, start, end in self._undecided[:stop]:
            if high + self.span >= after:
                kept.append((low, high, start, end))
            if start >= self._log.head:
                held, pairs = (array[start - self._log.base : end - self._log.base] for array in self._log.arrays)
                last = held + self.span
                due = np.flatnonzero((before <= last) & (last < after) & (pairs == NEVER))
                numbers.append(start + due)
                times.append(last[due])
        self._undecided[:stop] = kept
        return DueTuples(np.concatenate(numbers), np.concatenate(times))

    def _first_met(self, before: Watermark, after: Watermark) -> DueTuples:
        """Those whose first pair becomes final, at its time."""
        noted = np.unique(np.concatenate([np.empty(0, np.int64), *self._met]))
        noted = noted[noted >= self._log.head]
        times = self._log.arrays[1][noted - self._log.base]
        self._met = [noted[times >= after]]
        due = (before <= times) & (times < after)
        return DueTuples(noted[due], times[due])


class ResultSpans(NamedTuple):
    """Results over windows: two tuples by their numbers, `NOBODY` for none, and the windows from ``begin`` to ``end``."""

    left: Array
    right: Array
    begin: Array
    end: Array

    @staticmethod
    def of_pairs(near: InSameWindow, found: FoundPairs, first: int, last: int) -> ResultSpans:
        """Pairs, in the windows that they share, of those from ``first`` to ``last``."""
        begin, _ = near.windows(np.maximum(found.left_times, found.right_times), first, last)
        _, end = near.windows(np.minimum(found.left_times, found.right_times), first, last)
        return ResultSpans(found.left, found.right, begin, end)

    @staticmethod
    def concatenated(parts: list[ResultSpans]) -> ResultSpans:
        """All of several."""
        return ResultSpans(*map(np.concatenate, zip(*parts, strict=True)))


class SideWindows(NamedTuple):
    """Tuples of one side: their numbers, and the windows from ``begin`` to ``end``, at least one, in which they are."""

    side: Side
    numbers: Array
    begin: Array
    end: Array

    def spans(self, near: InSameWindow, found: FoundPairs, met: bool) -> list[ResultSpans]:
        """Each tuple alone, in those of its windows in which it has a partner (``met``), or in the others.

        The windows that a tuple shares with an earlier one are the first of its windows, those that it shares with a later
        one the last: so the latest partner before it and the earliest after it say which have any.
        """
        from tidegate.operators.kernels import nearest_times

        own, times, others = (
            (found.left, found.left_times, found.right_times)
            if self.side == LEFT
            else (found.right, found.right_times, found.left_times)
        )
        base = int(self.numbers.min(initial=END))
        size = int(self.numbers.max(initial=base - 1)) - base + 1
        earlier, later = (each[self.numbers - base] for each in nearest_times(own - base, times, others, size))
        last_met, first_met = earlier // near.window.every, near.window.first_open(later)
        if met:
            first = self._alone(self.begin, np.minimum(self.end, last_met))
            return [first, self._alone(np.maximum(self.begin, np.maximum(last_met + 1, first_met)), self.end)]
        return [self._alone(np.maximum(self.begin, last_met + 1), np.minimum(self.end, first_met - 1))]

    def _alone(self, begin: Array, end: Array) -> ResultSpans:
        some = begin <= end
        numbers, nobody = self.numbers[some], np.full(int(some.sum()), NOBODY)
        left, right = (numbers, nobody) if self.side == LEFT else (nobody, numbers)
        return ResultSpans(left, right, begin[some], end[some])
