"""StreamCloud's Offload (fig. 12, line 8): empty the instances that shall go onto those that stay."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar

import numpy as np

from tidegate.control.balancers.balance import (
    Balance,
    Floats,
    Ints,
    Loads,
    Shards,
    Verdict,
    checked,
    instance_loads,
    planned,
)
from tidegate.errors import UserError, choices

RELEASES = ("least-loaded", "last")


@dataclass(frozen=True, slots=True)
class Offload:
    """Empties as many instances as shall go, heaviest shard first, each onto the then least loaded that stays.

    release
        ``"least-loaded"``, the paper's: those that carry least are emptied. Instances are numbered from 0 without
        gaps, so one that stays but whose number shall go takes the number of an emptied one, and its shards count as
        moved. ``"last"`` empties those with the highest numbers: fewer shards change their number, which is what
        costs where a number stands for one thread or one machine.

    The paper names the function and no more; the order is longest-processing-time-first, which keeps the most loaded
    instance within 4/3 of the best possible when the others start empty. Cost: s·log s for s shards that move.
    """

    release: str = "least-loaded"
    name: ClassVar[str] = "offload"

    def __post_init__(self) -> None:
        if self.release not in RELEASES:
            raise UserError(f"offload: release is '{self.release}'; choose one of {choices(RELEASES)}")

    def balance(
        self, mapping: Shards, shard_loads: Loads, instances: int, shard_state_bytes: Shards | None = None
    ) -> Balance:
        owners, loads, sizes = checked(mapping, shard_loads, instances, shard_state_bytes)
        renumbered = owners if self.release == "last" else _least_loaded_last(owners, loads, instances)
        after = onto_rest(renumbered, loads, instances)
        there = not len(owners) or int(owners.max()) < instances
        return planned(owners, after, loads, instances, sizes, Verdict.EVEN if there else Verdict.BALANCED)


def onto_rest(owners: Ints, loads: Floats, instances: int) -> Ints:
    """The mapping with every shard of an instance `≥ instances` moved to one that stays; the others untouched."""
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
