"""How tuples spread over keys, and keys over shards; all of it decided by seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidegate.control.balancers.consistent_hashing import GOLDEN, mixed
from tidegate.errors import UserError

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]


class KeyDistribution(Protocol):
    """The share of tuples that each key gets; it stays the same as long as `era` answers the same number."""

    @property
    def keys(self) -> int: ...

    def era(self, seconds: float) -> int: ...

    def shares(self, era: int) -> Floats:
        """For each key its share; they add up to 1."""
        ...


@dataclass(frozen=True, slots=True)
class UniformKeys:
    """Every key is as frequent as every other."""

    keys: int = 10_000

    def __post_init__(self) -> None:
        _some_keys(self.keys)

    def era(self, seconds: float) -> int:
        return 0

    def shares(self, era: int) -> Floats:
        return np.full(self.keys, 1.0 / self.keys)


@dataclass(frozen=True, slots=True)
class ZipfKeys:
    """The k-th most frequent key has a share ∝ k^−exponent; which key is k-th changes ω times a minute.

    The defaults are those of Elasticutor §5.1, whose ω is `shuffles_per_minute`.
    """

    keys: int = 10_000
    exponent: float = 0.5
    shuffles_per_minute: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _some_keys(self.keys)
        if self.exponent < 0 or self.shuffles_per_minute < 0:
            raise UserError(
                f"zipf keys: exponent ({self.exponent:g}) and shuffles_per_minute ({self.shuffles_per_minute:g}) "
                "must be 0 or more"
            )

    def era(self, seconds: float) -> int:
        # A little is added so that a shuffle on the edge of a tick is not put off by rounding.
        return int(seconds * self.shuffles_per_minute / 60.0 + 1e-9)

    def shares(self, era: int) -> Floats:
        ranked = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.exponent
        return np.random.default_rng((self.seed, era)).permutation(ranked / ranked.sum())


@dataclass(frozen=True, slots=True)
class Shift:
    """From `at_seconds` on, keys are normally distributed around `mean`; uniformly, if there is no `deviation`."""

    at_seconds: float
    mean: float = 0.0
    deviation: float | None = None


@dataclass(frozen=True, slots=True)
class NormalKeys:
    """Keys that are normally distributed over 0 … keys − 1, with mean and deviation that shift (StreamCloud fig. 20)."""

    shifts: tuple[Shift, ...]
    keys: int = 10_000

    def __post_init__(self) -> None:
        _some_keys(self.keys)
        times = [shift.at_seconds for shift in self.shifts]
        if not times or times[0] != 0 or sorted(set(times)) != times:
            raise UserError(f"normal keys: shifts at {times} s; the first must be at 0 and times must rise")
        for shift in self.shifts:
            if shift.deviation is not None and shift.deviation <= 0:
                raise UserError(
                    f"normal keys: deviation ({shift.deviation:g}) must be more than 0, or None for uniform"
                )

    def era(self, seconds: float) -> int:
        return sum(shift.at_seconds <= seconds + 1e-9 for shift in self.shifts) - 1

    def shares(self, era: int) -> Floats:
        shift = self.shifts[era]
        if shift.deviation is None:
            return np.full(self.keys, 1.0 / self.keys)
        away = (np.arange(self.keys) - shift.mean) / shift.deviation
        density: Floats = np.exp(-0.5 * away * away)
        return np.asarray(density / density.sum())


def shard_of_keys(keys: int, shards: int, seed: int = 0) -> Integers:
    """The shard of each key 0 … keys − 1: a mixing hash, then modulo."""
    hashes = mixed(np.arange(keys, dtype=np.uint64) + np.uint64(seed + 1) * GOLDEN)
    return (hashes % np.uint64(shards)).astype(np.int64)


def shard_shares(distribution: KeyDistribution, shards: int, era: int, seed: int = 0) -> Floats:
    """For each shard, the share of tuples that its keys get."""
    places = shard_of_keys(distribution.keys, shards, seed)
    return np.bincount(places, weights=distribution.shares(era), minlength=shards).astype(np.float64)


def spread(shards: int, instances: int) -> Integers:
    """The mapping that deals shards to instances in turn."""
    return np.arange(shards, dtype=np.int64) % instances


def respread(mapping: Integers, instances: int) -> Integers:
    """A mapping to another number of instances, with counts of shards as even as can be and as few moved as that needs.

    An instance keeps its first shards up to its new count; the rest fill those that are short, in order.
    """
    shards = len(mapping)
    wanted = np.full(instances, shards // instances)
    wanted[: shards % instances] += 1
    order = np.argsort(mapping, kind="stable")
    counts = np.bincount(mapping, minlength=max(instances, int(mapping.max(initial=0)) + 1))
    rank = np.empty(shards, dtype=np.int64)
    rank[order] = np.arange(shards) - np.repeat(np.cumsum(counts) - counts, counts)
    allowed = np.zeros(len(counts), dtype=np.int64)
    allowed[:instances] = wanted
    moving = rank >= allowed[mapping]
    short = wanted - np.minimum(counts[:instances], wanted)
    made = mapping.copy()
    made[moving] = np.repeat(np.arange(instances), short)
    return made


def _some_keys(keys: int) -> None:
    if keys < 1:
        raise UserError(f"key distribution: keys ({keys}) must be 1 or more")
