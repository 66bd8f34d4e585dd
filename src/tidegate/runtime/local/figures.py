"""What a job in this process has counted so far: figures that only grow, and the latency of its results.

The latency of a result is when it left, minus when the tuple whose watermark released it was due.
"""

from __future__ import annotations

import bisect
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tidegate.control.observation import HotKey
from tidegate.gate.flow import BlockedTimes
from tidegate.gate.gate import Traffic
from tidegate.operators.columns import Array

MOST_MOMENTS = 65_536
LEAST_SECONDS = 1e-6
STEP = math.log(1.01)
STEPS = 2_400
"""Latencies are counted in steps of 1 %, from a microsecond to some hours."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardFigures:
    """The shards of a subquery until now: tuples counted, bytes held, and the most frequent key of the busiest.

    ``pooled`` says that any instance may do the work of any shard.
    """

    tuples: Array | None = None
    state_bytes: Array | None = None
    pooled: bool = True
    hot_key: HotKey | None = None


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """A join until now: tuples that arrived and that are held of each side, pairs tried, and how far apart they may be."""

    arrived: tuple[int, int]
    held: tuple[int, int]
    tried: int
    span_seconds: float


@dataclass(frozen=True, slots=True)
class SubqueryFigures:
    """One subquery until now.

    ``busy_seconds`` has the instances of the present epoch, in the order in which ``mapping`` numbers them. ``upstream`` are
    the subqueries it reads, ``sources`` the sources. ``join`` is there for joins. ``emitted`` are the rows that each
    subquery downstream has got of it, ``results`` those that have left the query.
    """

    name: str
    instances: tuple[int, ...]
    mapping: tuple[int, ...]
    busy_seconds: Mapping[int, float]
    traffic: Traffic
    blocked: BlockedTimes
    upstream: tuple[str, ...]
    sources: tuple[str, ...]
    watermark: int | None
    shards: ShardFigures = ShardFigures()
    join: JoinFigures | None = None
    emitted: Mapping[str, int] = field(default_factory=dict)
    results: int = 0


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """One source until now: rows read, and when the last of them was due by its schedule if it has one."""

    rows: int
    due: float | None
    ended: bool


@dataclass(frozen=True, slots=True)
class JobFigures:
    """A whole job until ``at_seconds`` of the run's clock; ``latency_seconds`` is the sum of that of
    all ``timed_results``.
    """

    at_seconds: float
    subqueries: tuple[SubqueryFigures, ...]
    sources: Mapping[str, SourceFigures]
    newest: int | None
    timed_results: int
    latency_seconds: float


@dataclass(slots=True, eq=False)
class Schedule:
    """For one source, which watermark was due when: (watermark, due) in the order of both.

    What has been emitted is forgotten. Past `most` moments every two neighbours become one, due when the first of them was:
    where windows are long a latency may come out longer by what lies between, and memory stays bounded.
    """

    most: int = MOST_MOMENTS
    _watermarks: list[int] = field(default_factory=list)
    _due: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, watermark: int, due: float) -> None:
        """A batch was due that lets the source's watermark reach so far."""
        with self._lock:
            if not self._watermarks or watermark > self._watermarks[-1]:
                self._watermarks.append(watermark)
                self._due.append(due)
                if len(self._due) > self.most:
                    # The last one stays as it is when their number is odd.
                    odd = len(self._due) % 2
                    self._watermarks = self._watermarks[1::2] + self._watermarks[-1:] * odd
                    self._due = self._due[::2]

    def due(self, watermark: int) -> float | None:
        """When the watermark was due to reach a time; what lies before is forgotten."""
        with self._lock:
            at = bisect.bisect_left(self._watermarks, watermark)
            if at == len(self._watermarks):
                return None
            found = self._due[at]
            del self._watermarks[:at], self._due[:at]
            return found


@dataclass(slots=True, eq=False)
class Latencies:
    """How many results left how late, in steps of 1 %; written by one thread. Its size does not depend on how many."""

    max_seconds: float | None = None
    results: int = 0
    total_seconds: float = 0.0
    _counts: Array = field(default_factory=lambda: np.zeros(STEPS, np.int64))

    def add(self, seconds: float, results: int) -> None:
        """So many results left that late."""
        step = math.ceil(math.log(max(seconds, LEAST_SECONDS) / LEAST_SECONDS) / STEP)
        self._counts[min(step, STEPS - 1)] += results
        self.results += results
        self.total_seconds += results * seconds
        self.max_seconds = max(seconds, self.max_seconds or 0.0)

    def quantile(self, share: float) -> float | None:
        """The latency that this share of results did not exceed, to 1 %; None if none were measured."""
        if self.max_seconds is None:
            return None
        return min(_quantile(self._counts, share), self.max_seconds)

    def counts(self) -> Array:
        """A copy of the counts, for `latencies_between`."""
        return self._counts.copy()


def latencies_between(before: Array, now: Array) -> tuple[float, float, float] | None:
    """p50, p99 and the highest latency of the results between two counts, to 1 %; None if none were measured."""
    counts = now - before
    return (_quantile(counts, 0.5), _quantile(counts, 0.99), _quantile(counts, 1.0)) if counts.any() else None


def _quantile(counts: Array, share: float) -> float:
    passed = np.cumsum(counts)
    return LEAST_SECONDS * math.exp(int(np.searchsorted(passed, max(share * passed[-1], 1))) * STEP)
