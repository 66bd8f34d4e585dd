"""StreamCloud's balancing: the heaviest shard of the most loaded instance goes to the least loaded (§V.B)."""

from __future__ import annotations

import math
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
    deviation,
    instance_loads,
    planned,
)
from tidegate.control.balancers.offload import onto_rest
from tidegate.control.balancers.one_key import one_key
from tidegate.control.balancers.piles import Piles
from tidegate.errors import UserError

ANY_GAIN = 1e-9
"""The least relative gain that is told from rounding."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """Moves shards from the most to the least loaded instance until the loads' deviation is low enough.

    upper_imbalance
        StreamCloud's UIT, in the unit of the loads. Nothing moves while the deviation is at most this and every
        instance holds a shard.
    minimum_improvement
        StreamCloud's MIT, relative. A plan that lowers the deviation by less is dropped; once the deviation is under
        the UIT, so is a move that lowers it by less.

    The paper gives a value for neither, and its rule stops in three places where a better mapping is one move away;
    here it does not. (1) If moving the heaviest shard would not help, the heaviest that does help is moved. (2) If
    nothing on the most loaded instance helps, the next is looked at. (3) A single move among n instances lowers the
    deviation by about 1/n, so above the UIT, or onto an instance that held nothing, every move that helps is made and
    the MIT is asked of the plan as a whole.

    Cost: a logarithm per move. Where the plan ends above the UIT, no single shard could leave any instance for the
    least loaded one and lower the deviation.
    """

    upper_imbalance: float = 0.1
    minimum_improvement: float = 0.1
    name: ClassVar[str] = "greedy"

    def __post_init__(self) -> None:
        if not (self.upper_imbalance >= 0 and 0 <= self.minimum_improvement < 1):
            raise UserError(
                f"greedy: upper_imbalance ({self.upper_imbalance}) must not be negative and minimum_improvement "
                f"({self.minimum_improvement}) must lie in [0, 1); give the first in the unit of the loads"
            )

    def balance(
        self, mapping: Shards, shard_loads: Loads, instances: int, shard_state_bytes: Shards | None = None
    ) -> Balance:
        owners, loads, sizes = checked(mapping, shard_loads, instances, shard_state_bytes)
        settled = onto_rest(owners, loads, instances)
        before = deviation(instance_loads(settled, loads, instances))
        fresh = _without_shards(settled, instances)
        if before <= self.upper_imbalance and not fresh:
            return planned(owners, settled, loads, instances, sizes, Verdict.EVEN)
        piles = Piles(settled, loads, instances, sizes)
        self._even_out(piles, before, fresh)
        after = deviation(instance_loads(piles.owners, loads, instances))
        gain = before - after
        if gain <= 0 or (
            gain < self.minimum_improvement * before and fresh <= _without_shards(piles.owners, instances)
        ):
            verdict = Verdict.EVEN if before <= self.upper_imbalance else Verdict.NOT_WORTH if gain > 0 else None
            return self._ended(owners, settled, loads, instances, sizes, verdict)
        return self._ended(
            owners, piles.owners, loads, instances, sizes, Verdict.BALANCED if after <= self.upper_imbalance else None
        )

    def _even_out(self, piles: Piles, deviation_before: float, fresh: set[int]) -> None:
        instances = len(piles.loads)
        squares = deviation_before**2 * instances
        floor = ANY_GAIN * ANY_GAIN * squares
        asked = 1 - (1 - max(self.minimum_improvement, ANY_GAIN)) ** 2
        bound = self.upper_imbalance**2 * instances
        while (source := piles.most()) is not None:
            target = piles.least()
            gap = piles.loads[source] - piles.loads[target]
            if gap <= 0:
                return
            needed = max(floor, (ANY_GAIN if squares > bound or target in fresh else asked) * squares)
            # Moving x lowers the sum of squares by 2x(gap - x): at least `needed` for x in an interval around gap / 2.
            room = gap * gap / 4 - needed / 2
            entry = (
                piles.largest_within(source, gap / 2 - math.sqrt(room), gap / 2 + math.sqrt(room))
                if room >= 0
                else None
            )
            if entry is None:
                piles.set_aside(source)
                continue
            piles.move(entry, source, target)
            squares = max(0.0, squares - 2 * entry[0] * (gap - entry[0]))

    def _ended(
        self, owners: Ints, after: Ints, loads: Floats, instances: int, sizes: Ints | None, verdict: Verdict | None
    ) -> Balance:
        if verdict is not None:
            return planned(owners, after, loads, instances, sizes, verdict)
        limit = one_key(loads, instances)
        return planned(
            owners, after, loads, instances, sizes, Verdict.STUCK if limit is None else Verdict.ONE_KEY, limit
        )


def _without_shards(owners: Ints, instances: int) -> set[int]:
    """The instances that hold no shard."""
    return set(np.flatnonzero(np.bincount(owners, minlength=instances) == 0).tolist())
