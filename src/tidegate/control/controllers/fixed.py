"""Fixed: as many instances as there are; for queries whose shards alone are to be moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.control.controller import Decision, Limits, hold, resize
from tidegate.control.observation import Observation


@dataclass(frozen=True, slots=True)
class Fixed:
    """Keeps the number of instances, within its limits, whatever the load is.

    >>> Fixed().start(Limits(1, 8)).decide(Observation("q", 5.0, 5.0, 4)).instances
    4
    """

    name: ClassVar[str] = "fixed"

    def start(self, limits: Limits) -> FixedDeciding:
        return FixedDeciding(limits)


@dataclass(frozen=True, slots=True)
class FixedDeciding:
    """`Fixed` at work on one subquery; it remembers nothing."""

    limits: Limits

    def decide(self, observation: Observation) -> Decision:
        within = self.limits.clamp(observation.instances)
        if within != observation.instances:
            return resize(observation, within, f"the limits are {self.limits} instances")
        return hold(observation, "the number of instances is fixed")
