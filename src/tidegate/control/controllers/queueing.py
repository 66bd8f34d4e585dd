"""The queueing model: the fewest instances with which the mean time through the whole query meets a target.

Elasticutor (§4.1) takes the query for a Jackson network in which subquery j is an M/M/k_j queue, so that the mean time is
E[T] = (1/λ0)·Σ λ_j·E[T_j](k_j). Each k_j starts at the fewest that are stable, ⌊λ_j/μ_j⌋ + 1, and the instance that takes
most off E[T] is added until the target is met or there are no more.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tidegate.control.controller import Alternative, Decision, Effect, Limits, hold, require, resize
from tidegate.control.erlang import least_stable, mean_sojourn, mean_sojourns
from tidegate.control.instantiate import share_out
from tidegate.control.observation import Observation, Station
from tidegate.errors import UserError

ATTAINABLE = 1.05
"""The mean time to aim at where the target is below the service times alone, in units of these: 5 % above them."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Instances for each station, in their order, and the mean time through the network that they give."""

    instances: tuple[int, ...]
    seconds: float


def allocate(stations: Sequence[Station], arrival_rate: float, target_seconds: float, cores: int) -> Allocation:
    """The fewest instances whose mean time is at most the target; all cores, best used, where that takes more.

    Greedy is optimal: E[T_j] is convex in k_j, so the gains of a station only fall, and the steps with the largest gains
    are the best set of that size (Fu et al., DRS, ICDCS 2015). A heap holds each station's next gain, and the recurrence
    behind it takes O(1) a step, so n steps over m stations cost O(n·log m). Where not even the stable minimum fits, no
    mean exists; the cores are then split so that the most overloaded station is as little so as can be.
    """
    if arrival_rate <= 0 or math.isnan(arrival_rate):
        raise UserError(
            f"queueing: the network's arrival rate must be above 0, got {arrival_rate}; a query without input has no "
            "mean time"
        )
    minimum = [least_stable(each.arrival_rate, each.service_rate) for each in stations]
    if sum(minimum) > cores:
        return Allocation(share_out([each.arrival_rate / each.service_rate for each in stations], cores), math.inf)
    instances, spare = minimum, cores - sum(minimum)
    series = [mean_sojourns(each.arrival_rate, each.service_rate) for each in stations]
    weights = [each.arrival_rate / arrival_rate for each in stations]
    present = [weight * next(each) for weight, each in zip(weights, series, strict=True)]
    following = [weight * next(each) for weight, each in zip(weights, series, strict=True)]
    gains = [(after - before, place) for place, (before, after) in enumerate(zip(present, following, strict=True))]
    heapq.heapify(gains)
    total = summed = math.fsum(present)
    while total > target_seconds and spare > 0 and gains:
        gain, place = gains[0]
        instances[place] += 1
        spare -= 1
        present[place], following[place] = following[place], weights[place] * next(series[place])
        heapq.heapreplace(gains, (following[place] - present[place], place))
        # A running total is as exact as the largest value it had, so it is summed afresh when it has halved, and where
        # it is too close to the target to be sure of its last digits.
        total += gain
        if total <= summed / 2 or abs(total - target_seconds) <= 1e-9 * target_seconds:
            total = summed = math.fsum(present)
    return Allocation(tuple(instances), math.fsum(present))


def mean_seconds(stations: Sequence[Station], arrival_rate: float, instances: Sequence[int]) -> float:
    """E[T] of the network with so many instances at each station."""
    terms = (
        each.arrival_rate * mean_sojourn(count, each.arrival_rate, each.service_rate)
        for each, count in zip(stations, instances, strict=True)
        if each.arrival_rate > 0
    )
    return math.fsum(terms) / arrival_rate


def kept_or_changed(now: int, needed: int, kept: int) -> int:
    """Up to what is needed, down to what is enough with a margin, and otherwise as it is.

    >>> [kept_or_changed(now, 3, 4) for now in (2, 3, 4, 5)]
    [3, 3, 4, 4]
    """
    return min(max(now, needed), max(needed, kept))


