"""StreamCloud's balancing: the heaviest shard of the most loaded instance goes to the least loaded (§V.B)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tidegate.control.balancers.balance import (
    Balance,
    Ints,
    Loads,
    ShardMover,
    Shards,
    Verdict,
    checked,
    deviation,
    instance_loads,
    onto_rest,
    planned,
)
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

    def balance(self, mapping: Shards, shard_loads: Loads, instances: int) -> Balance:
        owners, loads = checked(mapping, shard_loads, instances)
        settled = onto_rest(owners, loads, instances)
        before = deviation(instance_loads(settled, loads, instances))
        fresh = _without_shards(settled, instances)
        even = Verdict.EVEN if before <= self.upper_imbalance else None
        if even and not fresh:
            return planned(owners, settled, loads, instances, even)
        mover = ShardMover(settled, loads, instances)
        self._even_out(mover, before, fresh)
        after = deviation(instance_loads(mover.owners, loads, instances))
        gain = before - after
        unused = fresh <= _without_shards(mover.owners, instances)
        if gain <= 0 or (gain < self.minimum_improvement * before and unused):
            verdict = even or (Verdict.NOT_WORTH if gain > 0 else None)
            return planned(owners, settled, loads, instances, verdict)
        verdict = Verdict.BALANCED if after <= self.upper_imbalance else None
        return planned(owners, mover.owners, loads, instances, verdict)

    def _even_out(self, mover: ShardMover, deviation_before: float, fresh: set[int]) -> None:
        instances = len(mover.loads)
        squares = deviation_before**2 * instances
        floor = ANY_GAIN * ANY_GAIN * squares
        asked = 1 - (1 - max(self.minimum_improvement, ANY_GAIN)) ** 2
        bound = self.upper_imbalance**2 * instances
        while (source := mover.most_loaded()) is not None:
            target = mover.least_loaded()
            gap = mover.loads[source] - mover.loads[target]
            if gap <= 0:
                return
            needed = max(floor, (ANY_GAIN if squares > bound or target in fresh else asked) * squares)
            # Moving x lowers the sum of squares by 2x(gap - x): at least `needed` for x in an interval around gap / 2.
            room = gap * gap / 4 - needed / 2
            half = math.sqrt(room) if room >= 0 else -math.inf
            shard = mover.largest_within(source, gap / 2 - half, gap / 2 + half)
            if shard is None:
                mover.set_aside(source)
                continue
            load = mover.move(shard, target)
            squares = max(0.0, squares - 2 * load * (gap - load))


def _without_shards(owners: Ints, instances: int) -> set[int]:
    """The instances that hold no shard."""
    return set(np.flatnonzero(np.bincount(owners, minlength=instances) == 0).tolist())
