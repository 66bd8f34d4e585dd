"""tidegate in one process: the same workloads on threads over shared state, from files to tables in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from benchmarks.engines import Timing
from benchmarks.engines.tidegate_query import query_of
from benchmarks.inputs import Input
from benchmarks.workloads import Workload


class LocalEngine:
    """A run reads the parquet files as a stream and ends when every window has been handed out, into Arrow tables."""

    def __init__(self, workload: Workload, instances: int) -> None:
        self._workload = workload
        self._instances = instances
        self._made: list[pa.Table] = []

    def run(self, data: Input, scratch: Path) -> Timing:
        self._made = []
        query = query_of(tg.stream(str(data.folder / "*.parquet"), time="ts"), self._workload)
        started = time.perf_counter()
        tg.start(query, to=self._made.append, instances=self._instances).wait()
        seconds = time.perf_counter() - started
        return Timing(seconds, (seconds * 1_000,))

    def first_result(self, data: Input, scratch: Path, seen: Callable[[], None]) -> None:
        query = query_of(tg.stream(str(data.folder / "*.parquet"), time="ts"), self._workload)
        tg.start(query, to=lambda table: seen(), instances=self._instances).wait()

    def collect(self, target: Path) -> None:
        target.mkdir(parents=True)
        for number, table in enumerate(self._made):
            pq.write_table(table.select(list(self._workload.columns)), target / f"part-{number:05}.parquet")
        self._made = []

    def close(self) -> None:
        self._made = []


one_instance = partial(LocalEngine, instances=1)
two_instances = partial(LocalEngine, instances=2)
