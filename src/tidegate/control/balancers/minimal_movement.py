"""Elasticutor's balancing inside a cell: as few shards as possible until no instance is far above the average (§3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tidegate.control.balancers.balance import (
    ROUNDING,
    THETA,
    Balance,
    Floats,
    Loads,
    ShardMover,
    Shards,
    Verdict,
    checked,
    instance_loads,
    onto_rest,
    planned,
)
from tidegate.errors import UserError


@dataclass(frozen=True, slots=True)
class MinimalMovement:
    """Moves one shard a round from the most to the least loaded instance until δ = max / average is at most θ.

    Of the shards of the most loaded instance it takes the one that lowers δ most: the one nearest to half the gap
    between the two. Where several instances are equally loaded that lowers δ only once the last of them is done. It
    stops when δ ≤ θ, or when no shard of the most loaded instance is smaller than the gap: then no single move, to
    whichever instance, lowers the maximum. Cost: a logarithm a round.
    """

    theta: float = THETA
    name: ClassVar[str] = "minimal-movement"

    def __post_init__(self) -> None:
        if not self.theta >= 1:
            raise UserError(
                f"minimal movement: theta ({self.theta}) must be ≥ 1, as no instance can lead the others below their "
                "average; give the ratio of the most loaded to the average that is even enough, such as 1.2"
            )

    def balance(self, mapping: Shards, shard_loads: Loads, instances: int) -> Balance:
        owners, loads = checked(mapping, shard_loads, instances)
        settled = onto_rest(owners, loads, instances)
        bound = self.theta * (1 + ROUNDING) * float(loads.sum()) / instances
        if np.max(instance_loads(settled, loads, instances)) <= bound:
            verdict = Verdict.EVEN if settled is owners else Verdict.BALANCED
            return planned(owners, settled, loads, instances, verdict)
        mover = ShardMover(settled, loads, instances)
        even = _even_out(mover, loads, bound)
        return planned(owners, mover.owners, loads, instances, Verdict.BALANCED if even else None, self.theta)


def _even_out(mover: ShardMover, loads: Floats, bound: float) -> bool:
    """Move shards until no instance carries more than `bound`; whether that was reached."""
    while True:
        source, target = mover.most_loaded(), mover.least_loaded()
        if source is None or mover.loads[source] <= bound:
            return True
        high, gap = mover.loads[source], mover.loads[source] - mover.loads[target]
        shard = mover.nearest(source, gap / 2)
        tolerance = ROUNDING * high
        if shard is None or not tolerance < loads[shard] < gap - tolerance:
            return False
        mover.move(shard, target)
