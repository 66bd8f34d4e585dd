"""How much of the time sources stand blocked in `add`: the congestion index of a run in process.

Blocked seconds only ever grow, so any number of observers can each take their own differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class Blocked:
    """The time one source has stood blocked, the present wait included. Touched under the gate's lock."""

    __slots__ = ("_since", "_total_seconds", "_waits")

    def __init__(self) -> None:
        self._total_seconds = 0.0
        self._since = 0.0
        self._waits = 0

    def begin(self, now: float) -> None:
        """A thread begins to wait; several may."""
        if not self._waits:
            self._since = now
        self._waits += 1

    def end(self, now: float) -> None:
        """A thread goes on."""
        self._waits -= 1
        if not self._waits:
            self._total_seconds += now - self._since

    @property
    def waiting(self) -> bool:
        """Whether someone waits at this moment."""
        return self._waits > 0

    def seconds(self, now: float) -> float:
        """Seconds blocked until now."""
        return self._total_seconds + (now - self._since if self._waits else 0.0)


@dataclass(frozen=True, slots=True)
class BlockedTimes:
    """A reading: when it was taken, and for how long each source had stood blocked by then."""

    at_seconds: float
    blocked_seconds: Mapping[str, float]


def blocked_shares(earlier: BlockedTimes, later: BlockedTimes) -> dict[str, float]:
    """The share of the time between two readings that each source stood blocked; sources new in between count from 0."""
    span = later.at_seconds - earlier.at_seconds
    if span <= 0:
        return dict.fromkeys(later.blocked_seconds, 0.0)
    return {
        name: min(max((seconds - earlier.blocked_seconds.get(name, 0.0)) / span, 0.0), 1.0)
        for name, seconds in later.blocked_seconds.items()
    }


def congestion_index(earlier: BlockedTimes, later: BlockedTimes) -> float:
    """The share of time a send blocks, averaged over sources (Gedik et al., section 4); 0 without sources."""
    shares = blocked_shares(earlier, later)
    return sum(shares.values()) / len(shares) if shares else 0.0
