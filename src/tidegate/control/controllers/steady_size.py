"""How many instances are enough for a rate, by the queue they stand behind."""

from __future__ import annotations

import math

from tidegate.control.controller import Limits
from tidegate.control.controllers.steady_shards import EVENNESS
from tidegate.control.erlang import mean_sojourn, mean_sojourns

ATTAINABLE = 1.05
"""The mean time to aim at where the target is below the time of service, in units of the latter."""


def enough(rate: float, cost_seconds: float, target_seconds: float, limits: Limits, *, keyed: bool) -> int:
    """The fewest instances within the limits whose mean latency is within the target.

    Without keys they serve one queue, M/M/k. With keys each has its own, M/M/1, and the hottest gets EVENNESS times an
    even share. O(instances).
    """
    target = max(target_seconds, ATTAINABLE * cost_seconds)
    work = rate * cost_seconds
    if work >= limits.most:
        return limits.most
    if keyed:
        return limits.clamp(math.ceil(EVENNESS * work / (1 - cost_seconds / target)))
    instances = math.floor(work) + 1
    for seconds in mean_sojourns(rate, 1 / cost_seconds):
        if seconds <= target or instances >= limits.most:
            break
        instances += 1
    return limits.clamp(instances)


def latency(instances: int, rate: float, cost_seconds: float, *, keyed: bool) -> float | None:
    """The mean latency to expect of so many instances; None where they cannot keep up."""
    if keyed:
        seconds = mean_sojourn(1, EVENNESS * rate / instances, 1 / cost_seconds)
    else:
        seconds = mean_sojourn(instances, rate, 1 / cost_seconds)
    return seconds if math.isfinite(seconds) else None
