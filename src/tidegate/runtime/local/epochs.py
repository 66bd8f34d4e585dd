"""Epochs: which instances a region has, and which of them owns each shard, between two control segments.

A reconfiguration is one control segment in the region's log (STRETCH, algorithms 4–6). It names the next epoch in full,
so requests that follow one another closely each take effect at their own place, and an instance needs nothing but the
log to know what it owns. Instances get fresh numbers when they are added: one that left and one that came later are never
mistaken for each other, however far apart in the log they stand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.errors import QueryError
from tidegate.operators.columns import Array


@dataclass(frozen=True, slots=True, eq=False)
class Epoch:
    """One epoch: its number, its instances, and for each shard the position of its owner among them."""

    number: int
    instances: tuple[int, ...]
    mapping: Array

    def owned(self, instance: int) -> Array | None:
        """Which shards an instance owns; None for all of them."""
        if len(self.instances) == 1:
            return None
        mask: Array = self.mapping == self.instances.index(instance)
        return mask


def even_mapping(shards: int, instances: int) -> Array:
    """Deal shards out in turn."""
    return np.arange(shards) % instances


def checked_mapping(mapping: Sequence[int], shards: int, instances: int) -> Array:
    """A mapping as an array; refused unless every shard has an owner that exists."""
    given = np.asarray(mapping)
    if given.shape != (shards,) or not np.issubdtype(given.dtype, np.integer):
        raise QueryError(
            f"a mapping gives the instance of each of the {shards} shards; got {given.shape} {given.dtype}"
        )
    if given.size and not (given.min() >= 0 and given.max() < instances):
        raise QueryError(
            f"a mapping to {instances} instances has numbers from 0 to {instances - 1}; got {given.min()} to {given.max()}"
        )
    return given


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """What a reconfiguration did. State does not move: instances share it.

    ``seconds`` is the time from the call until every instance had switched; ``stood_still_seconds`` the longest stretch
    of that time in which no instance passed a segment.
    """

    epoch: int
    instances: int
    seconds: float
    stood_still_seconds: float
    state_bytes_moved: int = 0


@dataclass(slots=True, eq=False)
class Switch:
    """The payload of a control segment: the next epoch, and who of both epochs has still to switch."""

    before: Epoch
    after: Epoch
    called_at: float = field(default_factory=time.monotonic)
    _waiting: set[int] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _done: threading.Event = field(default_factory=threading.Event)
    _moved_at: float = 0.0
    _longest: float = 0.0
    _completed_at: float = 0.0
    _taken: bool = False

    def __post_init__(self) -> None:
        self._waiting = {*self.before.instances, *self.after.instances}
        self._moved_at = self.called_at

    def take_newcomers(self) -> tuple[int, ...]:
        """The instances that only the new epoch has, told to the first who asks; to others, none.

        That the gate knows them already is no sign: a newcomer may have come and gone before the slowest gets here.
        """
        with self._lock:
            taken, self._taken = self._taken, True
        return () if taken else tuple(number for number in self.after.instances if number not in self.before.instances)

    def moved(self) -> None:
        """Some instance has passed a segment while this switch is under way."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._moved_at)
        self._moved_at = now

    def switched(self, instance: int) -> bool:
        """An instance is in the new epoch, or has left; says whether it was the last."""
        with self._lock:
            self.moved()
            self._waiting.discard(instance)
            if not self._waiting and not self._completed_at:
                self._completed_at = time.monotonic()
                self._done.set()
                return True
        return False

    def wait(self, timeout_seconds: float | None) -> Reconfiguration | None:
        """What was done, once it is; None if it is not done in time or was given up."""
        if not self._done.wait(timeout_seconds) or not self._completed_at:
            return None
        return Reconfiguration(
            self.after.number, len(self.after.instances), self._completed_at - self.called_at, self._longest
        )

    def give_up(self) -> None:
        """The run has ended: wake who waits."""
        self._done.set()
