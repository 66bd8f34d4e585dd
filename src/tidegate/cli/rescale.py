"""``tidegate rescale``: another number of cells for a checkpoint at rest; and how commands are told a number of cells."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import flag, option
from tidegate.errors import QueryError
from tidegate.operators.cells import checked_cells


def parsed_cells(text: str) -> tuple[int, int]:
    """The least and the most cells of a text.

    >>> parsed_cells("4"), parsed_cells("1:8")
    ((4, 4), (1, 8))
    """
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isdigit() for part in parts):
        raise QueryError(f"--cells is a number, or the least and the most, such as 1:8; got {text!r}")
    return checked_cells((int(parts[0]), int(parts[-1])))


def rescale(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="the folder that a run on Spark keeps")],
    cells: Annotated[str, option("N", "tasks that share a step's keys: 4, or 1:8 for one at first, and up to 8")],
    dry_run: Annotated[bool, flag("--dry-run", "say what would move, and change nothing")] = False,
) -> None:
    """Give a checkpoint that no run uses another number of cells.

    Says what the first batch of the next run moves: shards whose state other
    cells list from then on. No file of the state is written or copied. Starting
    the run with other cells does the same.

    Examples:
    tidegate rescale out/_checkpoint --cells 8
    tidegate rescale out/_checkpoint --cells 1:8 --dry-run
    """
    from tidegate.runtime.spark import rescale as at_rest

    wanted = parsed_cells(cells)
    moves = at_rest.rescale(Path(checkpoint), wanted, dry_run)
    for each in moves:
        print(
            f"{each.step}: from {each.before} to {each.after} cells, {each.shards:,} of 1,024 shards move; cells will list "
            f"{each.chunks:,} chunks of others, {each.bytes:,} of {each.state_bytes:,} bytes"
        )
    if not moves:
        print("no batch was committed yet, so there is no state to move")
    shown = str(wanted[0]) if wanted[0] == wanted[1] else f"{wanted[0]} to {wanted[1]}"
    print("nothing was changed (--dry-run)" if dry_run else f"the next run has {shown} cells a step")
