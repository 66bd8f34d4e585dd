"""Elasticutor's four ways to follow a shifting key distribution, with what each pays for a shard that moves.

=================  ===========================================================================================
static             one executor a core, keys hashed to executors for good
resource-centric   one executor a core; shards move between executors, all of them under one pause (§1):
                   T = (time in which the queues drain) + m·s + b/β
executor-centric   executors with several cores; shards move between the cores of their executor, one after the
                   other, each for T = (queue of its core) + s + b/β, without a pause of anything else (§3.3)
=================  ===========================================================================================

m is the most shards that any one executor gives away: executors work side by side, each on one shard at a time. s is the
synchronisation of a shard: about 2 ms inside an executor whatever is upstream, two to three orders of magnitude more
between executors (§5.1); here 2 ms · 10^2.5. b are the bytes that leave a node, β is a node's 1 Gb/s. Inside a node state
is shared and nothing is copied.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from figures.cores import Cores, Floats, Integers, Moves, Repartition
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.controllers.queueing import allocate
from tidegate.control.observation import Station
from tidegate.control.placement import Cells, PlacementProblem, assign_cores

NODES, CORES_A_NODE, EXECUTORS, SHARDS_AN_EXECUTOR = 32, 8, 32, 256
CORES, SHARDS = NODES * CORES_A_NODE, EXECUTORS * SHARDS_AN_EXECUTOR
SHARD_BYTES, TUPLE_BYTES = 32 * 1024, 128
TUPLES_PER_CORE = 1_000.0
BYTES_PER_SECOND = 1e9 / 8
INSIDE_SECONDS = 0.002
BETWEEN_SECONDS = INSIDE_SECONDS * 10**2.5
TARGET_SECONDS = 1.05 / TUPLES_PER_CORE


class Paradigm(Protocol):
    """Decides, from the tuples per second that each shard received, what moves; it acts on the cores itself."""

    name: str
    state_bytes: float

    def first(self) -> Integers:
        """The core of each shard before anything moved."""
        ...

    def decide(self, now: float, loads: Floats, cores: Cores) -> None: ...

    def remote(self, loads: Floats, cores: Cores) -> float:
        """Bytes per second between executors and their cores on other nodes."""
        ...


class Static:
    """Shards stay where they are."""

    name = "static"

    def __init__(self) -> None:
        self.state_bytes = 0.0

    def first(self) -> Integers:
        return np.arange(SHARDS, dtype=np.int64) % CORES

    def decide(self, now: float, loads: Floats, cores: Cores) -> None:
        return None

    def remote(self, loads: Floats, cores: Cores) -> float:
        return 0.0


class ResourceCentric(Static):
    """Shards move between single-core executors under a global pause, balanced to θ = 1.2."""

    name = "resource-centric"

    def decide(self, now: float, loads: Floats, cores: Cores) -> None:
        if cores.paused:
            return
        plan = MinimalMovement().balance(cores.mapping, loads, CORES)
        if not plan.moved:
            return
        moved, after = np.array(plan.moved), np.array(plan.mapping)
        most = int(np.bincount(cores.mapping[moved], minlength=CORES).max())
        away = moved[cores.mapping[moved] // CORES_A_NODE != after[moved] // CORES_A_NODE]
        nodes = np.bincount(cores.mapping[away] // CORES_A_NODE, minlength=NODES)
        seconds = most * BETWEEN_SECONDS + float(nodes.max()) * SHARD_BYTES / BYTES_PER_SECOND
        self.state_bytes += float(len(away) * SHARD_BYTES)
        cores.repartition(Repartition(after, seconds))


class ExecutorCentric:
    """Executors keep their keys and get as many cores as the queueing model says; shards move inside executors.

    The optimised scheduler places cores by Elasticutor's algorithm 1, so that little state moves and data stays on its
    node; the naive one takes any core that is not needed, wherever it is.
    """

    def __init__(self, *, naive: bool, seed: int = 0) -> None:
        self.name = "naive executor-centric" if naive else "executor-centric"
        self.state_bytes = 0.0
        self._naive, self._random = naive, np.random.default_rng(seed)
        self._home = np.arange(EXECUTORS) % NODES
        self._owner = np.arange(CORES) // CORES_A_NODE % EXECUTORS
        if naive:
            self._random.shuffle(self._owner)
        self._executor = np.arange(SHARDS) // SHARDS_AN_EXECUTOR

    def first(self) -> Integers:
        mapping = np.empty(SHARDS, dtype=np.int64)
        for executor in range(EXECUTORS):
            own = np.flatnonzero(self._executor == executor)
            mapping[own] = np.resize(np.flatnonzero(self._owner == executor), len(own))
        return mapping

    def decide(self, now: float, loads: Floats, cores: Cores) -> None:
        total = np.bincount(self._executor, weights=loads, minlength=EXECUTORS).astype(np.float64)
        self._owner = self._reassigned(total)
        waits = cores.by_core(cores.pending) / TUPLES_PER_CORE
        for executor in range(EXECUTORS):
            self._balance(executor, now, loads, cores, waits)

    def remote(self, loads: Floats, cores: Cores) -> float:
        elsewhere = cores.mapping // CORES_A_NODE != self._home[self._executor]
        return float(loads[elsewhere].sum()) * TUPLE_BYTES * 2

    def _reassigned(self, rates: Floats) -> Integers:
        stations = [Station(str(j), 1, max(rate, 1e-9), TUPLES_PER_CORE) for j, rate in enumerate(rates.tolist())]
        needed = np.array(allocate(stations, float(rates.sum()), TARGET_SECONDS, CORES).instances)
        before = np.zeros((NODES, EXECUTORS), dtype=np.int64)
        np.add.at(before, (np.arange(CORES) // CORES_A_NODE, self._owner), 1)
        if self._naive:
            return self._any_core(needed)
        state = np.full(EXECUTORS, SHARDS_AN_EXECUTOR * SHARD_BYTES)
        cells = Cells(state, np.asarray(rates * TUPLE_BYTES * 2, dtype=np.float64), self._home)
        placed = assign_cores(PlacementProblem(np.full(NODES, CORES_A_NODE), cells, before, needed)).assignment
        owner = self._owner.copy()
        for node in range(NODES):
            self._hand_over(owner, node, placed[node] - before[node])
        return owner

    def _hand_over(self, owner: Integers, node: int, change: Integers) -> None:
        """Give the cores of a node that some executors lose to those that win."""
        here = range(node * CORES_A_NODE, (node + 1) * CORES_A_NODE)
        winners = np.repeat(np.arange(EXECUTORS), np.maximum(change, 0)).tolist()
        for executor in np.flatnonzero(change < 0):
            given = [core for core in here if owner[core] == executor][change[executor] :]
            for core in given:
                if winners:
                    owner[core] = winners.pop()

    def _any_core(self, needed: Integers) -> Integers:
        owner, have = self._owner.copy(), np.bincount(self._owner, minlength=EXECUTORS)
        wanting = np.repeat(np.arange(EXECUTORS), np.maximum(needed - have, 0))
        spare = have - needed
        for core in self._random.permutation(CORES):
            if not len(wanting):
                break
            if spare[owner[core]] > 0:
                spare[owner[core]] -= 1
                owner[core], wanting = wanting[0], wanting[1:]
        return owner

    def _balance(self, executor: int, now: float, loads: Floats, cores: Cores, waits: Floats) -> None:
        own = np.flatnonzero((self._executor == executor) & ~cores.moving)
        mine = np.flatnonzero(self._owner == executor)
        if not len(own) or not len(mine):
            return
        numbers = np.full(CORES, -1)
        numbers[mine] = np.arange(len(mine))
        lost = np.unique(cores.mapping[own][numbers[cores.mapping[own]] < 0])
        numbers[lost] = len(mine) + np.arange(len(lost))
        plan = MinimalMovement().balance(numbers[cores.mapping[own]], loads[own], len(mine))
        moved = np.array(plan.moved, dtype=np.int64)
        if not len(moved):
            return
        shards, target = own[moved], mine[np.array(plan.mapping)[moved]]
        away = cores.mapping[shards] // CORES_A_NODE != target // CORES_A_NODE
        each = INSIDE_SECONDS + away * (SHARD_BYTES / BYTES_PER_SECOND)
        begin = now + np.concatenate(([0.0], np.cumsum(each)[:-1]))
        self.state_bytes += float(away.sum() * SHARD_BYTES)
        cores.move(Moves(shards, target, begin, begin + waits[cores.mapping[shards]] + each))
