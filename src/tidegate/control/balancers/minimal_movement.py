"""Elasticutor's balancing inside a cell: as few shards as possible until no instance is far above the average (§3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.control.balancers.balance import (
    Balance,
    Loads,
    Shards,
    Verdict,
    checked,
    imbalance,
    instance_loads,
    planned,
)
from tidegate.control.balancers.offload import onto_rest
from tidegate.control.balancers.one_key import ROUNDING, THETA, one_key
from tidegate.control.balancers.piles import Piles
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

    def balance(
        self, mapping: Shards, shard_loads: Loads, instances: int, shard_state_bytes: Shards | None = None
    ) -> Balance:
        owners, loads, sizes = checked(mapping, shard_loads, instances, shard_state_bytes)
        settled = onto_rest(owners, loads, instances)
        bound = self.theta * (1 + ROUNDING)
        if imbalance(instance_loads(settled, loads, instances)) <= bound:
            verdict = Verdict.EVEN if settled is owners else Verdict.BALANCED
            return planned(owners, settled, loads, instances, sizes, verdict)
        piles = Piles(settled, loads, instances, sizes)
        if _even_out(piles, bound * float(loads.sum()) / instances):
            return planned(owners, piles.owners, loads, instances, sizes, Verdict.BALANCED)
        limit = one_key(loads, instances, theta=self.theta)
        verdict = Verdict.STUCK if limit is None else Verdict.ONE_KEY
        return planned(owners, piles.owners, loads, instances, sizes, verdict, limit)


def _even_out(piles: Piles, bound: float) -> bool:
    """Move shards until no instance carries more than `bound`; whether that was reached."""
    while True:
        source, target = piles.most(), piles.least()
        if source is None or piles.loads[source] <= bound:
            return True
        high, gap = piles.loads[source], piles.loads[source] - piles.loads[target]
        entry = piles.nearest(source, gap / 2)
        tolerance = ROUNDING * high
        if entry is None or not tolerance < entry[0] < gap - tolerance:
            return False
        piles.move(entry, source, target)
