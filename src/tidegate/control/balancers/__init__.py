"""Balancers: which shards each instance holds, one rule a file, and the verdict that no rule can help.

All of them take the mapping in force, the load of each shard and the number of instances there shall be, and return a
`Balance`. They are pure and deterministic. Where all of 10,000 shards move to 1,000 instances they take about a second,
where a few hundred move some hundredths of one.
"""

from __future__ import annotations

from tidegate.control.balancers.balance import Balancer
from tidegate.control.balancers.consistent_hashing import ConsistentHashing
from tidegate.control.balancers.greedy import Greedy
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.balancers.offload import Offload

BALANCERS: dict[str, type[Balancer]] = {
    each.name: each for each in (Greedy, MinimalMovement, ConsistentHashing, Offload)
}
"""The balancers by the name they have in rules and on the command line."""
