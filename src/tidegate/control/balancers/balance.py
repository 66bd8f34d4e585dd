"""What a balancer returns, what it is, and the measures of evenness all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegate.control.balancers.one_key import OneKey
from tidegate.errors import UserError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Shards: TypeAlias = Sequence[int] | NDArray[Any]
Loads: TypeAlias = Sequence[float] | NDArray[Any]


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
class Balance:
    """A plan: where each shard goes, what that moves, and how even it is before and after.

    `deviation_before` and `deviation_after` are population standard deviations of the instances' loads, in the unit of
    the loads. Before counts the instances there are and those there shall be, so a new and empty instance makes it
    large. `moved` lists the shards whose instance changes, ascending. `moved_bytes` is None where sizes were not given.
    """

    mapping: tuple[int, ...]
    moved: tuple[int, ...]
    deviation_before: float
    deviation_after: float
    verdict: Verdict
    limit: OneKey | None = None
    moved_bytes: int | None = None


class Balancer(Protocol):
    """A rule for which shard goes to which instance: a frozen value, validated when made.

    `mapping` may name instances that shall no longer be there (`≥ instances`): their shards are always moved.
    Instances that no shard is mapped to are there to be used. The loads' unit is the caller's; a bound given in
    absolute terms, as StreamCloud's upper imbalance threshold, is in that same unit.
    """

    @property
    def name(self) -> str: ...

    def balance(
        self, mapping: Shards, shard_loads: Loads, instances: int, shard_state_bytes: Shards | None = None
    ) -> Balance: ...


def checked(
    mapping: Shards, shard_loads: Loads, instances: int, shard_state_bytes: Shards | None
) -> tuple[Ints, Floats, Ints | None]:
    """The arguments of a balancer as columns, refused where they contradict each other."""
    owners = np.asarray(mapping, dtype=np.int64)
    loads = np.asarray(shard_loads, dtype=np.float64)
    sizes = None if shard_state_bytes is None else np.asarray(shard_state_bytes, dtype=np.int64)
    if instances < 1:
        raise UserError(f"balancer: shards need at least one instance, {instances} came; give a number ≥ 1")
    if len(owners) != len(loads) or (sizes is not None and len(sizes) != len(owners)):
        raise UserError(
            f"balancer: mapping ({len(owners)}), loads ({len(loads)}) and state sizes "
            f"({'none' if sizes is None else len(sizes)}) must have one entry per shard; give all for the same shards"
        )
    if len(owners) and owners.min() < 0:
        raise UserError(f"balancer: mapping names instance {owners.min()}; instances are numbered from 0")
    if not (np.isfinite(loads).all() and (loads >= 0).all()):
        raise UserError("balancer: a shard's load must be finite and not negative; leave out shards not measured")
    return owners, loads, sizes


def instance_loads(owners: Ints, loads: Floats, instances: int) -> Floats:
    """The load of each instance, of those there shall be and of those that the mapping still names."""
    return np.bincount(owners, weights=loads, minlength=instances).astype(np.float64)


def deviation(loads: Floats) -> float:
    """Population standard deviation: StreamCloud's U_sd, with the 1/n its figure 12 leaves out."""
    return float(np.std(loads))


def imbalance(loads: Floats) -> float:
    """Elasticutor's δ: the most loaded instance over the average; 1 where there is no load at all."""
    average = float(np.mean(loads))
    return float(np.max(loads)) / average if average > 0 else 1.0


def planned(
    before: Ints,
    after: Ints,
    loads: Floats,
    instances: int,
    sizes: Ints | None,
    verdict: Verdict,
    limit: OneKey | None = None,
) -> Balance:
    """The plan that leads from one mapping to the other."""
    moved = np.flatnonzero(before != after)
    return Balance(
        mapping=tuple(after.tolist()),
        moved=tuple(moved.tolist()),
        deviation_before=deviation(instance_loads(before, loads, instances)),
        deviation_after=deviation(instance_loads(after, loads, instances)),
        verdict=verdict,
        limit=limit,
        moved_bytes=None if sizes is None else int(sizes[moved].sum()),
    )
