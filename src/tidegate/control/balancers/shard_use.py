"""What an observation says of its shards: their instances and rates, and how much of an instance each takes."""

from __future__ import annotations

import numpy as np

from tidegate.control.balancers.balance import Floats, Ints, Loads, Shards
from tidegate.control.observation import Observation

SATURATED = 0.99
"""A busy share from which on an instance may have had more to do than it could."""


def observed_shards(observation: Observation) -> tuple[Ints, Floats] | None:
    """The instance and the tuples per second of each shard; None where they are not known or contradict each other."""
    mapping, loads = observation.mapping, observation.shard_loads
    if observation.missing(("mapping", "shard_loads")) or mapping is None or loads is None:
        return None
    owners = np.fromiter(mapping, dtype=np.int64, count=len(mapping))
    rates = np.fromiter(loads, dtype=np.float64, count=len(loads))
    if len(owners) != len(rates) or rates.min() < 0 or owners.min() < 0 or owners.max() >= observation.instances:
        return None
    return owners, rates


def shard_use(mapping: Shards, shard_loads: Loads, busy: Loads) -> Floats:
    """The busy share each shard causes: its part of its instance's tuples, times that instance's busy share.

    The sum over an instance's shards is its busy share, so the deviation of these loads is that of the busy shares.
    An instance that is busy all the time may have received more than it could do; its tuples are then counted at no
    less than they cost on average, or the most overloaded instance would pass for as loaded as its neighbours.
    """
    owners = np.asarray(mapping, dtype=np.int64)
    rates = np.asarray(shard_loads, dtype=np.float64)
    shares = np.asarray(busy, dtype=np.float64)
    received = np.bincount(owners, weights=rates, minlength=len(shares))
    costs = np.divide(shares, received, out=np.zeros_like(shares), where=received > 0)
    total = float(received.sum())
    if total > 0:
        average = float(shares[received > 0].sum()) / total
        costs = np.where(shares >= SATURATED, np.maximum(costs, average), costs)
    return np.asarray(costs[owners] * rates, dtype=np.float64)
