"""The verdict that one shard is the limit: what to say instead of adding instances that cannot help.

A shard is the unit that is placed, so an instance holds all of it or nothing. Where one shard asks for more than an
instance does, or for so large a share that its instance stays the most loaded whatever the others hold, more instances
change nothing: the remedy is more shards, or, if it is one key, a query that splits it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import UserError

THETA = 1.2
"""The largest ratio of the most loaded instance to the average that counts as even (Elasticutor §3.1)."""

ROUNDING = 1e-12
"""The relative difference of two loads that is not told from rounding."""


@dataclass(frozen=True, slots=True)
class OneKey:
    """The heaviest shard, and why more than `useful_instances` instances do not help.

    `share` is its part of the whole load. `instances_needed` is its load over what one instance does, where that is
    known: above 1 no mapping can serve it.
    """

    shard: int
    load: float
    share: float
    useful_instances: int
    instances_needed: float | None = None

    def __str__(self) -> str:
        if self.instances_needed is not None and self.instances_needed > 1:
            return f"shard {self.shard} alone needs {self.instances_needed:.2f} instances: more will not help it"
        return (
            f"shard {self.shard} alone carries {self.share:.0%} of the load: "
            f"more than {self.useful_instances} instances will not help"
        )


def one_key(
    shard_loads: Sequence[float] | NDArray[Any], instances: int, capacity: float | None = None, theta: float = THETA
) -> OneKey | None:
    """The shard that limits `instances` instances, or None if none does.

    It limits when its load exceeds `capacity`, what one instance does in the unit of the loads, or when its share of
    the total exceeds θ/n, so that the ratio of most loaded to average is above θ for every mapping.
    """
    if instances < 1 or theta < 1 or (capacity is not None and capacity <= 0):
        raise UserError(
            f"one_key: instances ({instances}) and theta ({theta}) must be ≥ 1 and capacity ({capacity}) above zero; "
            "give what one instance does in the unit of the loads, or None if it is not known"
        )
    loads = np.asarray(shard_loads, dtype=np.float64)
    total = float(loads.sum())
    if total <= 0:
        return None
    shard = int(np.argmax(loads))
    load = float(loads[shard])
    share = load / total
    needed = None if capacity is None else load / capacity
    if load * instances <= theta * total * (1 + ROUNDING) and (needed is None or needed <= 1):
        return None
    return OneKey(shard, load, share, max(1, math.floor(theta * total / load * (1 + ROUNDING))), needed)
