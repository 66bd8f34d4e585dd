"""What a balancer is and returns, the measures of evenness that all share, and the verdict that one shard is the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import heapify, heapreplace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegate.control.observation import HotKey, Observation
from tidegate.errors import UserError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Shards: TypeAlias = Sequence[int] | NDArray[Any]
Loads: TypeAlias = Sequence[float] | NDArray[Any]

THETA = 1.2
"""The largest ratio of the most loaded instance to the average that counts as even (Elasticutor §3.1)."""

ROUNDING = 1e-12
"""The relative difference of two loads that may be rounding."""

SATURATED = 0.99
"""A busy share from which on an instance may have had more to do than it could."""


class Verdict(StrEnum):
    """How a balancer ended."""

    EVEN = "even"
    """It was as even as asked for before anything moved."""
    BALANCED = "balanced"
    """It is as even as asked for once the plan is carried out."""
    STUCK = "stuck"
    """It is not, and no single move would make it more even."""
    ONE_KEY = "one key"
    """It is not, and one shard alone is the reason: neither moves nor more instances will help."""
    NOT_WORTH = "not worth it"
    """Moves would help less than the least improvement asked for, so nothing moves."""


@dataclass(frozen=True, slots=True)
class OneKey:
    """The heaviest shard, its part of the whole load, and how many instances are of use at most.

    A shard is the unit that is placed. Where one asks for so large a share that its instance stays the most loaded
    whatever the others hold, more instances change nothing: the remedy is more shards, or, if it is one key, a query that
    splits it. `hot_key` is the shard's most frequent key, where that is known.
    """

    shard: int
    share: float
    useful_instances: int
    hot_key: HotKey | None = None

    def __str__(self) -> str:
        key = "" if self.hot_key is None else f" ({self.hot_key})"
        return (
            f"shard {self.shard} alone carries {self.share:.0%} of the load{key}: "
            f"more than {self.useful_instances} instances will not help"
        )


def one_key(loads: Floats, instances: int, theta: float = THETA) -> OneKey | None:
    """The shard whose share of the load exceeds θ/n, so that most loaded over average is above θ for every mapping."""
    total = float(loads.sum())
    if total <= 0:
        return None
    shard = int(np.argmax(loads))
    load = float(loads[shard])
    if load * instances <= theta * total * (1 + ROUNDING):
        return None
    return OneKey(shard, load / total, max(1, math.floor(theta * total / load * (1 + ROUNDING))))


@dataclass(frozen=True, slots=True)
class Balance:
    """A plan: where each shard goes, what that moves, and how even it is before and after.

    `deviation_before` and `deviation_after` are population standard deviations of the instances' loads, in the unit of
    the loads. Before counts the instances there are and those there shall be, so a new and empty instance makes it
    large. `moved` lists the shards whose instance changes, ascending.
    """

    mapping: tuple[int, ...]
    moved: tuple[int, ...]
    deviation_before: float
    deviation_after: float
    verdict: Verdict
    limit: OneKey | None = None


class Balancer(Protocol):
    """A rule for which shard goes to which instance: a frozen value, validated when built.

    `mapping` may name instances that shall no longer be there (`≥ instances`): their shards are always moved.
    Instances that no shard is mapped to are there to be used. The loads' unit is the caller's; a bound given in
    absolute terms, as StreamCloud's upper imbalance threshold, is in that same unit.
    """

    @property
    def name(self) -> str: ...

    def balance(self, mapping: Shards, shard_loads: Loads, instances: int) -> Balance: ...


def checked(mapping: Shards, shard_loads: Loads, instances: int) -> tuple[Ints, Floats]:
    """The arguments of a balancer as columns, refused where they contradict each other."""
    owners = np.asarray(mapping, dtype=np.int64)
    loads = np.asarray(shard_loads, dtype=np.float64)
    if instances < 1:
        raise UserError(f"balancer: shards need at least one instance, not {instances}; give a number ≥ 1")
    if len(owners) != len(loads):
        raise UserError(
            f"balancer: mapping ({len(owners)}) and loads ({len(loads)}) must have one entry per shard; give both for "
            "the same shards"
        )
    if len(owners) and owners.min() < 0:
        raise UserError(f"balancer: mapping names instance {owners.min()}; instances are numbered from 0")
    if not (np.isfinite(loads).all() and (loads >= 0).all()):
        raise UserError("balancer: a shard's load must be finite and not negative; leave out shards not measured")
    return owners, loads


def instance_loads(owners: Ints, loads: Floats, instances: int) -> Floats:
    """The load of each instance, of those there shall be and of those that the mapping still names."""
    return np.bincount(owners, weights=loads, minlength=instances).astype(np.float64)


def deviation(loads: Floats) -> float:
    """Population standard deviation: StreamCloud's U_sd, with the 1/n its figure 12 leaves out."""
    return float(np.std(loads))


def planned(
    before: Ints, after: Ints, loads: Floats, instances: int, verdict: Verdict | None, theta: float = THETA
) -> Balance:
    """The plan that leads from one mapping to the other; without a verdict it ended stuck, maybe because of one key."""
    limit = one_key(loads, instances, theta) if verdict is None else None
    return Balance(
        mapping=tuple(after.tolist()),
        moved=tuple(np.flatnonzero(before != after).tolist()),
        deviation_before=deviation(instance_loads(before, loads, instances)),
        deviation_after=deviation(instance_loads(after, loads, instances)),
        verdict=verdict or (Verdict.STUCK if limit is None else Verdict.ONE_KEY),
        limit=limit,
    )


