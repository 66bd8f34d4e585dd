"""Latency of results: when they left, minus when the tuple whose watermark released them was due."""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True, eq=False)
class Schedule:
    """For one source, which watermark was due when: (watermark, due) in the order of both."""

    _watermarks: list[int] = field(default_factory=list)
    _due: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, watermark: int, due: float) -> None:
        """A batch was due that lets the source's watermark reach so far."""
        with self._lock:
            if not self._watermarks or watermark > self._watermarks[-1]:
                self._watermarks.append(watermark)
                self._due.append(due)

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
    """The latencies seen so far, weighted by results, in seconds."""

    _seconds: list[float] = field(default_factory=list)
    _weights: list[int] = field(default_factory=list)

    def add(self, seconds: float, results: int) -> None:
        """So many results left that late."""
        self._seconds.append(seconds)
        self._weights.append(results)

    def quantile(self, share: float) -> float | None:
        """The latency that this share of results did not exceed; None if none were measured."""
        if not self._seconds:
            return None
        order = np.argsort(self._seconds)
        passed = np.cumsum(np.asarray(self._weights)[order])
        return float(np.asarray(self._seconds)[order][np.searchsorted(passed, share * passed[-1])])

    @property
    def measured(self) -> int:
        """How many times results were measured so far."""
        return len(self._weights)

    def mean_since(self, measured: int) -> float | None:
        """The mean latency of the results that left after so many measurements; None if there are none."""
        seconds, weights = self._seconds[measured:], self._weights[measured:]
        total = sum(weights)
        return sum(map(float.__mul__, seconds, map(float, weights))) / total if total else None
