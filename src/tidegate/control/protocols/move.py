"""A move of shards between owners, what it costs, and what a protocol that carries it out must say beforehand.

An owner is an instance in process and a cell on Spark. A protocol says how state gets from the owner before to the one
after; the answer is the same whichever is taken, and the planner takes the cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tidegate.control.controller import Decision, MoveCost
from tidegate.control.observation import Observation
from tidegate.errors import UserError


@dataclass(frozen=True, slots=True)
class ShardMove:
    """Shards that change their owner, and what is measured of them and of the place where they are.

    shards, state_bytes, tuples_per_second
        how many move, what they hold and what they receive.
    donors, receivers
        how many owners lose shards, and how many gain some; they work side by side.
    seconds_per_tuple
        what a tuple costs its owner.
    window_seconds, advance_seconds
        how long windows are and how far apart they begin; for pairs within a distance that distance, and 0. None where
        windows have no fixed start: single and unbounded ones, sessions, windows in number of tuples, running state.
    queued_seconds
        how long the slowest owner takes for what waits in front of it.
    batch_seconds
        how long a batch lasts: what is decided in one holds in the next. 0 where there are none.
    shared_memory, shared_files
        whether all owners see one state in memory; whether state lies in files that every owner can read.
    read_bytes_per_second, write_bytes_per_second
        how fast one owner reads and writes state.
    """

    shards: int
    state_bytes: int = 0
    tuples_per_second: float = 0.0
    donors: int = 1
    receivers: int = 1
    seconds_per_tuple: float = 0.0
    window_seconds: float | None = None
    advance_seconds: float | None = None
    queued_seconds: float = 0.0
    batch_seconds: float = 0.0
    shared_memory: bool = False
    shared_files: bool = False
    read_bytes_per_second: float = 200e6
    write_bytes_per_second: float = 100e6

    def __post_init__(self) -> None:
        amounts = (self.shards, self.state_bytes, self.tuples_per_second, self.seconds_per_tuple, self.queued_seconds)
        speeds = (self.read_bytes_per_second, self.write_bytes_per_second)
        if min(*amounts, self.batch_seconds) < 0 or min(*speeds, self.donors, self.receivers) <= 0:
            raise UserError(f"move: amounts must not be negative, owners and speeds must be above 0; got {self}")
        if (self.window_seconds is None) != (self.advance_seconds is None):
            raise UserError("move: give the length of windows and how far apart they begin, or neither")


def move_of(observation: Observation, decision: Decision, place: ShardMove) -> ShardMove | None:
    """The move that a decision asks for, as far as it was observed; None where no shard changes its owner.

    ``place`` says what the observation does not: windows, files, speeds. Without a mapping, or where the one in force is not
    known, all shards may move. What was not measured counts as nothing.
    """
    before, after = observation.mapping, decision.mapping
    if before is None:
        return None
    if after is None:
        if decision.instances == observation.instances:
            return None
        moved = np.ones(len(before), np.bool_)
        donors, receivers = observation.instances, decision.instances
    else:
        moved = np.asarray(before) != np.asarray(after)
        donors, receivers = (len(np.unique(np.asarray(owners)[moved])) for owners in (before, after))
    if not moved.any():
        return None
    return replace(
        place,
        shards=int(moved.sum()),
        state_bytes=int(_total(observation.shard_state_bytes, moved)),
        tuples_per_second=_total(observation.shard_loads, moved),
        donors=donors,
        receivers=receivers,
        seconds_per_tuple=observation.seconds_per_tuple or 0.0,
        queued_seconds=queued_seconds(observation),
    )


def queued_seconds(observation: Observation) -> float:
    """How long the slowest owner takes for what waits in front of it; 0 where that is not known.

    Where shards have owners, the slowest is the one that gets most of the load.
    """
    queued, cost = observation.queued, observation.seconds_per_tuple
    if not queued or not cost:
        return 0.0
    share = 1 / observation.instances
    if not observation.pooled and observation.mapping is not None and observation.shard_loads is not None:
        loads = np.bincount(np.asarray(observation.mapping), weights=np.asarray(observation.shard_loads))
        share = float(loads.max() / loads.sum()) if loads.sum() > 0 else share
    return queued * share * cost


def _total(figures: tuple[float, ...] | None, moved: NDArray[np.bool_]) -> float:
    return 0.0 if figures is None or len(figures) != len(moved) else float(np.asarray(figures)[moved].sum())


class MoveProtocol(Protocol):
    """A way to carry out a move: a frozen value."""

    @property
    def name(self) -> str: ...

    def refused(self, move: ShardMove) -> str | None:
        """Why it cannot carry out this move; None if it can."""
        ...

    def estimate(self, move: ShardMove) -> MoveCost:
        """What it would cost."""
        ...
