"""Are more instances in a cell worth it, and are they better than more cells?

The workloads run on one Spark in one and two cells with one and two instances each, in turn, over the same input. The
figure is the throughput against one instance in one cell. Results are checked by their number of rows.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.engines.spark_streaming import SparkEngine
from benchmarks.engines.tidegate_query import query_of
from benchmarks.engines.tidegate_spark import SETTINGS, TidegateOnSpark, rows_reported
from benchmarks.inputs import Input, InputSpec, prepare
from benchmarks.machine import describe
from benchmarks.measure import say
from benchmarks.options import CACHE, Options
from benchmarks.report import write_json
from benchmarks.workloads import WINDOWED, Batching, Workload

INPUTS = {"wordcount": Batching(1_000_000, 250_000), "paircount-l": Batching(200_000, 50_000)}
# (cells, instances in each)
SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2))


def run(options: Options) -> int:
    """Print and write the table; 1 if numbers of result rows differ."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = [row for name in options.of or INPUTS for row in _rows(WINDOWED[name], options)]
    print(
        f"{'workload':<14}{'cells':>6}{'instances':>11}{'tuples/s':>12}{'min - max':>20}{'batch p50 ms':>14}{'ratio':>7}"
    )
    for row in made:
        spread = f"{row['spread'][0]:,.0f} - {row['spread'][1]:,.0f}"
        print(
            f"{row['workload']:<14}{row['cells']:>6}{row['instances']:>11}{row['tuples_per_second']:>12,.0f}"
            f"{spread:>20}{row['p50_ms']:>14.0f}{row['ratio']:>7.2f}"
        )
    target = options.out / "cell-instances.json"
    write_json(target, {"workload": "cell-instances", "machine": describe(), "rows": made})
    print(f"written to {target}")
    return int(any(len({row["output_rows"] for row in made if row["workload"] == name}) > 1 for name in INPUTS))


def _rows(workload: Workload, options: Options) -> list[dict[str, Any]]:
    batching = INPUTS[workload.name]
    data = prepare(InputSpec(workload.input_kind, batching, options.seed, options.tuples_per_second), CACHE)
    engines = {shape: SparkEngine(workload, partial(_build, *shape), SETTINGS, rows_reported) for shape in SHAPES}
    taken: dict[tuple[int, int], list[tuple[float, tuple[float, ...]]]] = {shape: [] for shape in SHAPES}
    written: dict[tuple[int, int], int] = {}
    for turn in range(options.runs + 1):
        for shape, engine in engines.items():
            with tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as scratch:
                timing = engine.run(data, Path(scratch))
                written[shape] = sum(pq.read_metadata(file).num_rows for file in Path(scratch).glob("sink/*.parquet"))
            say(
                f"{workload.name}, {shape[0]} × {shape[1]}: {timing.seconds:.2f} s{' (warming up)' if turn == 0 else ''}"
            )
            if turn > 0:
                taken[shape].append((timing.seconds, timing.batch_ms))
    next(iter(engines.values())).close()
    base = statistics.median(seconds for seconds, _ in taken[SHAPES[0]])
    return [_row(workload, shape, taken[shape], data, written[shape], base) for shape in SHAPES]


def _row(
    workload: Workload,
    shape: tuple[int, int],
    taken: list[tuple[float, tuple[float, ...]]],
    data: Input,
    written: int,
    base_seconds: float,
) -> dict[str, Any]:
    seconds = [each for each, _ in taken]
    return {
        "workload": workload.name,
        "cells": shape[0],
        "instances": shape[1],
        "tuples_per_second": data.tuples / statistics.median(seconds),
        "spread": [data.tuples / max(seconds), data.tuples / min(seconds)],
        "p50_ms": statistics.median(ms for _, batches in taken for ms in batches),
        "ratio": base_seconds / statistics.median(seconds),
        "output_rows": written,
    }


def _build(
    cells: int, instances: int, spark: SparkSession, folder: Path, scratch: Path, workload: Workload
) -> DataStreamWriter:
    shape = TidegateOnSpark(reads_files=True, cells=cells, instances=instances)
    return shape.writer(spark, partial(query_of, workload=workload), (folder,), scratch)
