"""How long does it take to say which cores each cell gets?

Elasticutor's table 3 gives the time its scheduler takes on 8, 16 and 32 nodes of eight cores. Its workload has twelve
operators and, here, one cell a node for each of them. In every round all loads are dealt anew, so that most cells want
another number of cores; that is harder than a round of the paper's, in which some stocks trade more than before.

Timed are the queueing model (§4.1) over all cells and the assignment of cores (§4.2), and set beside the paper's figure is
their sum. There are more cells than cores, and a queue needs a core at least, so the assignment is given what each
cell's part of the load rounds to, and the model is timed on the same cells with cores enough. The paper's machines were
others: the ratio says that the cost is of the same kind, no more.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import write_json
from lab.exact_placement import bytes_moved
from tidegate.control.controllers.queueing import allocate
from tidegate.control.observation import Station
from tidegate.control.placement import Assignment, Cells, Placement, PlacementProblem, assign_cores

Real = npt.NDArray[np.float64]

CORES_A_NODE, OPERATORS = 8, 12
PAPER_MS = {8: 4.1, 16: 5.2, 32: 5.7}
ROUNDS = {8: 50, 16: 50, 32: 50, 100: 20, 1_000: 8}
"""Nodes, and how many rounds are timed with so many."""
WARM = 2
USED = 0.9  # of all cores
SERVICE_RATE = 1_000.0  # tuples per second and core: a tuple takes 1 ms
TUPLE_BYTES = 128
SHARD_BYTES, MOST_SHARDS = 32 * 1024, 256
TARGET_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Round:
    """What one scheduling took, how many cores changed hands in it, and the share of all state that has to move."""

    model_ms: float
    assign_ms: float
    handed_over: int
    moved: float


def run(options: Options) -> int:
    """Schedule at every size and print the times beside the paper's."""
    head = ("nodes", "cells", "model ms", "assign ms", "both ms", "min – max", "handed over", "state moved", "paper ms")
    print("".join(f"{name:>{14 if place > 1 else 7}}" for place, name in enumerate(head)) + f"{'ratio':>7}")
    rows = []
    for nodes in ROUNDS:
        row = _row(nodes, list(_rounds(nodes, options.seed))[WARM:])
        rows.append(row)
        _print(row)
    content = {
        "workload": "scheduling",
        "input": {"cores_a_node": CORES_A_NODE, "operators": OPERATORS, "used": USED, "seed": options.seed},
        "machine": describe(),
        "rows": rows,
        "ratios": {f"tidegate/elasticutor@{row['nodes']}": row["ratio"] for row in rows if "ratio" in row},
    }
    write_json(options.out / "scheduling.json", content)
    print(f"written to {options.out / 'scheduling.json'}")
    return 0


def _rounds(nodes: int, seed: int) -> Iterator[Round]:
    """Schedule again and again, each time from the assignment of the round before."""
    rng = np.random.default_rng(seed)
    cores = np.full(nodes, CORES_A_NODE)
    count = nodes * OPERATORS
    home = np.arange(count) % nodes
    state_bytes = rng.integers(1, MOST_SHARDS, count) * SHARD_BYTES
    assignment: Assignment = np.zeros((nodes, count), dtype=np.int16)
    load = (1.0 + np.arange(count)) ** -0.5
    load *= USED * float(cores.sum()) / float(load.sum())
    for _ in range(WARM + ROUNDS[nodes]):
        rng.shuffle(load)
        cells = Cells(state_bytes, load * SERVICE_RATE * TUPLE_BYTES * 2, home)
        model_ms = _model_ms(load)
        needed = _rounded(load)
        start = time.perf_counter()
        problem = PlacementProblem(cores, cells, assignment, needed)
        placed: Placement = assign_cores(problem)
        assign_ms = (time.perf_counter() - start) * 1e3
        assignment = placed.assignment
        moved = bytes_moved(problem.before, placed.assignment, problem.cells) / float(state_bytes.sum())
        yield Round(model_ms, assign_ms, placed.handed_over, moved)


def _model_ms(load: Real) -> float:
    stations = [Station(str(cell), 1, rate, SERVICE_RATE) for cell, rate in enumerate((load * SERVICE_RATE).tolist())]
    start = time.perf_counter()
    allocate(stations, SERVICE_RATE * float(load.sum()), TARGET_SECONDS, 8 * len(stations))
    return (time.perf_counter() - start) * 1e3


def _rounded(load: Real) -> npt.NDArray[np.int64]:
    """Whole cores by largest remainder: as many in all as the load is worth."""
    needed = np.floor(load).astype(np.int64)
    missing = int(load.sum()) - int(needed.sum())
    needed[np.argsort(needed - load, kind="stable")[:missing]] += 1
    return needed


def _row(nodes: int, rounds: list[Round]) -> dict[str, Any]:
    both = [each.model_ms + each.assign_ms for each in rounds]
    row: dict[str, Any] = {
        "nodes": nodes,
        "cells": nodes * OPERATORS,
        "model_ms": statistics.median(each.model_ms for each in rounds),
        "assign_ms": statistics.median(each.assign_ms for each in rounds),
        "both_ms": statistics.median(both),
        "spread": [min(both), max(both)],
        "handed_over": statistics.median(each.handed_over for each in rounds),
        "state_moved": statistics.mean(each.moved for each in rounds),
    }
    if nodes in PAPER_MS:
        row |= {"paper_ms": PAPER_MS[nodes], "ratio": row["both_ms"] / PAPER_MS[nodes]}
    return row


def _print(row: dict[str, Any]) -> None:
    low, high = row["spread"]
    times = f"{row['model_ms']:>14.2f}{row['assign_ms']:>14.2f}{row['both_ms']:>14.2f}{f'{low:.2f} – {high:.2f}':>14}"
    paper = f"{row['paper_ms']:>14.1f}{row['ratio']:>7.2f}" if "ratio" in row else f"{'–':>14}{'–':>7}"
    changes = f"{row['handed_over']:>14.0f}{row['state_moved']:>14.0%}"
    print(f"{row['nodes']:>7,}{row['cells']:>7,}{times}{changes}{paper}")
