"""A measured rate as a level, a slope and an error: what it is now, where it goes, and how sure that is.

The observations since the load last changed are taken together, so that noise averages out; a change is found by testing
whether the newest one, two or three of them could belong to the line through the others. A change beyond the noise is
thus followed at once, and noise is not followed at all. The noise itself is estimated from what was predicted wrongly.
Many are taken together only while they lie on one line: where the newest quarter is off the line through the rest, they
bend, and the older ones are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LONGEST, SHORT = 48, 12
"""Observations taken together at most, and where they bend: few enough for a curve to be straight."""

CHANGED, BENT, SLOPED = 5.0, 2.5, 2.0
"""How many standard errors off observations are another load, or a bend; how many errors from zero a slope is one."""

DAMPING_SECONDS = 60.0
"""A slope is expected to lose 63 % of itself in this time, or in that for which it was seen: nothing rises for ever."""

FIRST_NOISE, LEAST_NOISE = 0.05, 0.003
"""The relative noise before any was seen, and the least: with none at all, every difference would be a change."""

LEARNING, CLIPPED = 0.05, 3.0
"""The weight of a new measurement of the noise, and how many times the noise it may be: a change of load is none."""


@dataclass(frozen=True, slots=True)
class TrendEstimate:
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
        """What it will be some time ahead, with the slope damped, or was some time ago; never negative."""
        return max(self.value + self.slope * (self._damped(seconds) if seconds > 0 else seconds), 0.0)

    def highest(self, *seconds: float) -> float:
        """The highest that it will be, or was, at any of these times."""
        return max(map(self.ahead, seconds))

    def error_ahead(self, seconds: float) -> float:
        """The relative standard error of what it will be some time ahead."""
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
        self.noise = FIRST_NOISE
        self._fewest = 1 if sudden else 3
        self._seen: list[tuple[float, float]] = []
        self._last: list[float] = []

    def see(self, seconds: float, value: float) -> None:
        """Take in an observation; times rise."""
        self._learn(value)
        self._seen = seen = [*self._seen[1 - LONGEST :], (seconds, value)]
        for newest in range(self._fewest, 4):
            if len(seen) > newest and self._apart(newest, CHANGED):
                self._seen = seen[-newest:]
                return
        if len(seen) > SHORT and self._apart(len(seen) // 4, BENT):
            self._seen = seen[-SHORT:]

    def estimate(self) -> TrendEstimate | None:
        """The present estimate; None if nothing was seen."""
        return self._fit(self._seen, self._seen[-1][0]) if self._seen else None

    @property
    def settled_error(self) -> float:
        """The relative standard error that the level has once the load has been constant for a while."""
        return self.noise / math.sqrt(SHORT)

    def _learn(self, value: float) -> None:
        """Take the bend of the last three for noise: their second difference, in which no slope shows."""
        self._last = [*self._last[-2:], value]
        if len(self._last) < 3 or self._last[1] <= 0:
            return
        first, second, third = self._last
        # The second difference of independent measurements has six times their variance.
        off = abs(third - 2 * second + first) / (math.sqrt(6.0) * second)
        usual = min(off, CLIPPED * self.noise)
        self.noise = max(math.sqrt((1 - LEARNING) * self.noise**2 + LEARNING * usual**2), LEAST_NOISE)

    def _apart(self, newest: int, errors: float) -> bool:
        """Whether the newest so many are off the line through those before by more than so many standard errors."""
        moment = sum(seconds for seconds, _ in self._seen[-newest:]) / newest
        mean = sum(value for _, value in self._seen[-newest:]) / newest
        predicted = self._fit(self._seen[:-newest], moment)
        tolerance = math.hypot(predicted.error, self.noise / math.sqrt(newest))
        return abs(mean - predicted.value) > errors * tolerance * predicted.value

    def _fit(self, seen: list[tuple[float, float]], moment: float) -> TrendEstimate:
        """The value at a moment by the line through all, or by their mean.

        A slope is believed the less the nearer it is to what noise could cause; what is not believed of it is an error.
        """
        count = len(seen)
        mean = sum(value for _, value in seen) / count
        middle = sum(seconds for seconds, _ in seen) / count
        spread = sum((seconds - middle) ** 2 for seconds, _ in seen)
        value, slope, error = mean, 0.0, self.noise / math.sqrt(count)
        if self.sloped and count >= 4 and mean > 0 and spread > 0:
            steepest = sum((seconds - middle) * (each - mean) for seconds, each in seen) / spread
            explained, off = SLOPED * self.noise * mean / math.sqrt(spread), moment - middle
            if abs(steepest) <= explained:
                error = math.hypot(error, steepest * off / mean)
            else:
                slope = steepest * (1 - (explained / steepest) ** 2)
                value = max(mean + slope * off, 0.0)
                line_error = self.noise * math.sqrt(1 / count + off**2 / spread)
                error = max(line_error, abs(steepest - slope) * off / mean)
        lasting = max(DAMPING_SECONDS, seen[-1][0] - seen[0][0])
        return TrendEstimate(value, slope, error, count, self.noise / math.sqrt(spread or 1.0), lasting)
