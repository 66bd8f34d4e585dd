"""Work as an interval, and whether one work is more than another or the same measured twice."""

from __future__ import annotations

import math
from dataclasses import dataclass

SAME_WORK = 0.1
"""Works that differ by no more than this, beside what noise explains, are the same."""


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
