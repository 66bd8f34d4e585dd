"""Work as an interval: whether one work is more than another or the same measured twice, and what was added for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

SAME_WORK = 0.1
"""Works that differ by no more than this, beside what noise explains, are the same: nothing is taken back for them."""

FALLEN = 0.05
"""By how much work must surely have fallen before what was added for it may be more than it needs."""

MISTAKEN = 0.1
"""The share of the instances from which on more than one too many was a mistake, and not a matter of rounding up."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work in instances, with its relative standard error.

    >>> Work(12.0, 0.0).exceeds(Work(10.0, 0.0), confidence=3.0)
    True
    >>> Work(12.0, 0.03).exceeds(Work(10.0, 0.03), confidence=3.0)
    False
    """

    instances: float
    error: float

    def exceeds(self, other: Work, confidence: float) -> bool:
        """Whether it is more than the other by so many standard errors of their difference, and by SAME_WORK."""
        apart = SAME_WORK + confidence * math.hypot(self.error, other.error)
        return (1 - apart) * self.instances > other.instances

    def at_least(self, confidence: float) -> float:
        return self.instances * (1 - confidence * self.error)

    def at_most(self, confidence: float) -> float:
        return self.instances * (1 + confidence * self.error)


@dataclass(frozen=True, slots=True)
class Raised:
    """An increase: the instances that the work alone asked for, what that work surely was at its most, and if tuples waited.

    While the work may be the same, those instances are kept, unless they are a mistake. What was added beside them for
    what waited may go when that is done.

    >>> Raised(10, 9.4, waited=False).floor(9, Work(9.2, 0.01), 3.0)
    10
    >>> Raised(10, 9.4, waited=False).floor(9, Work(8.5, 0.01), 3.0)
    9
    """

    instances: int
    work: float
    waited: bool

    def seen(self, work: Work, confidence: float) -> Raised:
        """With the highest work that is sure so far."""
        return replace(self, work=max(self.work, work.at_least(confidence)))

    def fallen(self, work: Work, confidence: float) -> bool:
        """Whether the work is surely less than it was."""
        return work.at_most(confidence) < (1 - FALLEN) * self.work

    def floor(self, enough: int, work: Work, confidence: float) -> int:
        """The instances to keep where `enough` would do by what is measured now."""
        surplus = self.instances - enough
        if surplus <= 0 or self.fallen(work, confidence) or surplus > max(1.0, MISTAKEN * self.instances):
            return enough
        return self.instances
