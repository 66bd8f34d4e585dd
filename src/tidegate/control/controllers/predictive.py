"""Predictive: sizes a join for what waits and for what its windows will hold, not only for how busy it is now.

Gulisano et al., STRETCH, section 8.5 (Q5): the controller of section 8.4 with its thresholds narrowed to 70 % and 80 % of
capacity, and with the pending and the predicted work counted in. After a rise of the rate a join gets busier for as long
as its windows fill: its work is the product of one input's rate and of the other's window. That is known beforehand, so
instances are added while the utilisation is still low, and none is removed that the next moments will need.

The cost model is that of joins that compare each tuple with the whole opposite window:

    comparisons per second = r_L·|W_R| + r_R·|W_L|

A window of `window_seconds` ends up with r·window tuples if the rate r stays, at the latest when the tuples it holds now
are gone. Until then it grows by r less what leaves it, which is known from what it held one observation before; without
one, its tuples are taken to be of even age. `predictive_work.py` has the model as functions.

A subquery without windowed inputs is sized for its offered rate and its backlog, at the cost per tuple it has shown.
Where the backlog is not known, pending work is left out and the decision says so.

Pitfall: the cost of a comparison is the busy time divided by the comparisons, so whatever else a tuple costs counts as
comparisons. While windows are nearly empty that overrates the predicted work; a short horizon limits the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidegate.control.controller import Limits
from tidegate.control.controllers.predictive_work import Work, join_work, tuple_work
from tidegate.control.decision import Alternative, Decision, Expectation, hold, hold_without, resize
from tidegate.control.observation import Observation
from tidegate.errors import UserError

JOIN_NEEDS = ("window_inputs", "comparisons", "busy")
TUPLE_NEEDS = ("offered", "processed", "busy")


@dataclass(frozen=True, slots=True)
class Predictive:
    """Sizes for the work ahead: what arrives, what waits, and what windows that are still filling will cost.

    All utilisations are shares of the instances' capacity.

    lower, upper
        it acts when the predicted utilisation leaves this range; the paper's are 0.7 and 0.8.
    target_utilisation
        what a change aims at: the fewest instances that are used no more than this. The paper does not print the target
        it took with the narrow range; the middle of the range is ours. It must lie within the range, so that what one
        decision set up is not undone by the next.
    horizon_seconds
        how far ahead work is predicted; the decision covers the greatest work on the way there. With a horizon of a
        window or more it goes at once to what full windows need; with a short one it follows their filling.
    drain_seconds
        the time in which pending work should be done, on top of what arrives.
    """

    lower: float = 0.7
    target_utilisation: float = 0.75
    upper: float = 0.8
    horizon_seconds: float = 10.0
    drain_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.lower <= self.target_utilisation <= self.upper <= 1:
            raise UserError(
                f"predictive: lower ({self.lower}), target_utilisation ({self.target_utilisation}) and upper "
                f"({self.upper}) must satisfy 0 < lower ≤ target_utilisation ≤ upper ≤ 1"
            )
        if not (self.horizon_seconds >= 0 and math.isfinite(self.horizon_seconds)):
            raise UserError(
                f"predictive: horizon_seconds ({self.horizon_seconds}) must be 0 or more; 0 predicts nothing"
            )
        if not (self.drain_seconds > 0 and math.isfinite(self.drain_seconds)):
            raise UserError(
                f"predictive: drain_seconds ({self.drain_seconds}) must be positive: the time in which to catch up"
            )

    @property
    def name(self) -> str:
        return "predictive"

    def start(self, limits: Limits) -> PredictiveRun:
        return PredictiveRun(self, limits)


class PredictiveRun:
    """The predictive controller at work.

    It remembers what one busy instance did in the last period with any work, and what the windows held one period ago.
    """

    def __init__(self, settings: Predictive, limits: Limits) -> None:
        self._settings, self._limits = settings, limits
        self._capacity: dict[bool, float] = {}
        self._before: Observation | None = None

    def decide(self, observation: Observation) -> Decision:
        """Compare the greatest predicted work with what the instances can do; go to the target if it is out of range."""
        joins = observation.window_inputs is not None and len(observation.window_inputs) > 1
        missing = _missing(observation, JOIN_NEEDS if joins else TUPLE_NEEDS)
        if missing:
            return hold_without(missing, observation.subquery, observation.instances)
        before, self._before = self._before, observation
        done = observation.comparisons if joins else observation.processed
        if done and observation.busy_instances > 0:
            self._capacity[joins] = done / observation.busy_instances
        settings = self._settings
        if joins:
            work = join_work(observation, before, settings.horizon_seconds, settings.drain_seconds)
        else:
            work = tuple_work(observation, settings.drain_seconds)
        if joins not in self._capacity and work.greatest > 0:
            return hold(observation.subquery, observation.instances, "no work was done yet, so its cost is unknown")
        return self._size(observation, work, self._capacity.get(joins, math.inf))

    def _size(self, observation: Observation, work: Work, capacity: float) -> Decision:
        settings, before = self._settings, observation.instances
        needed = work.greatest / capacity
        utilisation = needed / before
        backlog = " (backlog not known)" if observation.missing(("backlog",)) else ""
        seen = f"{work}{backlog}: {utilisation:.0%} of {before} instances"
        in_range = settings.lower <= utilisation <= settings.upper
        # Ten digits: the work of exactly n instances must not become that of n + 1 by rounding.
        enough = math.ceil(round(needed / settings.target_utilisation, 10))
        wanted = self._limits.clamp(before if in_range else enough)
        if wanted == before:
            return hold(observation.subquery, before, f"{seen}, {self._why_hold(before, enough, in_range)}")
        expected = Expectation(
            utilisation=min(needed / wanted, 1.0),
            processed=work.tuples_per_second * min(1.0, wanted / needed) if needed > 0 else 0.0,
        )
        rejected: tuple[Alternative, ...] = ()
        if wanted > self._limits.least:
            rejected = (Alternative(wanted - 1, f"would be used to {needed / (wanted - 1):.0%}"),)
        why = f"{seen}, {needed / wanted:.0%} of {wanted}; the range is {settings.lower:.0%} to {settings.upper:.0%}"
        return resize(observation.subquery, before, wanted, why, expected=expected, rejected=rejected)

    def _why_hold(self, before: int, enough: int, in_range: bool) -> str:
        if in_range:
            return f"within {self._settings.lower:.0%} to {self._settings.upper:.0%}"
        if enough > before:
            return "too much, but these are the most instances allowed"
        if enough < before:
            return "little, but these are the fewest instances allowed"
        return f"little, but fewer would be used to more than {self._settings.target_utilisation:.0%}"


def _missing(observation: Observation, names: tuple[str, ...]) -> tuple[str, ...]:
    """The absent fields, windowed inputs that hold something that is no number among them."""
    missing = observation.missing(names)
    inputs = observation.window_inputs or ()
    if "window_inputs" in names and "window_inputs" not in missing:
        values = [value for each in inputs for value in (each.rate, each.held, each.window_seconds)]
        if not all(math.isfinite(value) for value in values):
            return ("window_inputs", *missing)
    return missing
