"""Is a rate sustained? One probe of a query under an open-loop load, and the search for the highest rate that is.

Sustained means: over the measured span, after a warm-up, the backlog of tuples that are due and not yet read does not
grow, and the 99th percentile of latency stays under a limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tidegate as tg
from benchmarks.loads import Load, Pool
from tidegate.compile.lower_to_aggregates import Operators
from tidegate.runtime.local.figures import Latencies

LIMIT_MS = 1_000.0
SAMPLES_PER_SECOND = 20
GROWTH_TOLERATED = 0.01
"""Of the offered tuples: a backlog that grows by less over the span is noise of the samples."""
WARM_UP = 0.2
LEAST_WARM_UP_SECONDS = 2.0
FILL = 1.5
"""The warm-up lasts so many times as long as filling the windows takes."""
STEP, PRECISION, MOST_PROBES = 1.25, 0.05, 14


@dataclass(frozen=True, slots=True)
class Probe:
    """What was seen at one offered rate. Latencies are None if no result left in the span."""

    tuples_per_second: float
    read_per_second: float
    backlog_growth: float
    """Tuples by which the backlog grew over the span, as a share of those offered in it."""
    backlog_most: float
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    limit_ms: float = LIMIT_MS

    @property
    def sustained(self) -> bool:
        return self.backlog_growth <= GROWTH_TOLERATED and self.p99_ms is not None and self.p99_ms <= self.limit_ms

    def as_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        rounded = {name: None if value is None else round(value, 4) for name, value in fields.items()}
        return {**rounded, "sustained": self.sustained}


def probe(
    pool: Pool,
    rate: float,
    ticks_per_second: int,
    instances: int,
    span_seconds: float,
    limit_ms: float = LIMIT_MS,
    operators: Operators = "dedicated",
) -> Probe:
    """Offer a rate for a warm-up, until windows are full at least, and a span."""
    warm_up_seconds = max(WARM_UP * span_seconds, LEAST_WARM_UP_SECONDS, FILL * pool.fill / rate)
    load = Load(pool, rate, ticks_per_second)
    job = tg.start(pool.query(*load.origins()), to=lambda table: None, instances=instances, operators=operators)
    try:
        job.wait(warm_up_seconds)
        # Those of the warm-up do not count.
        job.running.collector.latencies = Latencies()
        samples: list[tuple[float, float]] = []
        read_before, started = job.rows, time.monotonic()
        while (now := time.monotonic()) < started + span_seconds:
            samples.append((now, load.due(now) - job.rows))
            job.wait(1 / SAMPLES_PER_SECOND)  # raises if the query failed
        read, latencies = job.rows - read_before, job.latencies
        seconds = time.monotonic() - started
    finally:
        job.cancel()
    quantiles = (latencies.quantile(share) for share in (0.5, 0.99, 1.0))
    p50_ms, p99_ms, max_ms = (None if found is None else found * 1e3 for found in quantiles)
    most = max(backlog for _, backlog in samples)
    return Probe(rate, read / seconds, growth(samples) / rate, most, p50_ms, p99_ms, max_ms, limit_ms)


def growth(samples: Sequence[tuple[float, float]]) -> float:
    """By how many tuples a second the backlog grew: the slope of a line through the samples."""
    times, backlog = np.array(samples).T
    return float(np.polyfit(times - times[0], backlog, 1)[0])


def capacity(pool: Pool, ticks_per_second: int, instances: int, seconds: float = 2.0) -> float:
    """Tuples per second when nothing is scheduled, in batches like those of a load at that rate: where to start."""
    rate = 100_000.0
    for _ in range(3):
        load = Load(pool, rate, ticks_per_second)
        unscheduled = [(batch for _, batch in origin) for origin in load.origins()]
        job = tg.start(pool.query(*unscheduled), to=lambda table: None, instances=instances)
        try:
            job.wait(seconds / 2)  # compiles, fills windows
            before, began = job.rows, time.monotonic()
            job.wait(seconds)
            rate = max((job.rows - before) / (time.monotonic() - began), 1.0)
        finally:
            job.cancel()
    return rate


def next_rate(tried: Sequence[tuple[float, bool]], start: float) -> float | None:
    """The rate to try next, given rates and whether they were sustained; None when the highest is known well enough.

    From the start up or down by a constant factor until the limit lies between two rates, then halving the gap.
    """
    if not tried:
        return start
    if len(tried) >= MOST_PROBES:
        return None
    failed = min((rate for rate, sustained in tried if not sustained), default=None)
    held = max((rate for rate, sustained in tried if sustained and (failed is None or rate < failed)), default=None)
    if failed is None:
        return None if held is None else held * STEP
    if held is None:
        return failed / STEP
    return None if failed / held <= 1 + PRECISION else (held * failed) ** 0.5


def highest(tried: Sequence[tuple[float, bool]]) -> float | None:
    """The highest rate that was sustained and lies below every rate that was not."""
    failed = min((rate for rate, sustained in tried if not sustained), default=float("inf"))
    return max((rate for rate, sustained in tried if sustained and rate < failed), default=None)
