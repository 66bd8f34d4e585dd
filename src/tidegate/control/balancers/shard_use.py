"""How much of an instance each shard takes: shard rates turned into shares of a busy instance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.control.balancers.balance import Floats

SATURATED = 0.99
"""A busy share from which on an instance may have had more to do than it could."""


def shard_use(mapping: Sequence[int], shard_loads: Sequence[float], busy: Sequence[float]) -> Floats:
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
