"""A measured rate as a level, a slope and an error: what it is now, where it goes, and how sure that is.

The observations since the load last changed are taken together, so that noise averages out; a change is found by testing
whether the newest one, two or three of them could belong to the line through the others. A change beyond the noise is
thus followed at once, and noise is not followed at all. The noise itself is estimated from what was predicted wrongly.
Many are taken together only while they lie on one line: where the newest quarter is off the line through the rest, they
bend, and the older ones are left out.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

LONGEST, SHORT = 48, 12
"""Observations taken together at most, and where they bend: few enough for a curve to be straight."""

CHANGED, BENT, SLOPED = 5.0, 2.5, 2.0
"""How many standard errors off observations are another load, or a bend; how many errors from zero a slope is one."""

DAMPING_SECONDS = 60.0
"""A slope is expected to lose 63 % of itself in this time, or in that for which it was seen: nothing rises for ever."""

FIRST_NOISE, LEAST_NOISE = 0.05, 0.003
LEARNING = 0.05
CLIPPED = 3.0
BEND = math.sqrt(6.0)
"""The second difference of independent measurements has six times their variance."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A rate: its value now, its slope per second (0 where noise could explain it), and its relative standard error.

    `slope_error` is the standard error of the slope, relative to the value; `lasting_seconds` is how long it may last.
    """

    value: float
    slope: float
    error: float
    count: int
    slope_error: float = 0.0
    lasting_seconds: float = DAMPING_SECONDS

    def ahead(self, seconds: float) -> float:
        """What it will be some time ahead, with the slope damped; never negative."""
        return max(self.value + self.slope * self._damped(seconds), 0.0)

    def error_ahead(self, seconds: float) -> float:
        """The relative standard error of that."""
        return math.hypot(self.error, self.slope_error * self._damped(seconds)) if self.slope else self.error

    def _damped(self, seconds: float) -> float:
        """The time for which the slope would have to hold in full to come to what it comes to."""
        return self.lasting_seconds * -math.expm1(-seconds / self.lasting_seconds)


class Trend:
    """Follows one measured quantity. O(LONGEST) an observation.

    Of one that is not `sudden`, fewer than three observations are no change; one that is not `sloped` has no slope between
    changes.
    """

    def __init__(self, *, sudden: bool = True) -> None:
        self.sloped = True
        self._fewest = 1 if sudden else 3
        self._seen: deque[tuple[float, float]] = deque(maxlen=LONGEST)
        self._last: tuple[float | None, float | None] = (None, None)
        self.noise = FIRST_NOISE

    def see(self, seconds: float, value: float) -> None:
        """Take in an observation; times rise."""
        self._learn(value)
        seen = [*self._seen, (seconds, value)]
        for newest in range(self._fewest, 4):
            if len(seen) > newest and self._apart(seen[:-newest], seen[-newest:], CHANGED):
                self._seen.clear()
                self._seen.extend(seen[-newest:])
                return
        self._seen.append((seconds, value))
        if len(self._seen) > SHORT and self._apart(*_newest_quarter(self._seen), BENT):
            self._seen = deque(list(self._seen)[-SHORT:], maxlen=LONGEST)

    def estimate(self) -> Estimate | None:
        """The present estimate; None if nothing was seen."""
        if not self._seen:
            return None
        value, slope, error = self._fit(list(self._seen), self._seen[-1][0])
        slope_error = self.noise / math.sqrt(self._spread() or 1.0)
        lasting = max(DAMPING_SECONDS, self._seen[-1][0] - self._seen[0][0])
        return Estimate(max(value, 0.0), slope, error, len(self._seen), slope_error, lasting)

    @property
    def settled_error(self) -> float:
        """The relative standard error that the level has once the load has been constant for a while."""
        return self.noise / math.sqrt(SHORT)

    def _spread(self) -> float:
        """The squared distances of the moments from their middle, in seconds squared."""
        middle = sum(seconds for seconds, _ in self._seen) / len(self._seen)
        return sum((seconds - middle) ** 2 for seconds, _ in self._seen)

    def _learn(self, value: float) -> None:
        """Take the bend of the last three for noise: their second difference, in which no slope shows."""
        first, second = self._last
        self._last = second, value
        if first is None or second is None or second <= 0:
            return
        off = abs(value - 2 * second + first) / (BEND * second)
        usual = min(off, CLIPPED * self.noise)
        self.noise = max(math.sqrt((1 - LEARNING) * self.noise**2 + LEARNING * usual**2), LEAST_NOISE)

    def _apart(self, before: list[tuple[float, float]], newest: list[tuple[float, float]], errors: float) -> bool:
        """Whether the newest are off the line through those before by more than so many standard errors."""
        moment = sum(seconds for seconds, _ in newest) / len(newest)
        mean = sum(value for _, value in newest) / len(newest)
        predicted, _, error = self._fit(before, moment)
        tolerance = math.hypot(error, self.noise / math.sqrt(len(newest)))
        return abs(mean - predicted) > errors * tolerance * max(predicted, 0.0)

    def _fit(self, seen: list[tuple[float, float]], moment: float) -> tuple[float, float, float]:
        """The value at a moment by the line through all, or by their mean; its slope; its relative standard error.

        A slope is believed the less the nearer it is to what noise could make; what is not believed of it is an error.
        """
        count = len(seen)
        mean = sum(value for _, value in seen) / count
        middle = sum(seconds for seconds, _ in seen) / count
        spread = sum((seconds - middle) ** 2 for seconds, _ in seen)
        level_error = self.noise / math.sqrt(count)
        if not self.sloped or count < 4 or mean <= 0 or spread <= 0:
            return mean, 0.0, level_error
        slope = sum((seconds - middle) * (value - mean) for seconds, value in seen) / spread
        told, off = SLOPED * self.noise * mean / math.sqrt(spread), moment - middle
        if abs(slope) <= told:
            return mean, 0.0, math.hypot(level_error, slope * off / mean)
        believed = slope * (1 - (told / slope) ** 2)
        line_error = self.noise * math.sqrt(1 / count + off**2 / spread)
        return mean + believed * off, believed, max(line_error, abs(slope - believed) * off / mean)


def _newest_quarter(seen: deque[tuple[float, float]]) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """All but the newest quarter, and that."""
    every, newest = list(seen), len(seen) // 4
    return every[:-newest], every[-newest:]