@dataclass(frozen=True, slots=True)
class Queueing:
    """Keeps the fewest instances whose mean time through the query, by queueing theory, meets a latency target.

    target_seconds
        the mean time through the query that is wanted. No number of instances takes it below the service times alone;
        the controller then aims at ATTAINABLE times those, because the last percents would cost all cores.
    cores
        what the query may use in all; None stands for the subquery's own limit times the number of subqueries.
    margin
        how much more load the network must bear with fewer instances before any is given up.

    Measured rates are never twice the same, and the model rounds up, so on constant load its answer would flip whenever
    the noise crosses a step. It is therefore asked twice: with the rates as measured, which says how many are needed,
    and with `margin` more arrivals, which says how many are worth keeping. Below the first it goes up, above the second
    down, and in between it holds. With a steady service rate, a subquery alone then never turns round as long as two
    measurements of its arrival rate differ by no more than the margin: what it went up to is needed at the larger, and
    so kept at the smaller; what it went down to is enough at the smaller with the margin, and so at the larger.
    """

    target_seconds: float = 0.5
    cores: int | None = None
    margin: float = 0.1
    name: ClassVar[str] = "queueing"

    def __post_init__(self) -> None:
        require(
            0 < self.target_seconds < math.inf, "queueing", "target_seconds", self.target_seconds, "finite and above 0"
        )
        require(self.cores is None or self.cores >= 1, "queueing", "cores", self.cores, "at least 1, or None")
        require(0 <= self.margin < math.inf, "queueing", "margin", self.margin, "finite and at least 0")

    def start(self, limits: Limits) -> QueueingDeciding:
        return QueueingDeciding(self, limits)


@dataclass(frozen=True, slots=True)
class QueueingDeciding:
    """The queueing model at work on one subquery; it remembers nothing."""

    settings: Queueing
    limits: Limits

    def decide(self, observation: Observation) -> Decision:
        stations, arriving = observation.network, observation.network_arrival_rate
        if missing := observation.missing(("network", "network_arrival_rate")):
            return hold(observation, missing=missing)
        assert stations is not None
        assert arriving is not None
        own = next((place for place, each in enumerate(stations) if each.subquery == observation.subquery), None)
        if arriving <= 0 or (observation.demand if own is None else stations[own].arrival_rate) == 0:
            if observation.waiting:
                return hold(observation, f"nothing arrives, but {observation.waiting:,.0f} tuples wait")
            return resize(observation, self.limits.least, "nothing arrives, so the fewest instances will do")
        if own is None:
            return hold(observation, "the network does not contain this subquery", missing=("network",))
        settings, now = self.settings, observation.instances
        cores = settings.cores or self.limits.most * len(stations)
        if cores < len(stations):
            raise UserError(
                f"queueing: {cores} cores for {len(stations)} subqueries; give each of them at least one core"
            )
        floor = math.fsum(each.arrival_rate / each.service_rate for each in stations) / arriving
        target = max(settings.target_seconds, ATTAINABLE * floor)
        needed = allocate(stations, arriving, target, cores)
        busier = [replace(each, arrival_rate=each.arrival_rate * (1 + settings.margin)) for each in stations]
        kept = allocate(busier, arriving * (1 + settings.margin), target, cores)
        up = self.limits.clamp(needed.instances[own])
        after = kept_or_changed(now, up, self.limits.clamp(kept.instances[own]))
        station, least = stations[own], needed.instances[own]
        seconds = mean_seconds(stations, arriving, (*needed.instances[:own], after, *needed.instances[own + 1 :]))
        why = (
            f"{station.arrival_rate:g}/s arrive and an instance completes {station.service_rate:g}/s; with {least} "
            f"instances here the mean time is {needed.seconds:.4g} s for a target of {target:.4g} s"
        )
        rejected: tuple[Alternative, ...] = ()
        if after == now and least < now:
            rejected = (Alternative(least, f"would be too few again if {settings.margin:.0%} more arrived"),)
        expected = Effect(
            utilisation=min(1.0, station.arrival_rate / (station.service_rate * after)),
            latency_seconds=seconds if math.isfinite(seconds) else None,
            processed=min(station.arrival_rate, station.service_rate * after),
        )
        return resize(observation, after, why, expected=expected, rejected=rejected)
