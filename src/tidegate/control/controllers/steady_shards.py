"""How evenly shards can be spread: the hottest instance for a number of instances, and the mapping that gets there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.balancers.balance import Floats, Ints
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.observation import Observation

EVENNESS = 1.05
"""How far above the average the hottest instance may be once shards have been spread anew."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The share of the load that each shard gets, and the instance it is on."""

    owners: Ints
    shares: Floats

    @classmethod
    def observed(cls, observation: Observation) -> Shards | None:
        """The shards of a period; None where they are not known or contradict each other."""
        mapping, loads = observation.mapping, observation.shard_loads
        if observation.missing(("mapping", "shard_loads")) or mapping is None or loads is None:
            return None
        owners, rates = np.asarray(mapping, dtype=np.int64), np.asarray(loads, dtype=np.float64)
        if len(owners) != len(rates) or rates.min() < 0 or rates.sum() <= 0:
            return None
        if owners.min() < 0 or owners.max() >= observation.instances:
            return None
        return cls(owners, rates / rates.sum())

    @property
    def heaviest(self) -> int:
        """The shard with the largest share."""
        return int(np.argmax(self.shares))

    @property
    def hottest_share(self) -> float:
        """The share of the load that the hottest instance has at present."""
        return float(np.bincount(self.owners, weights=self.shares).max())

    def attainable_share(self, instances: int) -> float:
        """The share that the hottest of so many instances has after balancing: an even one, or the heaviest shard's."""
        return max(float(self.shares.max()), EVENNESS / instances)

    def spread(self, instances: int) -> tuple[tuple[int, ...], float]:
        """A mapping to so many instances that moves little, and the share its hottest instance has."""
        mapping = MinimalMovement(EVENNESS).balance(self.owners, self.shares, instances).mapping
        return mapping, float(np.bincount(np.asarray(mapping), weights=self.shares).max())
