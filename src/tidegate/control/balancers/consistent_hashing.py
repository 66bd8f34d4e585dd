"""Gedik's ring: a change of instances moves about one shard in n, and none between instances that stay (§6.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tidegate.control.balancers.balance import (
    Balance,
    Ints,
    Loads,
    Shards,
    Verdict,
    checked,
    planned,
)
from tidegate.errors import UserError

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio: the step between the states of SplitMix64."""


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection of 64-bit numbers that leaves no pattern of theirs."""
    spread = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return spread ^ (spread >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class ConsistentHashing:
    """Gives each shard to the instance whose point follows its own on a ring of 2⁶⁴ positions.

    Each instance has `virtual_nodes` points, so its share of the ring is within about 1/√virtual_nodes of even. Points
    depend on numbers alone: every process computes the same mapping, and loads play no part. From one of its own
    mappings to the next, an instance that comes takes shards from all others, one that goes leaves them to all others,
    about 1/n of them, and no shard moves between two that stay. From any other mapping most shards move.
    Cost: sorting instances × virtual_nodes points.
    """

    virtual_nodes: int = 128
    name: ClassVar[str] = "consistent-hashing"

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise UserError(
                f"consistent hashing: an instance needs at least one point on the ring, {self.virtual_nodes} came; "
                "give virtual_nodes ≥ 1, such as 128"
            )

    def first(self, shards: int, instances: int) -> tuple[int, ...]:
        """The mapping of `shards` shards to `instances` instances that have none yet."""
        return tuple(self._owners(shards, instances).tolist())

    def balance(self, mapping: Shards, shard_loads: Loads, instances: int) -> Balance:
        owners, loads = checked(mapping, shard_loads, instances)
        after = self._owners(len(owners), instances)
        verdict = Verdict.EVEN if np.array_equal(owners, after) else Verdict.BALANCED
        return planned(owners, after, loads, instances, verdict)

    def _owners(self, shards: int, instances: int) -> Ints:
        if instances < 1 or shards < 0:
            raise UserError(f"consistent hashing: {shards} shards on {instances} instances; give at least one instance")
        points = _on_ring(np.arange(instances * self.virtual_nodes, dtype=np.uint64) * np.uint64(2))
        order = np.argsort(points, kind="stable")
        places = _on_ring(np.arange(shards, dtype=np.uint64) * np.uint64(2) + np.uint64(1))
        following = np.searchsorted(points[order], places) % len(points)
        return order[following] // self.virtual_nodes


def _on_ring(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Positions spread over the ring, no two numbers on the same."""
    return mixed((numbers + np.uint64(1)) * GOLDEN)
