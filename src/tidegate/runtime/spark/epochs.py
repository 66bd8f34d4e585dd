"""How the mapping of shards to cells changes from one batch to the next: what is in force, and what a cell adopts.

A mapping that the control stream brings in batch N is written into every directory of N and is in force from N + 1 on. Then
the intake routes by it, and a cell that gains shards reads the directories of N of the cells that had them and lists their
chunks, for those shards, as its own; a cell that loses shards lists its own for the rest. Nothing is copied and no cell
waits: StreamCloud's state recreation (§V.B) and Gedik's donate and collect (§6) with the files as backing store.

A query that is started again with another number of cells does the same in its first batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tidegate.operators.columns import Array
from tidegate.query.nodes import Join, Stateful, WindowAggregate
from tidegate.query.windows import Window
from tidegate.runtime.spark.control import SetMapping
from tidegate.state.chunks import Chunk, Directory
from tidegate.state.epochs import (
    ADOPT,
    ALL,
    NONE,
    RECREATE,
    CellEpoch,
    Handover,
    ShardSet,
    even_mapping,
    first_mapping,
    members,
    shard_set,
)
from tidegate.state.pair_grid import PairGrid
from tidegate.watermark import is_finite

LOG = logging.getLogger("tidegate.spark")
SIDES = (0, 1)


@dataclass(frozen=True, slots=True)
class Recreation:
    """How the windows of a step are recreated in another cell (StreamCloud §V.B, fig. 8 and 9); all in microseconds.

    A window begins every so often, and takes tuples up to ``reach`` after the next one begins. The pairs of a join within a
    distance begin at the earlier of their times.
    """

    every: int
    reach: int
    lateness: int = 0

    @classmethod
    def of(cls, node: Stateful) -> Recreation | None:
        """That of a stateful step; None where what it keeps has no fixed begin, or moves in another way."""
        match node:
            case WindowAggregate(window=window):
                return cls(window.every, window.size - window.every, window.lateness)
            case Join(window=Window() as window, how="inner") if not node.is_on_grid:
                return cls(window.every, window.size - window.every)
            case Join(within_us=int() as distance, how="inner") if not node.is_on_grid:
                return cls(1, distance)
            case _:
                return None

    def handover(self, previous: CellEpoch, newest: int) -> Handover:
        """The old cells keep what begins up to the newest event time of all, the new ones take what begins later."""
        switch = (newest // self.every + 1) * self.every
        last = switch + self.reach
        return Handover(previous.mapping, switch, last, last + self.lateness)


@dataclass(frozen=True, slots=True)
class CellPlan:
    """The cells of a step as its run was started: the least and the most, and the grid of its shards if it is a join on one.

    ``recreation`` is None where windows cannot be recreated.
    """

    least: int
    most: int
    grid: PairGrid | None = None
    recreation: Recreation | None = None

    @property
    def range(self) -> tuple[int, int]:
        """The least and the most."""
        return self.least, self.most

    @property
    def _in_blocks(self) -> bool:
        return self.grid is not None and self.grid.is_square

    def first(self) -> CellEpoch:
        """The epoch of the first batch."""
        return CellEpoch(0, first_mapping(self.least, self._in_blocks))

    def after(self, directory: Directory) -> CellEpoch:
        """The epoch in force in the batch after a directory: all tasks of the batch find the same, in any directory.

        A run that was started with other cells than the one before changes the number that have shards as little as it must.
        """
        epoch = directory.following or directory.epoch
        if self.range != directory.cells:
            active = len(epoch.cells)
            wanted = min(max(active, self.least), self.most)
            if wanted != active or max(*epoch.cells, *epoch.previous.tolist()) >= self.most:
                return epoch.next(even_mapping(epoch.mapping, wanted, self._in_blocks))
        if epoch is directory.following:
            newest = max(filter(is_finite, directory.newest.values()), default=None)
            # Cells that are no more can keep nothing: what they had is adopted.
            stay = max(directory.epoch.cells) < self.most
            if epoch.protocol == RECREATE and self.recreation is not None and newest is not None and stay:
                return replace(epoch, handover=self.recreation.handover(directory.epoch, newest))
        elif epoch.handover is not None and directory.watermark >= epoch.handover.over:
            return replace(epoch, handover=None)
        return epoch

    def planned(self, epoch: CellEpoch, messages: Iterable[SetMapping], left_out: list[str]) -> CellEpoch | None:
        """The epoch that messages ask for, in the order in which they were sent; None if it is that in force."""
        mapping, protocol = epoch.mapping, epoch.protocol
        for message in messages:
            cells, known = self._cells(message), len(left_out)
            if max(cells) >= self.most:
                left_out.append(
                    f"a mapping to cell {max(cells)}, while the step was built for cells 0 to {self.most - 1}, was left out"
                )
            elif message.protocol == RECREATE and self.recreation is None:
                left_out.append(
                    "a mapping by window recreation was left out: that is for windowed aggregates and inner joins by key; "
                    f"use the protocol {ADOPT!r}"
                )
            if left_out[known:]:
                LOG.warning(left_out[-1])
                continue
            protocol = message.protocol
            if message.mapping is not None:
                mapping = message.mapping
            if message.cells is not None:
                mapping = even_mapping(mapping, message.cells, self._in_blocks)
            if message.moves:
                moved = np.asarray(mapping, np.int64)
                moved[list(message.moves)] = list(message.moves.values())
                mapping = tuple(moved.tolist())
        return None if mapping == epoch.mapping else epoch.next(mapping, protocol)

    @staticmethod
    def _cells(message: SetMapping) -> set[int]:
        named = {*(message.mapping or ()), *message.moves.values()}
        return named | {0 if message.cells is None else message.cells - 1}


@dataclass(slots=True)
class Adopted:
    """What a cell lists of others' chunks in the batch in which an epoch came into force: shards, chunks and bytes.

    ``read_bytes`` are those that it had to read in that batch.
    """

    shards: int = 0
    chunks: int = 0
    bytes: int = 0
    read_bytes: int = 0

    def told(self) -> dict[str, Any]:
        """As metrics have it."""
        return asdict(self)


def switch(
    directory: Directory, epoch: CellEpoch, plan: CellPlan, cell: int, beside: Callable[[int], Directory]
) -> Adopted | None:
    """Brings an epoch into force in the directory of a cell; None if the cell keeps the shards it had.

    ``beside`` is the directory of another cell after the same batch.
    """
    previous = directory.epoch
    directory.epoch, directory.following, directory.cells = epoch, None, plan.range
    if epoch == previous:
        return None
    over = previous.handover is not None and directory.watermark >= previous.handover.over
    adopted, listed = Adopted(), []
    for layer in _layers(previous, over):
        # Where windows are recreated nothing moves: what there is began before the switch.
        held, after = layer.owned(cell), epoch.owned_before(cell) & layer.shards
        gained = after & ~held
        kept, new = [after & held], [gained]
        if plan.grid is not None:
            # Of each side of a join without keys a cell has whole lines.
            kept = [plan.grid.held(side, after) for side in SIDES]
            new = [kept[side] & ~plan.grid.held(side, held) for side in SIDES]
        listed += _restricted(directory.chunks, kept, layer.until)
        adopted.shards += gained.bit_count()
        for donor, taken in _donors(layer.mapping, gained, new, plan.grid).items():
            other = beside(donor)
            parts = _restricted(other.chunks, taken, layer.until)
            listed += parts
            adopted.chunks += len(parts)
            adopted.bytes += round(sum(part.bytes * part.share for part in parts))
            for window, rounds in other.rounds.items():
                # Revisions of a window keep growing, whoever had counted them.
                directory.rounds[window] = max(directory.rounds.get(window, 0), rounds)
    directory.chunks = _merged(listed)
    return adopted if adopted.shards else None


@dataclass(frozen=True, slots=True)
class _Layer:
    """Which cells hold some shards, of what lies before a time if that is known."""

    mapping: Array
    shards: ShardSet = ALL
    until: int | None = None

    def owned(self, cell: int) -> ShardSet:
        return shard_set(self.mapping == cell) & self.shards


def _layers(epoch: CellEpoch, over: bool) -> list[_Layer]:
    """Where state is: in the cells of an epoch, and until a handover is over also in those of the one before."""
    if epoch.handover is None or over:
        return [_Layer(epoch.array)]
    moved = shard_set(epoch.previous != epoch.array)
    return [_Layer(epoch.previous, moved, epoch.handover.switch), _Layer(epoch.array)]


def _donors(
    mapping: Array, gained: ShardSet, new: Sequence[ShardSet], grid: PairGrid | None
) -> dict[int, list[ShardSet]]:
    """From which cells a cell adopts, and of each side for which shards; on a grid every cell of a line has all of it."""
    donors: dict[int, list[ShardSet]] = {}
    of_gained = np.flatnonzero(members(gained))
    for side, shards in enumerate(new):
        of_shard = mapping
        if grid is not None:
            # The cell that had the first shard of a line which is gained.
            lines = grid.line_of_shards(side)
            found, first = np.unique(lines[of_gained], return_index=True)
            of_line = np.zeros(grid.lines(side), np.int64)
            of_line[found] = mapping[of_gained[first]]
            of_shard = of_line[lines]
        for donor in np.unique(of_shard[members(shards)]).tolist():
            taken = donors.setdefault(donor, [NONE] * len(new))
            taken[side] = shards & shard_set(of_shard == donor)
    return donors


def _restricted(listed: Iterable[Chunk], by_side: Sequence[ShardSet], until: int | None) -> list[Chunk]:
    """Chunks for some shards, where that depends on it by their side; without those that have none of them."""
    found = []
    for chunk in listed:
        shards = chunk.shards & by_side[chunk.side if len(by_side) > 1 else 0]
        if shards:
            earliest = min((each for each in (until, chunk.until) if each is not None), default=None)
            found.append(replace(chunk, shards=shards, until=earliest))
    return found


def _merged(listed: list[Chunk]) -> list[Chunk]:
    """Chunks from old to new, each once: one that comes back to a cell is listed for what it had and what it gets."""
    found: dict[tuple[str, int | None], Chunk] = {}
    for chunk in listed:
        same = found.get((chunk.name, chunk.until))
        if same is not None:
            shards, written = same.shards | chunk.shards, same.written | chunk.written
            chunk = replace(same, low=min(same.low, chunk.low), shards=shards, written=written)
        found[chunk.name, chunk.until] = chunk
    return sorted(found.values(), key=lambda chunk: chunk.batch)
