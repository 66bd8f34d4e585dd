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

    def __post_init__(self) -> None:
        if self.tuples < 0 or not 0 <= self.seconds < math.inf:
            raise UserError(
                f"sample of subquery '{self.subquery}': tuples ({self.tuples}) and seconds ({self.seconds}) must be "
                "finite and at least 0; run the sample again"
            )

    @property
    def seconds_per_tuple(self) -> float | None:
        """The per-tuple processing cost; unknown where no tuple came."""
        return self.seconds / self.tuples if self.tuples else None


def instantiate(samples: Sequence[Sampled], available: int) -> dict[str, int]:
    """Instances for each subquery, at least one each and `available` in all, so that the busiest is as idle as can be."""
    names = [sample.subquery for sample in samples]
    if len(set(names)) < len(names):
        raise UserError(f"samples: each subquery may be sampled once, got {', '.join(names)}; add up its figures")
    shares = share_out([sample.seconds for sample in samples], available)
    return dict(zip(names, shares, strict=True))


def instances_for(samples: Sequence[Sampled], sampled_tuples: int, offered: float) -> dict[str, int]:
    """The fewest instances with which every subquery keeps up with `offered` source tuples per second.

    `sampled_tuples` is how many source tuples the sample had; every subquery's work grows in proportion.
    """
    if sampled_tuples < 1 or not 0 <= offered < math.inf:
        raise UserError(
            f"instances for a rate: the sample's source tuples ({sampled_tuples}) must be at least 1 and the rate "
            f"({offered}) finite and at least 0"
        )
    return {each.subquery: max(1, math.ceil(each.seconds * offered / sampled_tuples)) for each in samples}


def share_out(loads: Sequence[float], available: int) -> tuple[int, ...]:
    """Whole shares of `available`, at least one for each load, that make the largest load per share as small as can be.

    One share each, then every further one to whoever has most load per share: optimal, because no other split can take
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
