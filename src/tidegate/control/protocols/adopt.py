"""Adopt: state lies in files that every owner can read, so a new owner lists them as its own.

StreamCloud's state recreation (§V.A.3, figure 11) sends the state of each shard to the new owner. With immutable files
the list of them is enough: what it names is read when it is needed, and nothing is written for the move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.control.controller import MoveCost
from tidegate.control.protocols.move import ShardMove

ENTRY_BYTES = 64
"""What a shard takes in a directory, about."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """A mapping that is received in one batch holds in the next; its first batch reads the state that was gained."""

    name: ClassVar[str] = "adopt"

    def refused(self, move: ShardMove) -> str | None:
        return None if move.shared_files else "state does not lie in files that every owner can read"

    def estimate(self, move: ShardMove) -> MoveCost:
        reading = move.state_bytes / move.read_bytes_per_second / move.receivers
        return MoveCost(reading, 2 * move.batch_seconds + reading, move.state_bytes, ENTRY_BYTES * move.shards)