def onto_rest(owners: Ints, loads: Floats, instances: int) -> Ints:
    """The mapping with every shard of an instance `≥ instances` moved to one that stays; the others untouched.

    This is StreamCloud's Offload (fig. 12, line 8) of the last instances. The paper names the function and no more; here
    the heaviest shard goes first, each to the then least loaded instance that stays.
    """
    orphans = np.flatnonzero(owners >= instances)
    if not len(orphans):
        return owners
    after = owners.copy()
    carried = instance_loads(owners, loads, instances)[:instances].tolist()
    heap = [(load, instance) for instance, load in enumerate(carried)]
    heapify(heap)
    heaviest_first = orphans[np.argsort(-loads[orphans], kind="stable")]
    for shard, load in zip(heaviest_first.tolist(), loads[heaviest_first].tolist(), strict=True):
        lightest, instance = heap[0]
        after[shard] = instance
        heapreplace(heap, (lightest + load, instance))
    return after


def observed_shards(observation: Observation) -> tuple[Ints, Floats] | None:
    """The instance and the tuples per second of each shard; None where they are not known or contradict each other.

    None also where any instance does the work of any shard: a mapping changes nothing there.
    """
    mapping, loads = observation.mapping, observation.shard_loads
    if observation.pooled or observation.missing(("mapping", "shard_loads")) or mapping is None or loads is None:
        return None
    owners = np.fromiter(mapping, dtype=np.int64, count=len(mapping))
    rates = np.fromiter(loads, dtype=np.float64, count=len(loads))
    if len(owners) != len(rates) or rates.min() < 0 or owners.min() < 0 or owners.max() >= observation.instances:
        return None
    return owners, rates


def shard_name(observation: Observation, shard: int) -> str:
    """A shard in words, with its most frequent key where that is known."""
    hot = observation.hot_key
    return f"shard {shard}" + (f" ({hot})" if hot is not None and hot.shard == shard else "")


def named_limit(limit: OneKey, observation: Observation) -> OneKey:
    """The verdict with the key that comes most often in its shard, where that was observed."""
    hot = observation.hot_key
    return replace(limit, hot_key=hot) if hot is not None and hot.shard == limit.shard else limit


def shard_use(owners: Ints, rates: Floats, busy: Loads) -> Floats:
    """The busy share each shard causes: its part of its instance's tuples, times that instance's busy share.

    The sum over an instance's shards is its busy share, so the deviation of these loads is that of the busy shares.
    An instance that is busy all the time may have received more than it could do; its tuples are then counted at no
    less than they cost on average, or the most overloaded instance would pass for as loaded as its neighbours.
    """
    shares = np.asarray(busy, dtype=np.float64)
    received = np.bincount(owners, weights=rates, minlength=len(shares))
    costs = np.divide(shares, received, out=np.zeros_like(shares), where=received > 0)
    total = float(received.sum())
    if total > 0:
        average = float(shares[received > 0].sum()) / total
        costs = np.where(shares >= SATURATED, np.maximum(costs, average), costs)
    return np.asarray(costs[owners] * rates, dtype=np.float64)


class ShardMover:
    """A mapping that is being changed, shard by shard, with the most and the least loaded instance at hand.

    A move costs a pass over the shards. Of equally loaded instances the one with the lowest number counts as most and as
    least loaded, and of equally heavy shards the one with the lowest number moves first. `set_aside` hides an instance from
    `most_loaded` for good. A caller that only moves shards from the most to the least loaded, and less than their gap, may
    do so once nothing there helps: the least load never falls, so the gap only narrows, and by the time the instance is
    itself the least loaded no gap is left.
    """

    def __init__(self, owners: Ints, shard_loads: Floats, instances: int) -> None:
        self.owners, self._shard_loads = owners.copy(), shard_loads
        self.loads = instance_loads(owners, shard_loads, instances)
        self._aside = np.zeros(instances)

    def most_loaded(self) -> int | None:
        """The most loaded instance that is not set aside; None if all are."""
        instance = int(np.argmax(self.loads - self._aside))
        return None if self._aside[instance] else instance

    def least_loaded(self) -> int:
        """The least loaded instance."""
        return int(np.argmin(self.loads))

    def set_aside(self, instance: int) -> None:
        """Pass over an instance that has nothing worth moving."""
        self._aside[instance] = np.inf

    def largest_within(self, instance: int, least: float, most: float) -> int | None:
        """The heaviest shard of an instance whose load lies in [least, most]."""
        shards = np.flatnonzero((self.owners == instance) & (self._shard_loads >= least) & (self._shard_loads <= most))
        return int(shards[np.argmax(self._shard_loads[shards])]) if len(shards) else None

    def nearest(self, instance: int, load: float) -> int | None:
        """The shard of an instance whose load is nearest to `load`; of two as near, the lighter."""
        shards = np.flatnonzero(self.owners == instance)
        if not len(shards):
            return None
        distances = np.abs(self._shard_loads[shards] - load)
        nearest = shards[distances == distances.min()]
        return int(nearest[np.argmin(self._shard_loads[nearest])])

    def move(self, shard: int, target: int) -> float:
        """Move a shard to another instance; returns its load."""
        load = float(self._shard_loads[shard])
        self.loads[self.owners[shard]] -= load
        self.loads[target] += load
        self.owners[shard] = target
        return load
