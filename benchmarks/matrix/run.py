"""Runs the matrix: all engines on the same input, cell by cell, and shows the worst cells first.

    python -m benchmarks matrix                       about ten minutes
    python -m benchmarks matrix --tuples 50000 --runs 1
    python -m benchmarks matrix --cells "collect*session"

Inputs and results are tables in memory for all engines. Each engine runs a cell once to warm up, and its result is compared
with DuckDB's; then they take turns. A ratio is the time of the faster peer that has the cell over ours.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from functools import lru_cache, partial
from statistics import median

import pyarrow as pa
from polars.testing import assert_frame_equal

from benchmarks.machine import describe
from benchmarks.matrix.cells import CELLS, MatrixCell, generated
from benchmarks.matrix.engines import ENGINES, OURS, PEERS, canonical
from benchmarks.matrix.figures import MeasuredCell, ratios, shown
from benchmarks.matrix.query_cells import QUERY_CELLS, QueryCell, query_inputs
from benchmarks.measure import say
from benchmarks.options import Options
from benchmarks.report import write_json

ALL = (*CELLS, *QUERY_CELLS)
TUPLES = 400_000


def run(options: Options) -> int:
    """Measure all cells, or those that are asked for; 1 if an answer was wrong."""
    most = options.tuples or TUPLES
    cells = chosen(options.cells)
    found, wrong = [], []
    for number, cell in enumerate(cells, 1):
        try:
            measured = measure(cell.name, cell.tuples(most), engines_of(cell, most, options.seed), options.runs)
        except AssertionError as error:
            wrong.append(f"{cell.name}: {error}")
            say(f"{number}/{len(cells)} {cell.name}: WRONG")
            continue
        found.append(measured)
        say(f"{number}/{len(cells)} {measured.line()}")
    print(shown(found, PEERS))
    content = {
        "workload": "matrix",
        "input": {"tuples": most, "seed": options.seed},
        "machine": describe(),
        "cells": [each.as_json() for each in found],
        "ratios": ratios(found),
        "failures": wrong,
    }
    path = options.out / "matrix.json"
    write_json(path, content)
    print(f"\nwritten to {path}")
    for each in wrong:
        print(f"\nWRONG {each}")
    return 1 if wrong else 0


def chosen(pattern: str | None) -> list[MatrixCell | QueryCell]:
    """The cells whose name has a pattern; all for None."""
    cells = [cell for cell in ALL if fnmatch(cell.name, f"*{pattern or ''}*")]
    if not cells:
        raise ValueError(f"--cells {pattern!r}: no cell is called so; names are like {CELLS[0].name!r}")
    return cells


def engines_of(cell: MatrixCell | QueryCell, most: int, seed: int) -> dict[str, Callable[[], pa.Table]]:
    """The engines that have a cell, each with all of its input."""
    tuples = cell.tuples(most)
    if isinstance(cell, QueryCell):
        return cell.engines(_query_inputs(tuples, cell.keys_for_each, seed))
    return {name: partial(engine, cell, _generated(tuples, seed)) for name, engine in ENGINES.items()}


_generated, _query_inputs = lru_cache(maxsize=6)(generated), lru_cache(maxsize=2)(query_inputs)


def measure(name: str, tuples: int, engines: Mapping[str, Callable[[], pa.Table]], runs: int) -> MeasuredCell:
    """One cell on all engines. Raises AssertionError if they differ."""
    judge = canonical(engines["duckdb"]())
    for engine in engines.values():
        assert_frame_equal(canonical(engine()), judge, check_dtypes=False, rel_tol=1e-9)
    walls: dict[str, list[float]] = {each: [] for each in engines}
    cpus: dict[str, list[float]] = {each: [] for each in engines}
    for _ in range(runs):
        for each, engine in engines.items():
            gc.collect()
            began, worked = time.perf_counter(), time.process_time()
            engine()
            walls[each].append(time.perf_counter() - began)
            cpus[each].append(time.process_time() - worked)
    seconds, cpu_seconds = ({each: median(times) for each, times in taken.items()} for taken in (walls, cpus))
    return MeasuredCell(name, tuples, judge.height, seconds, cpu_seconds, OURS)
