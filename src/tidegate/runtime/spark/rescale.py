"""Another number of cells for a checkpoint at rest: what the next run will move, and the note by which it does."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.errors import CheckpointError
from tidegate.operators.fingerprint import pair_grid_in
from tidegate.runtime.spark.checkpoint import Checkpoint
from tidegate.runtime.spark.epochs import CellPlan, switch
from tidegate.state.chunks import Directory
from tidegate.state.step_folder import StepFolder
from tidegate.state.storage import open_storage


@dataclass(frozen=True, slots=True)
class StepMoves:
    """What the first batch of the next run moves in one step: shards, and the chunks and bytes that other cells will list.

    ``before`` and ``after`` are the cells that have shards.
    """

    step: str
    before: int
    after: int
    shards: int
    chunks: int
    bytes: int
    state_bytes: int


def rescale(folder: Path, cells: tuple[int, int], dry_run: bool = False) -> list[StepMoves]:
    """Gives a checkpoint of `tidegate.run` other cells, unless it is a dry run; what that moves, by stateful step.

    No state is touched: the next run that is started without ``cells=`` has these, and its first batch lists chunks in other
    cells.
    """
    checkpoint = Checkpoint(folder)
    if not (folder / "tidegate.json").exists():
        raise CheckpointError(
            f"{folder} is no checkpoint of tidegate.run: it holds no tidegate.json. A query of your own gets other cells by "
            "to_spark(cells=...) on its checkpoint; nothing has to be done before"
        )
    with checkpoint.locked():
        found = checkpoint.read()
        assert found is not None
        if found.finished:
            raise CheckpointError(f"{folder} is finished: all of its input was read, and no run will go on from it")
        moves = [_moves(checkpoint, name, cells) for name in _steps(checkpoint)]
        if not dry_run:
            checkpoint.write(replace(found, cells=cells))
    return moves


def _query(checkpoint: Checkpoint) -> str:
    return str(json.loads((checkpoint.spark / "metadata").read_text(encoding="utf-8"))["id"])


def _steps(checkpoint: Checkpoint) -> list[str]:
    """The folders of stateful steps; none before a batch was committed."""
    if not checkpoint.has_commits():
        return []
    folders = open_storage(str(checkpoint.state)).folders(_query(checkpoint))
    return sorted((name for name in folders if name.startswith("step-")), key=lambda name: int(name[5:]))


def _moves(checkpoint: Checkpoint, name: str, cells: tuple[int, int]) -> StepMoves:
    batch = max(int(entry.name) for entry in (checkpoint.spark / "commits").glob("*") if entry.name.isdigit())
    # A run of no name has written nothing itself, so it reads what the last one has left.
    folder = StepFolder(open_storage(str(checkpoint.state)), f"{_query(checkpoint)}/{name}", name, "", 0)
    first = folder.before(0, batch + 1)
    assert first is not None
    plan = CellPlan(*cells, grid=pair_grid_in(first.fingerprint))
    epoch = plan.after(first)
    current = first.following or first.epoch
    adopted, state_bytes = [], 0

    def beside(cell: int) -> Directory:
        assert first is not None
        return folder.beside(first, cell, batch)

    for cell in range(max(cells[1], first.cells[1])):
        directory = beside(cell)
        state_bytes += directory.state_bytes()
        if cell < cells[1]:
            adopted.append(switch(directory, epoch, plan, cell, beside))
    taken = [each for each in adopted if each is not None]
    return StepMoves(
        name,
        len(current.cells),
        len(epoch.cells),
        sum(each.shards for each in taken),
        sum(each.chunks for each in taken),
        sum(each.bytes for each in taken),
        state_bytes,
    )
