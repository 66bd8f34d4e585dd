"""The sizes that a tidegate query on Spark may have: executors, and instances in each cell; up before out.

A cell runs in one task, so with more cores than cells the rest of an executor is idle. Instances in cells put it to use at
once and without moving state; another executor takes seconds. So the sizes are tried in the order of the cores that they
use, and of two that use as many the one with fewer executors is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.placement import Cells, Problem


@dataclass(frozen=True, slots=True)
class Rung:
    """One size, and how many cores it keeps busy at most."""

    cores: int
    executors: int
    instances: int


def fair_instances(cells: int, executors: int, cores: int) -> int:
    """The instances that each cell may have so that no executor has more of them than cores; at least one.

    The placement rule: state lies where its cell runs, so cells take cores at home alone, and every home must bear its
    own. Spark spreads the tasks of a batch evenly.

    >>> fair_instances(cells=2, executors=1, cores=4), fair_instances(cells=3, executors=2, cores=4)
    (2, 2)
    """
    homes = Cells(np.zeros(cells, np.int64), np.ones(cells), np.arange(cells) % executors)
    every, none = np.full(executors, cores), np.zeros((executors, cells), np.int64)
    most = 1
    while (most + 1) * cells <= executors * cores:
        if not Problem(every, homes, none, np.full(cells, most + 1)).fits(0.0):
            break
        most += 1
    return most


def cores_used(cells: int, executors: int, instances: int, cores: int) -> int:
    """The cores that cells keep busy at most."""
    return min(cells * instances, executors * cores)


def rungs(cells: int, cores: int, least: int, most: int) -> tuple[Rung, ...]:
    """The sizes with ``least`` to ``most`` executors of so many cores, each larger than the one before.

    >>> [(each.cores, each.executors, each.instances) for each in rungs(cells=2, cores=4, least=1, most=2)]
    [(2, 1, 1), (4, 1, 2), (6, 2, 3), (8, 2, 4)]
    """
    made: list[Rung] = []
    for executors in range(least, most + 1):
        for instances in range(1, fair_instances(cells, executors, cores) + 1):
            used = cores_used(cells, executors, instances, cores)
            if not made or used > made[-1].cores:
                made.append(Rung(used, executors, instances))
    return tuple(made)
