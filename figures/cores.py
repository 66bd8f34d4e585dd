"""Shards on cores as a fluid: queues, sources that stop when one is full, and shards that are held while they move.

A model of Elasticutor's micro-benchmark (§5.1), where hundreds of cores and thousands of shards matter and single tuples
do not. Every core has a queue of `buffer_tuples`; a full one stops the sources, because tuples come in one stream.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Moves:
    """Shards that change their core: tuples that come from `begin` to `end` are held, and go to `target` then.

    What waited on the old core before is still completed there.
    """

    shards: Integers
    target: Integers
    begin_seconds: Floats
    end_seconds: Floats


@dataclass(frozen=True, slots=True)
class Repartition:
    """A change of many shards under a global pause: sources stop, queues drain, then `seconds` pass, then all go on."""

    mapping: Integers
    seconds: float


class Cores:
    """Cores at work. A tick costs O(shards)."""

    def __init__(self, cores: int, mapping: Integers, tuples_per_second: float, buffer_tuples: float) -> None:
        self.count, self.mapping, self.rate, self.buffer = cores, mapping.copy(), tuples_per_second, buffer_tuples
        self.pending: Floats = np.zeros(len(mapping))
        self.held: Floats = np.zeros(len(mapping))
        self._target = mapping.copy()
        self._begin = np.full(len(mapping), math.inf)
        self._end = np.full(len(mapping), math.inf)
        self._repartition: Repartition | None = None
        self._opens_seconds = math.inf

    @property
    def paused(self) -> bool:
        """Whether a repartition holds up the sources."""
        return self._repartition is not None

    @property
    def waiting(self) -> float:
        """Tuples that came in and are not completed."""
        return float(self.pending.sum() + self.held.sum())

    @property
    def moving(self) -> NDArray[np.bool_]:
        """The shards whose move has not ended yet."""
        return np.asarray(np.isfinite(self._end))

    def by_core(self, values: Floats) -> Floats:
        """Sums of a value per shard for each core."""
        return np.bincount(self.mapping, weights=values, minlength=self.count).astype(np.float64)

    def move(self, moves: Moves) -> None:
        """Let shards move; those that move already go to their newest target."""
        self._target[moves.shards] = moves.target
        self._begin[moves.shards], self._end[moves.shards] = moves.begin_seconds, moves.end_seconds

    def repartition(self, change: Repartition) -> None:
        """Stop the sources until the queues are empty and the change is done."""
        self._repartition, self._opens_seconds = change, math.inf

    def tick(self, now: float, seconds: float, offered: float, shares: Floats) -> tuple[float, float]:
        """Let a tick pass in which `offered` tuples are there to come; returns how many came in and were completed."""
        self._arrive(now)
        capacity = self.rate * seconds
        came = 0.0
        routed = np.where((self._begin <= now) & (now < self._end), 0.0, shares)
        if not self.paused:
            free = np.maximum(self.buffer + capacity - self.by_core(self.pending), 0.0)
            wanted = self.by_core(routed)
            with np.errstate(divide="ignore", invalid="ignore"):
                room = float(np.min(np.where(wanted > 0, free / wanted, np.inf)))
            came = min(offered, room)
        self.held += came * (shares - routed)
        work = self.pending + came * routed
        lanes = self.by_core(work)
        served = np.minimum(lanes, capacity)
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(lanes > 0, 1.0 - served / lanes, 0.0)
        self.pending = work * left[self.mapping]
        self._drained(now + seconds)
        return came, float(served.sum())

    def _arrive(self, now: float) -> None:
        done = self._end <= now
        if done.any():
            self.mapping[done] = self._target[done]
            self.pending[done] += self.held[done]
            self.held[done] = 0.0
            self._begin[done] = self._end[done] = math.inf
        if self._repartition is not None and self._opens_seconds <= now:
            self.mapping = self._repartition.mapping.copy()
            self._repartition = None

    def _drained(self, now: float) -> None:
        """Once the queues are empty under a pause, the exchange of state and routes begins."""
        if self._repartition is not None and math.isinf(self._opens_seconds) and self.pending.sum() < 1.0:
            self._opens_seconds = now + self._repartition.seconds
