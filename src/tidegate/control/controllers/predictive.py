"""Predictive: sizes a join for what waits and for what its windows will hold, not only for how busy it is now.

Gulisano et al., STRETCH, section 8.5 (Q5): the controller of section 8.4 with its thresholds narrowed to 70 % and 80 % of
capacity, and with the pending and the predicted work counted in. After a rise of the rate a join gets busier for as long
as its windows fill: its work is the product of one input's rate and of the other's window. That is known beforehand, so
instances are added while the utilisation is still low, and none is removed that the next moments will need.

The cost model is that of joins that compare each tuple with the whole opposite window:

    comparisons per second = r_L·|W_R| + r_R·|W_L|

A window of `window_seconds` ends up with r·window tuples if the rate r stays, at the latest when the tuples it holds now
are gone. Until then it grows by r less what leaves it, which is known from what it held one observation before; without
one, its tuples are taken to be of even age.

A subquery without windowed inputs is sized for its offered rate and its backlog, at the cost per tuple it has shown.
Where the backlog is not known, pending work is left out and the decision says so.

Pitfall: the cost of a comparison is the busy time divided by the comparisons, so whatever else a tuple costs counts as
comparisons. While windows are nearly empty that overrates the predicted work; a short horizon limits the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tidegate.control.controller import Alternative, Decision, Effect, Limits, hold, require, resize
from tidegate.control.observation import NEGLIGIBLE, Observation, WindowInput
from tidegate.errors import UserError


@dataclass(frozen=True, slots=True)
class PredictedWork:
    """Work per second: now, at the worst moment of the horizon, and on top of it while pending tuples are caught up with.

    `tuples_per_second` is what would be completed if all of it were done.
    """

    unit: str
    now: float
    predicted: float
    pending: float
    tuples_per_second: float

    @property
    def greatest(self) -> float:
        return self.predicted + self.pending

    def __str__(self) -> str:
        return f"{self.now:.4g} {self.unit}/s now, {self.predicted:.4g} predicted, {self.pending:.4g} to catch up"


@dataclass(frozen=True, slots=True)
class Filling:
    """One input's window on its way to what it will hold if the rate stays: `rate · window_seconds`.

    `leaving_rate` is how many tuples per second grow too old.

    >>> Filling(WindowInput(rate=10, held=0, window_seconds=60), leaving_rate=0).held_ahead(30)
    300
    """

    window: WindowInput
    leaving_rate: float

    @property
    def full(self) -> float:
        return self.window.rate * self.window.window_seconds

    @property
    def full_after_seconds(self) -> float:
        """When the window holds what it will hold, at the latest when all it holds now is gone."""
        growth = self.window.rate - self.leaving_rate
        missing = self.full - self.window.held
        return min(missing / growth, self.window.window_seconds) if missing * growth > 0 else 0.0

    def held_ahead(self, ahead_seconds: float) -> float:
        if ahead_seconds >= self.full_after_seconds:
            return self.full
        return self.window.held + (self.window.rate - self.leaving_rate) * ahead_seconds


def filling(window: WindowInput, before: WindowInput | None, elapsed_seconds: float) -> Filling:
    """How a window fills: what leaves it is measured against what it held `elapsed_seconds` before.

    Without that, or where it would lead away from the full window, tuples are taken to be of even age.
    """
    even = window.held / window.window_seconds if window.window_seconds > 0 else 0.0
    if before is None or elapsed_seconds <= 0:
        return Filling(window, even)
    growth = (window.held - before.held) / elapsed_seconds
    towards = growth * (window.rate * window.window_seconds - window.held) > 0
    return Filling(window, max(window.rate - growth, 0.0) if towards else even)


def comparisons_ahead(inputs: tuple[Filling, ...], ahead_seconds: float) -> tuple[float, float]:
    """Comparisons per second some time ahead, and comparisons per tuple, each tuple against every other input's window.

    Tuples are of the inputs in the proportion of their rates, or of all alike if nothing arrives.
    """
    held = [each.held_ahead(ahead_seconds) for each in inputs]
    against = [sum(held) - own for own in held]
    rate = sum(each.window.rate for each in inputs)
    if rate == 0:
        return 0.0, sum(against) / len(inputs)
    per_second = sum(each.window.rate * others for each, others in zip(inputs, against, strict=True))
    return per_second, per_second / rate


def join_work(
    observation: Observation, before: Observation | None, horizon_seconds: float, drain_seconds: float
) -> PredictedWork:
    """The work of a join: the greatest until the horizon, and every pending tuple as dear as at the dearest moment.

    `before` is an earlier observation of the same join, if there is one. Work changes linearly until a window is full,
    so only those moments, now and the horizon have to be looked at.
    """
    windows = observation.window_inputs or ()
    earlier = (before.window_inputs or ()) if before else ()
    elapsed_seconds = observation.time_seconds - before.time_seconds if before else 0.0
    known = earlier if len(earlier) == len(windows) else (None,) * len(windows)
    inputs = tuple(filling(window, past, elapsed_seconds) for window, past in zip(windows, known, strict=True))
    moments = {0.0, horizon_seconds, *(min(each.full_after_seconds, horizon_seconds) for each in inputs)}
    predicted, per_tuple = max(comparisons_ahead(inputs, moment) for moment in moments)
    catching_up = observation.waiting / drain_seconds
    rate = sum(window.rate for window in windows)
    now, _ = comparisons_ahead(inputs, 0.0)
    return PredictedWork("comparisons", now, predicted, per_tuple * catching_up, rate + catching_up)


def tuple_work(observation: Observation, drain_seconds: float) -> PredictedWork:
    """The work of a subquery without windowed inputs: as many tuples as are offered, and those that wait."""
    offered, catching_up = observation.offered or 0.0, observation.waiting / drain_seconds
    return PredictedWork("tuples", offered, offered, catching_up, offered + catching_up)


def pairs_per_comparison(observation: Observation, modelled: float) -> float | None:
    """How many pairs of the model one comparison stands for; None where that cannot be told.

    A join that finds partners by key or by a band tries far fewer pairs than its windows have, and one of short windows
    whole blocks of them; either is in proportion to what the windows hold. One that has no time to spare tries fewer
    because it is late, which says nothing.
    """
    use, tried = observation.utilisation, observation.comparisons
    if not tried or modelled < NEGLIGIBLE or use is None or use > SPARE:
        return None
    return 1.0 if 1 / AS_MODELLED <= modelled / tried <= AS_MODELLED else modelled / tried


AS_MODELLED = 2.0
"""How far the pairs that a join tries may be from all pairs of its windows before it must find them in another way."""
SPARE = 0.9
"""The busy share above which a join may be late."""

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
    name: ClassVar[str] = "predictive"

    def __post_init__(self) -> None:
        if not 0 < self.lower <= self.target_utilisation <= self.upper <= 1:
            raise UserError(
                f"predictive: lower ({self.lower}), target_utilisation ({self.target_utilisation}) and upper "
                f"({self.upper}) must satisfy 0 < lower ≤ target_utilisation ≤ upper ≤ 1"
            )
        ahead, drain = self.horizon_seconds, self.drain_seconds
        require(
            0 <= ahead < math.inf, "predictive", "horizon_seconds", ahead, "0 or more and finite; 0 predicts nothing"
        )
        require(0 < drain < math.inf, "predictive", "drain_seconds", drain, "positive and finite")

    def start(self, limits: Limits) -> PredictiveRun:
        return PredictiveRun(self, limits)


class PredictiveRun:
    """The predictive controller at work.

    It remembers what one busy instance did in the last period with any work, what the windows held one period ago, and how
    many pairs of the windows are found by each that is tried.
    """

    def __init__(self, settings: Predictive, limits: Limits) -> None:
        self._settings, self._limits = settings, limits
        self._capacity: dict[bool, float] = {}
        self._pairs = 1.0
        self._before: Observation | None = None

    def decide(self, observation: Observation) -> Decision:
        """Compare the greatest predicted work with what the instances can do; go to the target if it is out of range."""
        joins = observation.window_inputs is not None and len(observation.window_inputs) > 1
        if missing := observation.missing(JOIN_NEEDS if joins else TUPLE_NEEDS):
            return hold(observation, missing=missing)
        before, self._before = self._before, observation
        settings = self._settings
        if joins:
            work = join_work(observation, before, settings.horizon_seconds, settings.drain_seconds)
            self._pairs = pairs_per_comparison(observation, work.now) or self._pairs
            done: float | None = (observation.comparisons or 0.0) * self._pairs
        else:
            work = tuple_work(observation, settings.drain_seconds)
            done = observation.processed
        if done is not None and done >= NEGLIGIBLE and observation.busy_instances > 0:
            self._capacity[joins] = done / observation.busy_instances
        if joins not in self._capacity and work.greatest > 0:
            return hold(observation, "no work was done yet, so its cost is unknown")
        return self._size(observation, work, self._capacity.get(joins, math.inf))

    def _size(self, observation: Observation, work: PredictedWork, capacity: float) -> Decision:
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
            return hold(observation, f"{seen}, {self._why_hold(before, enough, in_range)}")
        expected = Effect(
            utilisation=min(needed / wanted, 1.0),
            processed=work.tuples_per_second * min(1.0, wanted / needed) if needed > 0 else 0.0,
        )
        rejected: tuple[Alternative, ...] = ()
        if wanted > self._limits.least:
            rejected = (Alternative(wanted - 1, f"would be used to {needed / (wanted - 1):.0%}"),)
        why = f"{seen}, {needed / wanted:.0%} of {wanted}; the range is {settings.lower:.0%} to {settings.upper:.0%}"
        return resize(observation, wanted, why, expected=expected, rejected=rejected)

    def _why_hold(self, before: int, enough: int, in_range: bool) -> str:
        if in_range:
            return f"within {self._settings.lower:.0%} to {self._settings.upper:.0%}"
        if enough > before:
            return "too much, but these are the most instances allowed"
        if enough < before:
            return "little, but these are the fewest instances allowed"
        return f"little, but fewer would be used to more than {self._settings.target_utilisation:.0%}"
