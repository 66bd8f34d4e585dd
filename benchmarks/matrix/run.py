"""Runs the matrix: all engines on the same input, cell by cell, and shows the worst cells first.

    python -m benchmarks matrix                       about ten minutes
    python -m benchmarks matrix --tuples 50000 --runs 1

Inputs and results are tables in memory for all engines. Each engine runs a cell once to warm up, and its result is compared
with DuckDB's; then they take turns. A ratio is the time of the faster peer over ours.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

import pyarrow as pa
from polars.testing import assert_frame_equal

from benchmarks.machine import describe
from benchmarks.matrix.cells import CELLS, MatrixCell, generated
from benchmarks.matrix.engines import ENGINES, OURS, PEERS, canonical
from benchmarks.measure import say
from benchmarks.options import Options
from benchmarks.report import write_json

TUPLES = 400_000
SHOWN = 20


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """The seconds of each engine in one cell, and how many times as fast as the faster peer we are."""

    cell: str
    tuples: int
    rows: int
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]

    @property
    def ratio(self) -> float:
        return min(self.seconds[peer] for peer in PEERS) / self.seconds[OURS]

    @property
    def cpu_ratio(self) -> float:
        return min(self.cpu_seconds[peer] for peer in PEERS) / self.cpu_seconds[OURS]


def run(options: Options) -> int:
    """Measure all cells; 1 if an answer was wrong."""
    most = options.tuples or TUPLES
    tables: dict[int, pa.Table] = {}
    found, wrong = [], []
    for number, cell in enumerate(CELLS, 1):
        tuples = cell.tuples(most)
        table = tables.setdefault(tuples, generated(tuples, options.seed))
        try:
            measured = measure(cell, table, options.runs)
        except AssertionError as error:
            wrong.append(f"{cell.name}: {error}")
            say(f"{number}/{len(CELLS)} {cell.name}: WRONG")
            continue
        found.append(measured)
        say(f"{number}/{len(CELLS)} {cell.name}: {measured.ratio:.2f}×, by CPU seconds {measured.cpu_ratio:.2f}×")
    print(shown(found))
    ratios = {each.cell: round(each.ratio, 3) for each in found}
    content = {
        "workload": "matrix",
        "input": {"tuples": most, "seed": options.seed},
        "machine": describe(),
        "cells": [
            {**asdict(each), "ratio": round(each.ratio, 3), "cpu_ratio": round(each.cpu_ratio, 3)} for each in found
        ],
        "ratios": {**summary([each.ratio for each in found]), **ratios},
        "failures": wrong,
    }
    path = options.out / "matrix.json"
    write_json(path, content)
    print(f"\nwritten to {path}")
    for each in wrong:
        print(f"\nWRONG {each}")
    return 1 if wrong else 0


def measure(cell: MatrixCell, table: pa.Table, runs: int) -> MeasuredCell:
    """One cell on all engines. Raises AssertionError if they differ."""
    results = {name: canonical(engine(cell, table)) for name, engine in ENGINES.items()}
    for name, frame in results.items():
        assert_frame_equal(frame, results["duckdb"], check_dtypes=False, rel_tol=1e-9)
        results[name] = results["duckdb"]
    walls: dict[str, list[float]] = {name: [] for name in ENGINES}
    cpus: dict[str, list[float]] = {name: [] for name in ENGINES}
    for _ in range(runs):
        for name, engine in ENGINES.items():
            gc.collect()
            began, worked = time.perf_counter(), time.process_time()
            engine(cell, table)
            walls[name].append(time.perf_counter() - began)
            cpus[name].append(time.process_time() - worked)
    seconds, cpu_seconds = ({name: median(times) for name, times in each.items()} for each in (walls, cpus))
    return MeasuredCell(cell.name, table.num_rows, results["duckdb"].height, seconds, cpu_seconds)


def summary(ratios: Sequence[float]) -> dict[str, float]:
    """The geometric mean, the worst, and the share of cells in which a peer is faster."""
    return {
        "geometric mean": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3),
        "worst": round(min(ratios), 3),
        "share below 1": round(sum(ratio < 1 for ratio in ratios) / len(ratios), 3),
    }


def shown(found: Sequence[MeasuredCell]) -> str:
    """The worst cells first, then all in short."""
    worst = sorted(found, key=lambda each: each.ratio)[:SHOWN]
    lines = [f"{'cell':<44}{'ratio':>7}{'by CPU':>8}{'ours s':>9}" + "".join(f"{peer + ' s':>10}" for peer in PEERS)]
    lines += [
        f"{each.cell:<44}{each.ratio:>7.2f}{each.cpu_ratio:>8.2f}{each.seconds[OURS]:>9.3f}"
        + "".join(f"{each.seconds[peer]:>10.3f}" for peer in PEERS)
        for each in worst
    ]
    for title, ratios in (("wall", [each.ratio for each in found]), ("CPU", [each.cpu_ratio for each in found])):
        lines.append(f"{title}: " + ", ".join(f"{name} {value:g}" for name, value in summary(ratios).items()))
    return "\n".join(lines)
