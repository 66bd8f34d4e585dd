"""Balancers of the papers that no controller uses: Gedik's ring, and StreamCloud's Offload of the least loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tidegate.control.balancers.balance import (
    Balance,
    Floats,
    Ints,
    Loads,
    Shards,
    Verdict,
    checked,
    instance_loads,
    onto_rest,
    planned,
)
from tidegate.errors import UserError
from tidegate.simulate.model import GOLDEN, mixed


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


@dataclass(frozen=True, slots=True)
class Offload:
    """Empties the instances that carry least, heaviest shard first, each onto the then least loaded that stays.

    Instances are numbered from 0 without gaps, so one that stays but whose number shall go takes the number of an emptied
    one, and its shards count as moved. Controllers empty the last instances instead (`onto_rest`), which moves less.
    """

    name: ClassVar[str] = "offload"

    def balance(self, mapping: Shards, shard_loads: Loads, instances: int) -> Balance:
        owners, loads = checked(mapping, shard_loads, instances)
        after = onto_rest(_least_loaded_last(owners, loads, instances), loads, instances)
        there = not len(owners) or int(owners.max()) < instances
        return planned(owners, after, loads, instances, Verdict.EVEN if there else Verdict.BALANCED)


def _least_loaded_last(owners: Ints, loads: Floats, instances: int) -> Ints:
    """The mapping renumbered so that the instances beyond `instances` are the least loaded ones."""
    carried = instance_loads(owners, loads, instances)
    lightest_first = np.lexsort((-np.arange(len(carried)), carried))
    released = lightest_first[: len(carried) - instances]
    goes = np.zeros(len(carried), dtype=bool)
    goes[released] = True
    numbers = np.arange(len(carried))
    free = np.flatnonzero(goes & (numbers < instances))
    homeless = np.flatnonzero(~goes & (numbers >= instances))
    numbers[free], numbers[homeless] = homeless, free
    return numbers[owners]
