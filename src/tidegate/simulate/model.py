"""What is simulated: a subquery with its costs and keys, the load offered to it, and the errors of measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate.control.balancers.balance import Ints
from tidegate.control.balancers.consistent_hashing import GOLDEN, mixed
from tidegate.errors import UserError
from tidegate.simulate.loads import Floats, Load


def _check(subject: str, model: object, above_0: tuple[str, ...] = (), at_least_0: tuple[str, ...] = ()) -> None:
    for name in (*above_0, *at_least_0):
        value, above = getattr(model, name), name in above_0
        if not (0 < value < math.inf if above else value >= 0):
            rule = "more than 0 and finite" if above else "0 or more"
            raise UserError(f"{subject}: {name} must be {rule}; got {value}")


class KeyDistribution(Protocol):
    """The share of tuples that each key gets; it stays the same as long as `era` returns the same number."""

    @property
    def keys(self) -> int: ...

    def era(self, seconds: float) -> int: ...

    def shares(self, era: int) -> Floats:
        """For each key its share; they add up to 1."""
        ...


@dataclass(frozen=True, slots=True)
class ZipfKeys:
    """The k-th most frequent key has a share ∝ k^−exponent; which key is k-th changes ω times a minute.

    The defaults are those of Elasticutor §5.1, whose ω is `shuffles_per_minute`. An exponent of 0 is uniform.
    """

    keys: int = 10_000
    exponent: float = 0.5
    shuffles_per_minute: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check("zipf keys", self, above_0=("keys",), at_least_0=("exponent", "shuffles_per_minute"))

    def era(self, seconds: float) -> int:
        # A little is added so that a shuffle on the edge of a tick is not put off by rounding.
        return int(seconds * self.shuffles_per_minute / 60.0 + 1e-9)

    def shares(self, era: int) -> Floats:
        ranked = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.exponent
        return np.random.default_rng((self.seed, era)).permutation(ranked / ranked.sum())


def shard_of_keys(keys: int, shards: int) -> Ints:
    """The shard of each key 0 … keys − 1: a mixing hash, then modulo."""
    return (mixed(np.arange(keys, dtype=np.uint64) + GOLDEN) % np.uint64(shards)).astype(np.int64)


def shard_shares(distribution: KeyDistribution, shards: int, era: int) -> Floats:
    """For each shard, the share of tuples that its keys get."""
    places = shard_of_keys(distribution.keys, shards)
    return np.bincount(places, weights=distribution.shares(era), minlength=shards).astype(np.float64)


@dataclass(frozen=True, slots=True)
class ReconfigurationCost:
    """What a change of instances costs: a pause of the subquery, and the time until new instances are there.

    Until new instances are there the old ones go on; the change and its pause come then. Removal needs no such wait.
    """

    pause_seconds: float = 0.0
    start_seconds: float = 0.0

    def __post_init__(self) -> None:
        _check("reconfiguration cost", self, at_least_0=("pause_seconds", "start_seconds"))


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """A window join: each tuple, half of them from each input, is compared with what is held of the other input.

    The windows hold what arrived in the last `window_seconds` of event time, so after a change of rate they take that
    long to fill or drain.
    """

    window_seconds: float
    seconds_per_comparison: float

    def __post_init__(self) -> None:
        _check("join window", self, above_0=("window_seconds",), at_least_0=("seconds_per_comparison",))


@dataclass(frozen=True, slots=True)
class SubqueryModel:
    """A subquery and what it costs.

    service_seconds
        one instance's time for a tuple, on average, when it is the only instance.
    keys, shards
        how tuples spread over keys and these over shards, which are mapped to instances; without `keys` any instance
        takes any tuple from one queue.
    buffer_tuples
        what fits in front of each instance before senders have to wait. With keys, one full buffer stops all.
    """

    name: str
    service_seconds: float
    keys: KeyDistribution | None = None
    shards: int = 256
    buffer_tuples: float = 500.0
    window: JoinWindow | None = None
    cost: ReconfigurationCost = ReconfigurationCost()

    def __post_init__(self) -> None:
        _check(f"subquery '{self.name}'", self, above_0=("service_seconds", "shards", "buffer_tuples"))

    def speed(self, instances: int) -> float:
        """What one of so many instances is worth, as a share of one that is alone; less in a model with contention."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Noise:
    """How far what is observed is off: relative standard deviations, 0 on average; and how uneven arrivals are.

    `arrivals` is the variance of a tick's arrivals over their mean: 0 is as even as can be, 1 is Poisson. With even
    arrivals a subquery whose capacity equals its load never falls behind; with uneven ones it does, as queues do.
    `idle_congestion` is the mean share of the time in which sources appear blocked although there is room, drawn anew
    each period from an exponential distribution: transport buffers that fill for a moment.
    """

    rates: float = 0.0
    busy: float = 0.0
    congestion: float = 0.0
    latency: float = 0.0
    arrivals: float = 0.0
    idle_congestion: float = 0.0

    def __post_init__(self) -> None:
        _check("noise", self, at_least_0=self.__slots__)


@dataclass(frozen=True, slots=True)
class SimulatedQuery:
    """One subquery under a load.

    If its source `waits`, what cannot be taken in waits in the source, as in a log or a queue, and nothing is lost.
    Otherwise the source slows down and does not produce what it cannot send: Gedik's available and handled load.
    """

    subquery: SubqueryModel
    load: Load
    waits: bool = True
    noise: Noise = Noise()
