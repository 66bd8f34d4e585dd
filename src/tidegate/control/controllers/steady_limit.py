"""Whether something other than the number of instances is the limit: tuples wait, and instances stand idle."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidegate.control.observation import Observation

IDLE, BUSIEST = 0.85, 0.95
"""Average busy share under which instances have time to spare, and the share from which on one of them has none."""

CONGESTED = 0.1
STANDING = 0.98
"""A backlog that is at least this share of what it was a period ago is not being worked off."""

PERIODS = 2
"""Periods in which instances must stand idle, beside those in which others may be about to mend it."""
LIFTED = 1.1
SLACK = 1.25
"""Room that is kept above a limit, so that it is seen to be lifted: more than LIFTED times it must be able to pass."""


@dataclass(frozen=True, slots=True)
class Limited:
    """What gets through at most, in tuples per second; the room to keep above it; and the reason in words."""

    rate: float
    slack: float
    why: str


class LimitWatch:
    """Looks for a limit behind the subquery. It is believed in until more than it gets through.

    The first period with another number of instances tells nothing: it may contain a pause.
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

    def see(self, observation: Observation, late_tuples: float, lead_seconds: float) -> Limited | None:
        """Take in an observation, in which a backlog of more than `late_tuples` is late.

        Where another subquery is the limit, its own controller mends that within `lead_seconds`, so it has to last longer.
        """
        before, self._before = self._before, observation
        processed, use = observation.processed or 0.0, observation.utilisation or 0.0
        if self._rate is not None and processed > LIFTED * self._rate:
            self._rate = None
        if self.ceiling is not None and processed > LIFTED * self.ceiling:
            self.ceiling = None
        unchanged = before is not None and before.instances == observation.instances
        held_up = unchanged and _waits(observation, before, late_tuples)
        if held_up and use < IDLE and max(observation.busy or (1.0,)) < BUSIEST and processed > 0:
            self._idle.append(processed)
        else:
            self._idle.clear()
        if len(self._idle) >= PERIODS + math.ceil(lead_seconds / observation.period_seconds):
            through = sum(self._idle) / len(self._idle)
            self._rate = through if self._rate is None else min(self._rate, through)
            self.ceiling = max(self._rate, self.ceiling or 0.0)
        if self._rate is None:
            return None
        return Limited(self._rate, SLACK, f"{self._rate:.4g}/s get through whatever comes after it")


def _waits(observation: Observation, before: Observation | None, late_tuples: float) -> bool:
    """Whether tuples wait too long and are not being worked off."""
    if (observation.congestion or 0.0) > CONGESTED:
        return True
    if observation.backlog is None or before is None or before.backlog is None:
        return False
    return observation.backlog > late_tuples and observation.backlog >= STANDING * before.backlog
