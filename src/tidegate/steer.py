"""Steering a query that runs on Spark, through the folder of its control stream: its end, its instances, its shards.

What is sent travels with the data and takes effect at a batch, the same for every task; a batch that is run again reads it
again. ``control`` is the folder given to ``to_spark(control=...)``, or ``control`` in the checkpoint of a `tidegate.run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegate.errors import QueryError
from tidegate.results import local_folder


def end_input(control: str | Path) -> None:
    """End the input of a query made by ``to_spark(control=...)``: every window expires and is emitted.

    The input ends where it is: files that wait to be read are not read, so send it when all that counts has been read. The
    query must keep running until its last batch is through; started with ``trigger(availableNow=True)``, run it once more.
    Tuples that arrive afterwards are late.
    """
    from tidegate.runtime.spark.control import EndInput, Steering

    Steering(local_folder(control, "control")).send(EndInput())


def set_instances(control: str | Path, instances: int | Mapping[int, int], step: str | None = None) -> None:
    """Change how many instances the cells of a running query have; it is in force from the batch that reads it.

    ``instances`` is a number for every cell, or one for each of some cells, as ``{0: 4, 3: 1}``; with ``step``, the name of
    a stateful step, it is about the cells of that one. No state moves and no result changes. A query that is started again
    begins with the number it is started with.
    """
    from tidegate.operators.cells import checked_number
    from tidegate.runtime.spark.control import Steering

    for number in instances.values() if isinstance(instances, Mapping) else [instances]:
        checked_number(number)
    Steering(local_folder(control, "control")).set_instances(instances, step)


def set_cells(control: str | Path, cells: int, step: str | None = None, *, protocol: str = "adopt") -> None:
    """Spread the state of a running query over so many cells, from the batch after the one that reads it on.

    They can be as many as the query was started with at most: ``cells=8``, or ``cells=(1, 8)``. About one shard in n moves
    when n cells become one more or one less, none is copied, and no result changes. The number lasts until another is set,
    or the query is started with other ``cells``. ``step`` is as in `set_instances`, ``protocol`` as in `move_shards`.
    """
    from tidegate.runtime.spark.control import Steering

    if not isinstance(cells, int) or isinstance(cells, bool):
        raise QueryError(f"set_cells: cells is a number; got {cells!r}")
    Steering(local_folder(control, "control")).set_cells(cells, step, protocol)


def move_shards(
    control: str | Path,
    step: str | None,
    mapping: Mapping[int, int] | Sequence[int],
    *,
    protocol: str = "adopt",
) -> None:
    """Move shards of a step between the cells of a running query, from the batch after the one that reads it on.

    ``mapping`` says the cell of each shard that is to move, as ``{17: 3}``, or those of all of them, as a sequence; the
    shards of a step are as many whatever its cells. ``step`` is the name of a stateful step, or None for all. With the
    ``protocol`` 'adopt' a cell that gains shards lists the files that hold their state, and nothing is copied; with 'window
    recreation' the old cell keeps the windows that are open, and the new one takes those that begin later. No result
    changes.
    """
    from tidegate.runtime.spark.control import Steering

    Steering(local_folder(control, "control")).move_shards(step, mapping, protocol)
