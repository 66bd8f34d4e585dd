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

from tidegate.runtime.spark.control import SetMapping
from tidegate.state.chunks import Chunk, Directory
from tidegate.state.epochs import (
    NONE,
    SIDE,
    Epoch,
    ShardSet,
    columns_of_grid,
    even_mapping,
    first_mapping,
    members,
    rows_of_grid,
    shard_set,
)

LOG = logging.getLogger("tidegate.spark")


@dataclass(frozen=True, slots=True)
class CellPlan:
    """The cells of a step as its run was started: the least and the most, and whether its shards form a grid."""

    least: int
    most: int
    grid: bool = False

    @property
    def range(self) -> tuple[int, int]:
        """The least and the most."""
        return self.least, self.most

    def first(self) -> Epoch:
        """The epoch of the first batch."""
        return Epoch(0, first_mapping(self.least, self.grid))

    def after(self, directory: Directory) -> Epoch:
        """The epoch in force in the batch after a directory: all tasks of the batch find the same, in any directory.

        A run that was started with other cells than the one before changes the number that have shards as little as it must.
        """
        epoch = directory.following or directory.epoch
        if self.range == directory.cells:
            return epoch
        active = len(epoch.cells)
        wanted = min(max(active, self.least), self.most)
        if wanted == active and max(epoch.cells) < self.most:
            return epoch
        return epoch.next(even_mapping(epoch.mapping, wanted, self.grid))

    def planned(self, epoch: Epoch, messages: Iterable[SetMapping], left_out: list[str]) -> Epoch | None:
        """The epoch that messages ask for, in the order in which they were sent; None if it is that in force."""
        mapping, protocol = epoch.mapping, epoch.protocol
        for message in messages:
            cells = self._cells(message)
            if max(cells) >= self.most:
                left_out.append(
                    f"a mapping to cell {max(cells)}, while the step was built for cells 0 to {self.most - 1}, was left out"
                )
                LOG.warning(left_out[-1])
                continue
            protocol = message.protocol
            if message.mapping is not None:
                mapping = message.mapping
            if message.cells is not None:
                mapping = even_mapping(mapping, message.cells, self.grid)
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
    directory: Directory, epoch: Epoch, plan: CellPlan, cell: int, beside: Callable[[int], Directory]
) -> Adopted | None:
    """Brings an epoch into force in the directory of a cell; None if the cell keeps the shards it had.

    ``beside`` is the directory of another cell after the same batch.
    """
    before, after = directory.epoch.owned(cell), epoch.owned(cell)
    previous = directory.epoch
    directory.epoch, directory.following = epoch, None
    directory.cells = plan.range
    if before == after:
        return None
    gained = after & ~before
    kept, new = [after], [gained]
    if plan.grid:
        # Of each side of a join without keys a cell has whole rows or columns.
        kept = [rows_of_grid(after), columns_of_grid(after)]
        new = [kept[0] & ~rows_of_grid(before), kept[1] & ~columns_of_grid(before)]
    directory.chunks = _restricted(directory.chunks, kept)
    adopted = Adopted(gained.bit_count())
    for donor, taken in _donors(previous, gained, new).items():
        other = beside(donor)
        parts = _restricted(other.chunks, taken)
        directory.chunks += parts
        adopted.chunks += len(parts)
        adopted.bytes += round(sum(part.bytes * part.share for part in parts))
        for window, rounds in other.rounds.items():
            # Revisions of a window keep growing, whoever had counted them.
            directory.rounds[window] = max(directory.rounds.get(window, 0), rounds)
    directory.chunks = _merged(directory.chunks)
    return adopted


def _donors(previous: Epoch, gained: ShardSet, new: Sequence[ShardSet]) -> dict[int, list[ShardSet]]:
    """From which cells a cell adopts, and of each side for which shards; on a grid every cell of a row has all of it."""
    donors: dict[int, list[ShardSet]] = {}
    cells, mine = previous.array.reshape(SIDE, SIDE), members(gained).reshape(SIDE, SIDE)
    for side, shards in enumerate(new):
        source = cells
        if len(new) > 1:
            # The cell that had the first shard of a row, or of a column, which is gained.
            first = np.argmax(mine, axis=1 - side)
            lines = np.arange(SIDE)
            source = cells[lines, first][:, None] if side == 0 else cells[first, lines][None, :]
        of_shard = np.broadcast_to(source, (SIDE, SIDE)).ravel()
        for donor in np.unique(of_shard[members(shards)]).tolist():
            taken = donors.setdefault(donor, [NONE] * len(new))
            taken[side] = shards & shard_set(of_shard == donor)
    return donors


def _restricted(listed: Iterable[Chunk], by_side: Sequence[ShardSet]) -> list[Chunk]:
    """Chunks for some shards, where that depends on it by their side; without those that have none of them."""
    found = []
    for chunk in listed:
        shards = chunk.shards & by_side[chunk.side if len(by_side) > 1 else 0]
        if shards:
            found.append(replace(chunk, shards=shards))
    return found


def _merged(listed: list[Chunk]) -> list[Chunk]:
    """Chunks from old to new, each once: one that comes back to a cell is listed for what it had and what it gets."""
    found: dict[str, Chunk] = {}
    for chunk in listed:
        same = found.get(chunk.name)
        if same is not None:
            shards, written = same.shards | chunk.shards, same.written | chunk.written
            chunk = replace(same, low=min(same.low, chunk.low), shards=shards, written=written)
        found[chunk.name] = chunk
    return sorted(found.values(), key=lambda chunk: chunk.batch)
