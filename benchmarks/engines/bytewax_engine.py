"""Bytewax: a Python function for every tuple, key and window, in one worker.

Its watermark usually moves on with the system's clock while a key has no tuples. Here that clock stands still, because a
stored input is read at another speed than it was recorded at and tuples would be late for no reason of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators.windowing import EventClock, SlidingWindower, fold_window
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.engines import Timing
from benchmarks.engines.text_keys import key_columns, keys_of
from benchmarks.inputs import Input
from benchmarks.workloads import Workload

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BATCH_ROWS = 10_000

Result = tuple[str, tuple[int, tuple[int, float]]]


class BytewaxEngine:
    """A run reads the parquet files tuple by tuple and ends with all results in a list."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._results: list[Result] = []

    def run(self, data: Input, scratch: Path) -> Timing:
        self._results = []
        flow = dataflow(self._workload, data, self._results.extend)
        started = time.perf_counter()
        run_main(flow)
        seconds = time.perf_counter() - started
        return Timing(seconds, (seconds * 1_000,))

    def first_result(self, data: Input, scratch: Path, seen: Callable[[], None]) -> None:
        run_main(dataflow(self._workload, data, lambda results: seen()))

    def collect(self, target: Path) -> None:
        target.mkdir(parents=True)
        size_us = self._workload.every_seconds * 1_000_000
        starts = pa.array([window * size_us for _, (window, _) in self._results], pa.timestamp("us", tz="UTC"))
        counts = [folded[0] for _, (_, folded) in self._results]
        columns = {"window_start": starts, **key_columns(self._workload, [key for key, _ in self._results])}
        if self._workload.input_kind == "keyed":
            means = [total / count for _, (_, (count, total)) in self._results]
            columns |= {"n": pa.array(counts), "mean": pa.array(means, pa.float64())}
        else:
            columns |= {"tweets": pa.array(counts)}
        pq.write_table(pa.table(columns), target / "result.parquet")
        self._results = []

    def close(self) -> None:
        self._results = []


def dataflow(workload: Workload, data: Input, take: Callable[[list[Result]], None]) -> Dataflow:
    """The workload from files to `take`: a flat map to keys, then a fold of (count, sum) for each key and window."""
    flow = Dataflow(workload.name.replace("-", "_"))
    keyed = workload.input_kind == "keyed"
    columns = ("ts", "key", "value") if keyed else ("ts", "text")
    tuples = op.input("tuples", flow, _Files(data.files, columns))
    entries = op.flat_map("keys", tuples, _keyed_entry if keyed else partial(_text_entries, keys_of(workload)))
    now = datetime.now(UTC)
    clock = EventClock(
        ts_getter=lambda entry: entry[0],
        wait_for_system_duration=timedelta(0),
        now_getter=lambda: now,
        to_system_utc=lambda _: None,
    )
    windows = SlidingWindower(
        length=timedelta(seconds=workload.size_seconds),
        offset=timedelta(seconds=workload.every_seconds),
        align_to=EPOCH,
    )
    folded = fold_window("fold", entries, clock, windows, lambda: (0, 0.0), _add, _merge, ordered=False)
    op.output("results", folded.down, _Sink(take))
    return flow


def _text_entries(
    keys: Callable[[str], set[str]], row: tuple[datetime, str]
) -> list[tuple[str, tuple[datetime, float]]]:
    ts, text = row
    entry = (ts, 0.0)
    return [(key, entry) for key in keys(text)]


def _keyed_entry(row: tuple[datetime, int, float]) -> list[tuple[str, tuple[datetime, float]]]:
    ts, key, value = row
    return [(str(key), (ts, value))]


def _add(folded: tuple[int, float], entry: tuple[datetime, float]) -> tuple[int, float]:
    return folded[0] + 1, folded[1] + entry[1]


def _merge(left: tuple[int, float], right: tuple[int, float]) -> tuple[int, float]:
    return left[0] + right[0], left[1] + right[1]


class _Rows(StatelessSourcePartition[tuple[Any, ...]]):
    def __init__(self, files: tuple[Path, ...], columns: tuple[str, ...]) -> None:
        self._batches = _batches(files, columns)

    def next_batch(self) -> list[tuple[Any, ...]]:
        batch = next(self._batches, None)
        if batch is None:
            raise StopIteration
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _batches(files: tuple[Path, ...], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from pq.ParquetFile(file).iter_batches(BATCH_ROWS, columns=list(columns))


class _Files(DynamicSource[tuple[Any, ...]]):
    def __init__(self, files: tuple[Path, ...], columns: tuple[str, ...]) -> None:
        self._files = files
        self._columns = columns

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Rows:
        return _Rows(self._files, self._columns)


class _Taken(StatelessSinkPartition[Result]):
    def __init__(self, take: Callable[[list[Result]], None]) -> None:
        self._take = take

    def write_batch(self, items: list[Result]) -> None:
        self._take(items)


class _Sink(DynamicSink[Result]):
    def __init__(self, take: Callable[[list[Result]], None]) -> None:
        self._take = take

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Taken:
        return _Taken(self._take)
