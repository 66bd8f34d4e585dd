"""Decides whether the owners of shards share what a segment settles for an `apply`, or one instance does all of it."""

from __future__ import annotations

from dataclasses import dataclass

SPLIT_KEYS = 8_192
"""Keys of settled tuples that are worth the work of several instances."""
WAITS = 0.5
"""The share of the time in users' functions without a core from which on they wait for something."""
LEAST_SECONDS = 0.001
"""Waiting that is worth waking other instances for."""
FIRST_STEPS, MOST_STEPS = 16, 4_096
"""After so many shared segments one is done by one instance again, to see whether functions still wait; then after twice
as many, and so on."""


@dataclass(slots=True)
class SplitChoice:
    """Shares segments that are large, and those whose functions wait long, as for a service.

    Python's functions need the interpreter, which one thread has at a time, so sharing what computes gains little and costs
    what waking threads does. What waits is another matter: instances wait side by side. How long functions wait can only
    be told where one instance is at work alone: several also wait for each other, and for the interpreter.

    `split` and `seen` are called in the order of segments, by one thread at a time.
    """

    split_keys: int = SPLIT_KEYS
    shared: bool = False
    _waits_seconds: float = 0.0
    _steps: int = 0
    _probe_after: int = FIRST_STEPS

    def split(self, keys: int) -> bool:
        """Whether the owners of shards should share so many keys."""
        self.shared = keys >= self.split_keys or (
            self._waits_seconds > 0 and keys * self._waits_seconds >= LEAST_SECONDS
        )
        if not self.shared or keys >= self.split_keys:
            return self.shared
        self._steps += 1
        return self._steps <= self._probe_after

    def seen(self, keys: int, seconds: float, cpu_seconds: float) -> None:
        """One instance took so long for so many keys, and had a core for so much of it."""
        if not keys or (self._waits_seconds == 0 and seconds < LEAST_SECONDS):
            return
        waited = seconds - cpu_seconds
        if waited < WAITS * seconds:
            self._waits_seconds, self._probe_after = 0.0, FIRST_STEPS
            return
        if self._waits_seconds and self._steps:
            self._probe_after = min(2 * self._probe_after, MOST_STEPS)
        self._waits_seconds, self._steps = waited / keys, 0
