"""The work ahead of a subquery: what is due now, when a change is in force, and for a while after; and what waits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.control.controllers.steady_limit import CONGESTED, Limited
from tidegate.control.controllers.steady_trend import Estimate
from tidegate.control.observation import Observation

CATCH_UP = 1.0
"""What waits is worked off at this share of what arrives at most."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Rates in tuples per second and costs of a tuple in seconds of an instance, at three times.

    rate, cost_seconds
        when a change asked for now is in force, and no less than now.
    most, most_cost_seconds
        until the horizon after that.
    kept, kept_cost_seconds
        the same, and no less than a little earlier: what falls may stop falling.
    """

    rate: float
    most: float
    kept: float
    cost_seconds: float
    most_cost_seconds: float
    kept_cost_seconds: float

    @classmethod
    def of(
        cls, demand: Estimate, cost: Estimate, soon_seconds: float, later_seconds: float, ago_seconds: float
    ) -> Ahead:
        """What two trends come to."""
        rate, cost_now = max(demand.value, demand.ahead(soon_seconds)), max(cost.value, cost.ahead(soon_seconds))
        most, cost_most = max(rate, demand.ahead(later_seconds)), max(cost_now, cost.ahead(later_seconds))
        kept = max(most, demand.value - demand.slope * ago_seconds)
        return cls(rate, most, kept, cost_now, cost_most, max(cost_most, cost.value - cost.slope * ago_seconds))

    def within(self, limited: Limited | None) -> Ahead:
        """The same with no more than gets through, and the room that is kept above that."""
        if limited is None:
            return self
        room = limited.rate * limited.slack
        return replace(self, rate=min(self.rate, limited.rate), most=min(self.most, room), kept=min(self.kept, room))


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits: all of it, what of it is late, and the rates at which to work it off, now and until a change is in force.

    `late` is what waits beyond half of the latency target; tuples wait that long in any queue. It is `quiet` where none is
    late and sources are not blocked, which is `known` where either is observed.
    """

    tuples: float
    late: float
    draining: float
    drained: float
    quiet: bool
    known: bool = True

    @classmethod
    def of(
        cls,
        observation: Observation,
        demand: Estimate,
        cost: Estimate,
        ahead: Ahead,
        *,
        target_seconds: float,
        drain_seconds: float,
        lead_seconds: float,
    ) -> Waiting:
        """What an observation shows to wait, and what will have come to it when a change is in force."""
        tuples = 0.0 if observation.missing(("backlog",)) else observation.backlog or 0.0
        late = max(tuples - demand.value * target_seconds / 2, 0.0)
        short = max(demand.value - observation.instances / cost.value, 0.0)
        # Sources that slow down leave nothing that waits.
        grows = tuples >= short * observation.period_seconds / 2
        growing = short * lead_seconds if grows else 0.0
        held_up = max(_held_up(observation) - ahead.rate, 0.0)
        draining = min(max(late / drain_seconds, held_up), CATCH_UP * ahead.rate)
        drained = min(max((late + growing) / drain_seconds, held_up), CATCH_UP * ahead.most)
        quiet = late == 0 and (observation.congestion or 0.0) <= CONGESTED
        known = len(observation.missing(("backlog", "congestion"))) < 2
        return cls(tuples, late, draining, drained, quiet, known)

    def below(self, ceiling: float | None, ahead: Ahead) -> Waiting:
        """The same, without trying again for the sake of what waits what could not pass before."""
        if ceiling is None:
            return self
        return self._at_most(ceiling - ahead.rate, ceiling - ahead.most)

    def within(self, limited: Limited | None, ahead: Ahead) -> Waiting:
        """The same with no more than gets through beside what is due, `ahead` being within the limit already."""
        if limited is None:
            return self
        return self._at_most(limited.rate - ahead.rate, limited.rate * limited.slack - ahead.most)

    def _at_most(self, draining: float, drained: float) -> Waiting:
        return replace(
            self, draining=min(self.draining, max(draining, 0.0)), drained=min(self.drained, max(drained, 0.0))
        )


def _held_up(observation: Observation) -> float:
    """What subqueries upstream would send if this one did not hold them up; 0 where that is not known."""
    if not observation.missing(("offered",)) or observation.missing(("admitted", "congestion")):
        return 0.0
    return (observation.admitted or 0.0) / max(1 - (observation.congestion or 0.0), 0.1)
