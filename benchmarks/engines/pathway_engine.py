"""Pathway: its Rust engine over a stored input, words and pairs made by a Python function.

It reads CSV, and writes CSV. Windows have no behaviour, which is its fastest setting: results are kept up to date and
handed out when the input has been read, not when a window closes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("PATHWAY_THREADS", str(os.cpu_count() or 1))  # read when it is imported

import pathway as pw
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.engines import Timing
from benchmarks.engines.csv_input import write_csv
from benchmarks.engines.text_keys import key_columns, keys_of
from benchmarks.inputs import Input
from benchmarks.workloads import Workload

US = 1_000_000


class _Tweet(pw.Schema):
    ts: int
    text: str


class _Keyed(pw.Schema):
    ts: int
    key: int
    value: float


class PathwayEngine:
    """A run reads a CSV file and ends when a CSV file of results is written."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._sink: Path | None = None

    def run(self, data: Input, scratch: Path) -> Timing:
        write_csv(data, self._workload, scratch / "input", pa.int64())
        pw.internals.parse_graph.G.clear()
        self._sink = scratch / "results.csv"
        pw.io.csv.write(results(self._workload, scratch / "input"), str(self._sink))
        started = time.perf_counter()
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        seconds = time.perf_counter() - started
        return Timing(seconds, (seconds * 1_000,))

    def first_result(self, data: Input, scratch: Path, seen: Callable[[], None]) -> None:
        write_csv(data, self._workload, scratch / "input", pa.int64())
        pw.io.subscribe(results(self._workload, scratch / "input"), on_change=lambda **_: seen())
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)

    def collect(self, target: Path) -> None:
        """The rows of the sink that were not taken back; there is one moment in a stored input, so none is."""
        if self._sink is None:
            raise RuntimeError("pathway: collect follows a run, and none has finished")
        rows = csv.read_csv(self._sink, convert_options=csv.ConvertOptions(column_types={"key": pa.string()}))
        if any(diff.as_py() != 1 for diff in rows["diff"].unique()):
            raise RuntimeError("pathway: it took results back, though its input is one moment")
        starts = rows["window_start"].cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
        columns = {"window_start": starts, **key_columns(self._workload, rows["key"])}
        target.mkdir(parents=True)
        table = pa.table({**columns, **{name: rows[name] for name in self._workload.aggregates}})
        pq.write_table(table, target / "result.parquet")
        self._sink = None

    def close(self) -> None:
        pw.internals.parse_graph.G.clear()


def results(workload: Workload, folder: Path) -> Any:
    """The results of a workload over the CSV files of a folder, with the columns window_start, key and aggregates."""
    window = pw.temporal.sliding(hop=workload.every_seconds * US, duration=workload.size_seconds * US)
    if workload.input_kind == "keyed":
        tuples = pw.io.csv.read(str(folder), schema=_Keyed, mode="static")
        aggregates = {"n": pw.reducers.count(), "mean": pw.reducers.avg(pw.this.value)}
    else:
        keys = keys_of(workload)
        texts = pw.io.csv.read(str(folder), schema=_Tweet, mode="static")
        made = pw.apply_with_type(lambda text: tuple(keys(text)), tuple[str, ...], texts.text)
        tuples = texts.select(texts.ts, key=made).flatten(pw.this.key)
        aggregates = {"tweets": pw.reducers.count()}
    windows = tuples.windowby(tuples.ts, window=window, instance=tuples.key)
    return windows.reduce(window_start=pw.this._pw_window_start, key=pw.this._pw_instance, **aggregates)
