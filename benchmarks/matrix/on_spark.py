"""Runs the matrix on Spark: tidegate beside native Spark on both of its state stores, cell by cell, the worst shown first.

    python -m benchmarks matrix-spark                             an hour or two
    python -m benchmarks matrix-spark --cells "first*" --runs 1

Two batches of 250,000 tuples of each stream, and one without rows before them; state is read back in the second. Where a
tuple is many rows to native Spark, batches are as much smaller as the inputs of the matrix in process. Every engine is a
process that lives through all cells. It runs a cell once to warm up, and that result is compared with DuckDB's; then they
take turns. Runs end while their last windows are open: what an engine gave must be right, and may be less.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.engine_process import EngineFailed, EngineProcess
from benchmarks.engines import SPARK_VARIANTS
from benchmarks.harness import installed_engines
from benchmarks.inputs import START_US, write_batches
from benchmarks.machine import describe
from benchmarks.matrix.cells import MatrixCell, generated
from benchmarks.matrix.engines import in_duckdb
from benchmarks.matrix.figures import MeasuredCell, ratios, shown
from benchmarks.matrix.query_cells import QueryCell, query_inputs
from benchmarks.matrix.run import chosen
from benchmarks.measure import say
from benchmarks.options import CACHE, Options
from benchmarks.report import write_json

OURS, PEERS = "tidegate-spark", SPARK_VARIANTS
BATCHES, BATCH_ROWS = 2, 250_000
HEAP_GB = 4
TABLE = "table.parquet"
LEAST_SHARE = 0.3
"""Of all rows, how many an engine gives at the least: the windows that the second batch closes."""


def streams_of(cell: MatrixCell | QueryCell) -> tuple[str, ...]:
    """The streams of a cell, each a folder of files."""
    return ("tuples",) if isinstance(cell, MatrixCell) else ("l", "r")


def run(options: Options) -> int:
    """Measure the cells that native Spark has, or those of them that are asked for; 1 if an answer was wrong."""
    names = options.engines or (OURS, *PEERS)
    engines = [spec.name for spec in installed_engines(names) if spec.name in (OURS, *PEERS)]
    cells = [cell for cell in chosen(options.cells) if isinstance(cell, MatrixCell) or cell.native is not None]
    found: list[MeasuredCell] = []
    failures: list[str] = []
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="matrix-", dir=CACHE) as scratch, ExitStack() as stack:
        bench = Bench(Path(scratch), stack, options)
        for number, cell in enumerate(cells, 1):
            try:
                measured = bench.measure(cell, engines)
            except (EngineFailed, AssertionError) as failure:
                failures.append(f"{cell.name}: {failure}")
                say(f"{number}/{len(cells)} {cell.name}: FAILED {str(failure).splitlines()[0]}")
                continue
            found.append(measured)
            say(f"{number}/{len(cells)} {measured.line()}")
    print(shown(found, PEERS))
    path = options.out / "matrix-spark.json"
    content = {
        "workload": "matrix-spark",
        "input": {"tuples": options.tuples or BATCHES * BATCH_ROWS, "batches": BATCHES, "seed": options.seed},
        "machine": describe(),
        "cells": [each.as_json() for each in found],
        "ratios": ratios(found),
        "failures": failures,
    }
    write_json(path, content)
    print(f"\nwritten to {path}")
    for each in failures:
        print(f"\nFAILED {each}")
    return 1 if failures else 0


class Bench:
    """The engines' processes and the inputs that they read."""

    def __init__(self, scratch: Path, stack: ExitStack, options: Options) -> None:
        self._scratch, self._stack, self._options = scratch, stack, options
        self._running: dict[str, EngineProcess] = {}
        self._written: dict[tuple[object, ...], tuple[Path, Mapping[str, pa.Table]]] = {}
        self._steps = 0

    def measure(self, cell: MatrixCell | QueryCell, engines: Sequence[str]) -> MeasuredCell:
        """Warm up and compare each engine, then take turns. Raises if one of them fails, or is wrong."""
        folder, inputs = self._input(cell)
        right = comparable(_answer(cell, inputs))
        for engine in engines:
            self._run(engine, cell, folder)
            compare(engine, self._collected(engine), right)
        walls: dict[str, list[float]] = {each: [] for each in engines}
        cpus: dict[str, list[float]] = {each: [] for each in engines}
        for _ in range(self._options.runs):
            for engine in engines:
                took = self._run(engine, cell, folder)
                walls[engine].append(took["seconds"])
                cpus[engine].append(took["cpu_seconds"])
        seconds, cpu_seconds = ({each: median(times) for each, times in taken.items()} for taken in (walls, cpus))
        tuples = inputs[streams_of(cell)[0]].num_rows
        return MeasuredCell(cell.name, tuples, right.height, seconds, cpu_seconds, OURS)

    def _run(self, engine: str, cell: MatrixCell | QueryCell, folder: Path) -> dict[str, float]:
        if engine not in self._running:
            process = EngineProcess(engine, "matrix-spark", self._next(), self._options.driver_memory_gb or HEAP_GB)
            self._running[engine] = process
            self._stack.callback(process.stop)
        place = self._next()
        place.mkdir()
        try:
            took: dict[str, float] = self._running[engine].call(
                "run", cell=cell.name, folder=str(folder), files=BATCHES, scratch=str(place)
            )
        except EngineFailed:
            self._running.pop(engine).kill()
            raise
        return took

    def _collected(self, engine: str) -> pl.DataFrame:
        target = self._next()
        self._running[engine].call("collect", target=str(target))
        rows = pl.read_parquet(target / "*.parquet")
        shutil.rmtree(target)
        return comparable(rows)

    def _input(self, cell: MatrixCell | QueryCell) -> tuple[Path, Mapping[str, pa.Table]]:
        """The files of a cell's input, written on first use, and what is in them."""
        most, seed = self._options.tuples or BATCHES * BATCH_ROWS, self._options.seed
        by: tuple[object, ...] = (cell.tuples(most),) if isinstance(cell, MatrixCell) else (most, cell.keys_for_each)
        if by not in self._written:
            tables = (
                {"tuples": generated(cell.tuples(most), seed)}
                if isinstance(cell, MatrixCell)
                else dict(query_inputs(most, cell.keys_for_each, seed))
            )
            tables = {name: _in_this_century(table) for name, table in tables.items()}
            folder = self._next()
            folder.mkdir()
            for name, table in tables.items():
                if name == "t":
                    pq.write_table(table, folder / TABLE)
                else:
                    write_batches(table.cast(_in_utc(table.schema)), folder / name, BATCHES)
            self._written[by] = folder, tables
        return self._written[by]

    def _next(self) -> Path:
        self._steps += 1
        return self._scratch / f"{self._steps:05}"


