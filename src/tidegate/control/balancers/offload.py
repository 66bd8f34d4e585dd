"""StreamCloud's Offload: the instances that carry least give their shards away (fig. 12, line 8)."""

from __future__ import annotations

from dataclasses import dataclass
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
    onto_rest,
    planned,
)


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
