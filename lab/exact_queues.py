"""Queues played tuple by tuple, to hold the fluid simulation and the closed forms against.

Slow and obvious: a heap of the times at which servers become free. Poisson arrivals and exponential service make M/M/k.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.errors import UserError
from tidegate.simulate.loads import Floats


@dataclass(frozen=True, slots=True)
class Server:
    """A station of a chain: so many servers with exponential service, and what share of its results goes on."""

    servers: int
    service_rate: float
    passes: float = 1.0

    def __post_init__(self) -> None:
        if self.servers < 1 or self.service_rate <= 0 or not 0 <= self.passes <= 1:
            raise UserError(
                f"server: must have servers ≥ 1, service_rate > 0 and 0 ≤ passes ≤ 1; got {self.servers}, "
                f"{self.service_rate:g} and {self.passes:g}"
            )


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, and how far it may be off: its standard error."""

    mean: float
    standard_error: float

    def covers(self, value: float, errors: float) -> bool:
        """Whether a value lies within so many standard errors."""
        return abs(value - self.mean) <= errors * self.standard_error


def poisson_arrivals(rate: float, count: int, random: np.random.Generator) -> Floats:
    """The times of so many arrivals."""
    return np.asarray(np.cumsum(random.exponential(1.0 / rate, count)))


def departures(arrivals: Floats, services: Floats, servers: int) -> Floats:
    """When each tuple is done: first come, first served, by whichever server is free first. O(n log servers)."""
    free = [-math.inf] * servers
    done = np.empty(len(arrivals))
    for index, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        done[index] = finish = max(arrival, free[0]) + service
        heapq.heapreplace(free, finish)
    return done


def sojourns(
    stations: Sequence[Server], arrival_rate: float, count: int, *, seed: int, warm_up: float = 0.1
) -> list[Floats]:
    """For each station of a chain, the time that each tuple spent there, in order of arrival.

    The first `warm_up` of them is left out, when queues were still shorter than they will be.
    """
    random = np.random.default_rng(seed)
    arrivals = poisson_arrivals(arrival_rate, count, random)
    spent: list[Floats] = []
    for station in stations:
        services = random.exponential(1.0 / station.service_rate, len(arrivals))
        done = departures(arrivals, services, station.servers)
        spent.append((done - arrivals)[int(warm_up * len(arrivals)) :])
        arrivals = np.sort(done[random.random(len(done)) < station.passes])
    return spent


def batch_mean(values: Floats, batches: int = 30) -> Estimate:
    """The mean of values that depend on their neighbours: its error comes from the means of long batches."""
    size = len(values) // batches
    if size < 1:
        raise UserError(f"batch mean: {len(values)} values do not fill {batches} batches; give more values")
    means = values[: size * batches].reshape(batches, size).mean(axis=1)
    return Estimate(float(means.mean()), float(means.std(ddof=1) / math.sqrt(batches)))
