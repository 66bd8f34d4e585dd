"""How evenly shards can be spread: the hottest instance for a number of instances, and the mapping that gets there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.balancers.balance import Floats, Ints, observed_shards
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.observation import Observation

EVENNESS = 1.03
"""How far above the average the hottest instance may be once shards have been spread anew."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The share of the load that each shard gets, and the instance it is on."""

    owners: Ints
    shares: Floats

    @classmethod
    def observed(cls, observation: Observation) -> Shards | None:
        """The shards of a period; None where they are not known or contradict each other."""
        seen = observed_shards(observation)
        if seen is None or not (total := float(seen[1].sum())) > 0:
            return None
        return cls(seen[0], seen[1] / total)

    @property
    def heaviest(self) -> int:
        """The shard with the largest share."""
        return int(np.argmax(self.shares))

    @property
    def hottest_share(self) -> float:
        """The share of the load that the hottest instance has at present."""
        return float(np.bincount(self.owners, weights=self.shares).max())

    def spread(self, instances: int) -> tuple[tuple[int, ...], float]:
        """A mapping to so many instances that moves little, and the share its hottest instance has."""
        mapping = MinimalMovement(EVENNESS).balance(self.owners, self.shares, instances).mapping
        return mapping, float(np.bincount(np.asarray(mapping), weights=self.shares).max())
