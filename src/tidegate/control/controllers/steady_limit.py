"""What gets through a subquery at most, where something behind it is the limit and more instances would not help."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidegate.control.observation import Observation

EVIDENCE = 2
"""Periods that a decrease, a new mapping or a limit must rest on: one alone may be spoilt by a pause."""

IDLE, BUSIEST = 0.85, 0.95
"""Instances stand idle below this average busy share, unless one of them has no time to spare."""

CONGESTED = 0.1
"""The share of the time in which sources stand blocked from which on that is more than transport buffers."""

LIFTED, SLACK = 1.1, 1.25
"""A limit is lifted once so many times it gets through; room for more than that is kept, or it could not be seen."""


@dataclass(frozen=True, slots=True)
class ThroughputLimit:
    """What gets through at most, in tuples per second; the room to keep above it; and the reason in words."""

    rate: float
    slack: float
    why: str


class LimitDetector:
    """Detects a limit behind the subquery: tuples wait, and instances stand idle.

    A limit holds until LIFTED times it gets through. The first period with another number of instances tells nothing: it
    may contain a pause.
    """

    def __init__(self) -> None:
        self._before: Observation | None = None
        self._idle: list[float] = []
        self._rate: float | None = None
        self.ceiling: float | None = None
        """The highest limit found so far, unless more than it got through since."""

    @property
    def suspected(self) -> bool:
        """Whether tuples waited and instances stood idle in the last period."""
        return bool(self._idle)

    def see(self, observation: Observation, late_tuples: float, lead_seconds: float) -> ThroughputLimit | None:
        """Take in an observation, in which a backlog of more than `late_tuples` is late.

        Where another subquery is the limit, its own controller adds instances within `lead_seconds`, so this has to last
        longer.
        """
        before, self._before = self._before, observation
        processed = observation.processed or 0.0
        if self._rate is not None and processed > LIFTED * self._rate:
            self._rate = None
        if self.ceiling is not None and processed > LIFTED * self.ceiling:
            self.ceiling = None
        unchanged = before is not None and before.instances == observation.instances
        idle = (observation.utilisation or 0.0) < IDLE and max(observation.busy or (1.0,)) < BUSIEST
        if unchanged and idle and processed > 0 and _waits(observation, before, late_tuples):
            self._idle.append(processed)
        else:
            self._idle.clear()
        if len(self._idle) >= EVIDENCE + math.ceil(lead_seconds / observation.period_seconds):
            through = sum(self._idle) / len(self._idle)
            self._rate = through if self._rate is None else min(self._rate, through)
            self.ceiling = max(self._rate, self.ceiling or 0.0)
        if self._rate is None:
            return None
        return ThroughputLimit(self._rate, SLACK, f"{self._rate:.4g}/s get through whatever comes after it")


def _waits(observation: Observation, before: Observation | None, late_tuples: float) -> bool:
    """Whether tuples wait too long and are not being worked off, by a fiftieth in the period at least."""
    if (observation.congestion or 0.0) > CONGESTED:
        return True
    backlog, earlier = observation.backlog, before.backlog if before is not None else None
    return backlog is not None and earlier is not None and backlog > late_tuples and backlog >= 0.98 * earlier
