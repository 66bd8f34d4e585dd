"""The queries of the Semantic Overlap paper on every engine: adapters by name.

An adapter has `run(query, form, files, scratch)`, which returns the seconds that it took and those of its start, and
`collect(target)`, which writes the results of the last run as parquet, both unmeasured but for what `run` says.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.overlap.queries import QUERIES, JoinQuery, MapQuery

PAIR_COLUMNS = ("ts_left", "ts_right", "orig_left", "orig_right")


def columns_of(query: MapQuery | JoinQuery) -> tuple[str, ...]:
    """The columns of the results that are compared, in their order."""
    return PAIR_COLUMNS if isinstance(query, JoinQuery) else ("ts", *query.gives)


def overlap_engine(engine: str, workload: str) -> Any:
    """The adapter of an engine, imported only in its own process."""
    if engine == "flink":
        return import_module("benchmarks.engines.overlap_flink").OverlapOnFlink()
    if "spark" in engine:
        return import_module("benchmarks.engines.overlap_spark").OverlapOnSpark(engine)
    return OverlapOnMicro() if engine == "tidegate-micro" else OverlapInProcess()


class OverlapOnMicro:
    """The engine of one operator in as many processes as cores, into a folder with snapshots every second."""

    def __init__(self) -> None:
        self._query: MapQuery | JoinQuery | None = None
        self._folder = Path()

    def run(self, query: str, form: str, files: Sequence[str], scratch: str) -> dict[str, Any]:
        """Processes are started afresh for every run; time is taken from when the first of them begins to read."""
        from benchmarks.overlap.on_micro import graph
        from tidegate import micro
        from tidegate.stream import cores

        self._query, self._folder = QUERIES[query], Path(scratch) / "sink"
        began = Path(scratch) / "began"
        began.mkdir(parents=True)
        whole = graph(self._query, files, cores())
        started, used = time.time(), tree_cpu_seconds() - time.process_time()
        micro.run(noting_begin(whole, began), to=self._folder, processes=cores())
        # This process starts the others and then waits for them.
        used = tree_cpu_seconds() - time.process_time() - used
        ended = (self._folder / "committed.json").stat().st_mtime  # when the last results were there
        marks = [json.loads(mark.read_text()) for mark in began.iterdir()]
        first = min(mark["time"] for mark in marks)
        starting = sum({mark["process"]: mark["cpu_seconds"] for mark in marks}.values())
        return {"seconds": ended - first, "start_s": first - started, "cpu_seconds": used - starting}

    def collect(self, target: str) -> None:
        from tidegate import micro

        assert self._query is not None
        rows = list(micro.results(self._folder))
        names = columns_of(self._query)
        values = [row[1:] if isinstance(self._query, JoinQuery) else row for row in rows]
        columns: list[Any] = list(zip(*values, strict=True)) or [[] for _ in names]
        write_columns(dict(zip(names, columns, strict=True)), Path(target))

    def close(self) -> None:
        """Its processes end with each run."""


class OverlapInProcess:
    """tidegate on threads of one process, two instances, into tables in memory."""

    def __init__(self) -> None:
        self._query: MapQuery | JoinQuery | None = None
        self._made: list[pa.Table] = []

    def run(self, query: str, form: str, files: Sequence[str], scratch: str) -> dict[str, Any]:
        import tidegate as tg
        from benchmarks.overlap.on_tidegate import query_over

        self._query, self._made = QUERIES[query], []
        stream = tg.stream(str(Path(files[0]).parent / "batch-*.parquet"), time="ts", name="tuples")
        whole = query_over(stream, self._query)
        started, used = time.perf_counter(), time.process_time()
        tg.start(whole, to=self._made.append, instances=2).wait()
        return {
            "seconds": time.perf_counter() - started,
            "start_s": 0.0,
            "cpu_seconds": time.process_time() - used,
        }

    def collect(self, target: str) -> None:
        assert self._query is not None
        names = columns_of(self._query)
        made = [table.select(list(names)) for table in self._made]
        write_columns(
            {name: pa.chunked_array([each[name].combine_chunks() for each in made]) for name in names}, Path(target)
        )
        self._made = []

    def close(self) -> None:
        self._made = []


def noting_begin(graph: Any, folder: Path) -> Any:
    """The same graph, whose sources write down when they are first read."""
    from dataclasses import replace

    from tidegate.micro import AggregateStage

    noted: dict[int, Any] = {}

    def visit(node: Any) -> Any:
        if id(node) not in noted:
            if isinstance(node, AggregateStage):
                noted[id(node)] = replace(node, inputs=tuple(map(visit, node.inputs)))
            else:
                noted[id(node)] = replace(node, read=partial(_noting, node.read, folder))
        return noted[id(node)]

    return visit(graph)


def _noting(read: Any, folder: Path, split: Any, skip: int) -> Any:
    told = {"time": time.time(), "process": os.getpid(), "cpu_seconds": time.process_time()}
    (folder / f"{os.getpid()}-{time.time_ns()}").write_text(json.dumps(told))
    return read(split, skip)


def tree_cpu_seconds(pid: int | None = None) -> float:
    """The processor time that a process, this one by default, and its descendants have used, those that have ended too."""
    import psutil

    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def write_columns(columns: dict[str, Any], target: Path) -> None:
    """Results as one parquet file: times as whole numbers of microseconds, the rest as text."""
    target.mkdir(parents=True)
    arrays = {}
    for name, values in columns.items():
        array = values if isinstance(values, pa.ChunkedArray) else pa.array(values)
        if name.startswith("ts"):
            array = (
                array.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
                if pa.types.is_timestamp(array.type)
                else array.cast(pa.int64())
            )
        else:
            array = array.cast(pa.string())
        arrays[name] = array
    pq.write_table(pa.table(arrays), target / "results.parquet")
