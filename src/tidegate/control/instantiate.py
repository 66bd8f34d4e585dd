"""How many instances each subquery starts with, from what its tuples cost on a sample run.

StreamCloud's query instantiator (§IV.C) splits the available instances over the subqueries by their per-tuple processing
cost. What a subquery needs is that cost times the tuples that reach it, which differ from subquery to subquery as soon as
one of them filters; both are measured on the same sample.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.errors import UserError


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one subquery did on the sample: tuples that reached it, and seconds that all its operators took for them."""

    subquery: str
    tuples: int
    seconds: float

    @property
    def seconds_per_tuple(self) -> float | None:
        """The per-tuple processing cost; unknown where no tuple came."""
        return self.seconds / self.tuples if self.tuples else None


def instantiate(samples: Sequence[Sampled], available: int) -> dict[str, int]:
    """Instances for each subquery, at least one each and `available` in all, so that the busiest is as idle as can be."""
    shares = share_out([sample.seconds for sample in samples], available)
    return {sample.subquery: share for sample, share in zip(samples, shares, strict=True)}


def instances_for(samples: Sequence[Sampled], sampled_tuples: int, offered: float) -> dict[str, int]:
    """The fewest instances with which every subquery keeps up with `offered` source tuples per second.

    `sampled_tuples` is how many source tuples the sample had; every subquery's work grows in proportion.
    """
    if sampled_tuples < 1:
        raise UserError("instances for a rate: the sample had no source tuples; run it on a source that has some")
    return {each.subquery: max(1, math.ceil(each.seconds * offered / sampled_tuples)) for each in samples}


def share_out(loads: Sequence[float], available: int) -> tuple[int, ...]:
    """Whole shares of `available`, at least one for each load, that make the largest load per share as small as can be.

    One share each, then every further one to the load that is largest per share: optimal, because no other split can take
    load off the one that is worst at that moment. Ties go to the first. O(available · log loads).
    """
    if available < len(loads):
        raise UserError(
            f"instances: {available} are available for {len(loads)} subqueries; each needs at least one, so give at "
            f"least {len(loads)}"
        )
    shares = [1] * len(loads)
    worst = [(-load, place) for place, load in enumerate(loads)]
    heapq.heapify(worst)
    for _ in range(available - len(loads) if loads else 0):
        _, place = worst[0]
        shares[place] += 1
        heapq.heapreplace(worst, (-loads[place] / shares[place], place))
    return tuple(shares)
