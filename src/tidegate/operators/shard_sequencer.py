"""Whose turn it is: instances that change shards in place, each shard by one of them at a time and in the log's order.

After a reconfiguration a shard has another owner, who may be further in the log than the old one. It waits until the
shard has seen everything before; no instance waits for more than that, and no state moves.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class ShardSequencer:
    """For each shard the turn that was taken last (−1: none)."""

    shards: int
    _taken: Array = field(init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _aborted: bool = False

    def __post_init__(self) -> None:
        self._taken = np.full(self.shards, -1, np.int64)

    def wait(self, turn: int, owned: Array | None) -> bool:
        """Wait until the shards of an owner (None: all) have seen every turn before; False if the run has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._aborted or self._ready(turn, owned))
            return not self._aborted

    def done(self, turn: int, owned: Array | None) -> None:
        """An owner has done its turn."""
        with self._changed:
            self._taken[slice(None) if owned is None else owned] = turn
            self._changed.notify_all()

    def abort(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def _ready(self, turn: int, owned: Array | None) -> bool:
        return bool((self._taken if owned is None else self._taken[owned]).min(initial=turn - 1) >= turn - 1)