def comparable(rows: pl.DataFrame | pa.Table) -> pl.DataFrame:
    """Rows whose columns can be compared: whole numbers, floats to ten digits, text; lists as text."""
    frame = pl.from_arrow(rows) if isinstance(rows, pa.Table) else rows
    assert isinstance(frame, pl.DataFrame)
    lists = [
        pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name, kind in frame.schema.items() if kind == pl.List
    ]
    return frame.with_columns(
        pl.selectors.datetime().dt.epoch("us"),
        (pl.selectors.integer() | pl.selectors.decimal()).cast(pl.Int64),
        pl.selectors.float().round_sig_figs(10),
        *lists,
    )


def compare(engine: str, rows: pl.DataFrame, right: pl.DataFrame) -> None:
    """AssertionError if a row is not one of the right ones, as often as it is there, or if too few of them are given."""
    names = right.columns
    given, due = (frame.select(names).group_by(names).len("times") for frame in (rows, right))
    wrong = given.join(due, on=names, how="left", nulls_equal=True, suffix="_due").filter(
        pl.col("times") > pl.col("times_due").fill_null(0)
    )
    assert wrong.is_empty(), f"{engine} gave {wrong.height:,} wrong rows, such as {wrong.head(2).rows()}"
    assert rows.height >= LEAST_SHARE * right.height, f"{engine} gave {rows.height:,} of {right.height:,} rows"


def _answer(cell: MatrixCell | QueryCell, inputs: Mapping[str, pa.Table]) -> pa.Table:
    if isinstance(cell, MatrixCell):
        return in_duckdb(cell, inputs["tuples"])
    return cell.engines(inputs)["duckdb"]()


def _in_this_century(table: pa.Table) -> pa.Table:
    """With times that Spark does not take for late: it drops what is at or before 1970."""
    if "ts" not in table.column_names:
        return table
    times = pc.add(table["ts"].cast(pa.int64()), START_US).cast(pa.timestamp("us"))
    return table.set_column(table.column_names.index("ts"), "ts", times)


def _in_utc(schema: pa.Schema) -> pa.Schema:
    """Spark's files have moments; DuckDB adds intervals to those with an extension only."""
    return schema.set(schema.get_field_index("ts"), pa.field("ts", pa.timestamp("us", "UTC")))
