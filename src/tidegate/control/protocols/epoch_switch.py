"""Epoch switch: instances share one state, so only what each of them owns changes (STRETCH, algorithms 4 to 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.control.controller import MoveCost
from tidegate.control.protocols.move import ShardMove

SWITCH_SECONDS = 0.001
"""What a switch takes where nothing waits."""


@dataclass(frozen=True, slots=True)
class EpochSwitch:
    """Nothing moves: every owner goes over to the new mapping at the same place of the log.

    It is in force when the slowest owner has come there, so it takes as long as what waits in front of that one. Whoever
    gains a shard waits for the owner before to have done all of its turns, and not for anything else.
    """

    name: ClassVar[str] = "epoch switch"

    def refused(self, move: ShardMove) -> str | None:
        return None if move.shared_memory else "the owners do not share memory"

    def estimate(self, move: ShardMove) -> MoveCost:
        return MoveCost(0.0, move.queued_seconds + SWITCH_SECONDS)
