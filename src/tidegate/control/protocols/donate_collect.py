"""Donate and collect: owners write the state they lose to a store, and read what they gain from it, between barriers.

Gedik et al., §6.1, algorithm 4, over the consistent hashing of §6.2: who goes leaves its shards to all others, and who comes
gets some of each, so a change of one among n moves about one shard in n and none between two that stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tidegate.control.balancers.balance import Balance, Shards
from tidegate.control.balancers.consistent_hashing import ConsistentHashing
from tidegate.control.controller import MoveCost
from tidegate.control.protocols.move import ShardMove


@dataclass(frozen=True, slots=True)
class DonateCollect:
    """Everybody stops at a barrier, the donors write, everybody waits, the receivers read, and it goes on.

    It needs nothing but a store that all can reach, and works for state of any kind.
    """

    ring: ConsistentHashing = field(default_factory=ConsistentHashing)
    name: ClassVar[str] = "donate and collect"

    def refused(self, move: ShardMove) -> str | None:
        return "the owners share memory, so there is nothing to send" if move.shared_memory else None

    def estimate(self, move: ShardMove) -> MoveCost:
        writing = move.state_bytes / move.write_bytes_per_second / move.donors
        reading = move.state_bytes / move.read_bytes_per_second / move.receivers
        stopped = writing + reading
        in_force = 2 * move.batch_seconds + stopped
        return MoveCost(stopped, in_force, move.state_bytes, move.state_bytes)

    def remapped(self, mapping: Shards, owners: int) -> Balance:
        """Where shards go when there are to be so many owners; from a mapping of the ring's own, about 1/n of them move."""
        return self.ring.balance(mapping, np.zeros(len(mapping)), owners)
