"""Flink: SQL on its mini cluster in streaming mode, all operators in Java.

Its Python package comes without parquet, so it reads and writes CSV. Each subtask reads a file of its own, in order of
time, so that no tuple is late.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.engines import Timing
from benchmarks.engines.csv_input import cores, write_csv
from benchmarks.engines.text_keys import key_columns
from benchmarks.inputs import Input
from benchmarks.options import DRIVER_MEMORY_VARIABLE
from benchmarks.workloads import Workload

os.environ["JVM_ARGS"] = f"-Xmx{os.environ.get(DRIVER_MEMORY_VARIABLE, '4g')}"  # read when Flink starts its JVM

from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {
    "parallelism.default": str(cores()),
    "table.local-time-zone": "UTC",
}


class FlinkEngine:
    """A run reads CSV files and ends when its job has written all windows as CSV."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in SETTINGS.items():
            self._environment.get_config().set(name, value)
        self._sink: Path | None = None

    def run(self, data: Input, scratch: Path) -> Timing:
        select = self._select(data, scratch / "input")
        self._sink = scratch / "sink"
        keyed = self._workload.input_kind == "keyed"
        columns = "`key` BIGINT, `n` BIGINT, `mean` DOUBLE" if keyed else "`key` STRING, `tweets` BIGINT"
        self._table("results", f"`window_start` TIMESTAMP(3), {columns}", self._sink)
        started = time.perf_counter()
        self._environment.execute_sql(f"INSERT INTO results {select}").wait()
        seconds = time.perf_counter() - started
        return Timing(seconds, (seconds * 1_000,))

    def first_result(self, data: Input, scratch: Path, seen: Callable[[], None]) -> None:
        with self._environment.execute_sql(self._select(data, scratch / "input")).collect() as rows:
            next(rows)
            seen()

    def collect(self, target: Path) -> None:
        if self._sink is None:
            raise RuntimeError("flink: collect follows a run, and none has finished")
        names = ["window_start", "key", *self._workload.aggregates]
        options = csv.ConvertOptions(column_types={"key": pa.string(), "window_start": pa.timestamp("us")})
        parts = (part for part in sorted(self._sink.iterdir()) if part.name.startswith("part-") and part.stat().st_size)
        read = [csv.read_csv(part, csv.ReadOptions(column_names=names), convert_options=options) for part in parts]
        rows = pa.concat_tables(read)
        starts = rows["window_start"].cast(pa.timestamp("us", tz="UTC"))
        columns = {"window_start": starts, **key_columns(self._workload, rows["key"])}
        target.mkdir(parents=True)
        table = pa.table({**columns, **{name: rows[name] for name in self._workload.aggregates}})
        pq.write_table(table, target / "result.parquet")
        self._sink = None

    def close(self) -> None:
        """Nothing to do: the JVM ends with the process."""

    def _select(self, data: Input, folder: Path) -> str:
        """Write the input and declare it as `tuples`; the query over it."""
        tuples = write_csv(data, self._workload, folder, pa.timestamp("ms"), parts=cores(), header=False)
        fields = "`key` BIGINT, `value` DOUBLE" if self._workload.input_kind == "keyed" else "`text` STRING"
        self._table("tuples", f"`ts` TIMESTAMP(3), {fields}, WATERMARK FOR `ts` AS `ts`", folder)
        most_words = 0
        if self._workload.pair_distance:
            most_words = 1 + pc.max(pc.count_substring(tuples["text"], " ")).as_py()
        return query(self._workload, most_words)

    def _table(self, name: str, columns: str, folder: Path) -> None:
        self._environment.execute_sql(f"DROP TABLE IF EXISTS {name}")
        self._environment.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv')"
        )


def query(workload: Workload, most_words: int) -> str:
    """The SQL of a workload over `tuples`; `most_words` is the length of the longest text where pairs are asked for."""
    entries = "SELECT ts, `key`, `value` FROM tuples"
    if workload.input_kind == "tweets":
        split = "SELECT ts, SPLIT(text, ' ') AS words FROM tuples"
        keys = f"ARRAY_DISTINCT({_pairs(workload.pair_distance, most_words) if workload.pair_distance else 'words'})"
        entries = f"SELECT ts, `key` FROM ({split}) CROSS JOIN UNNEST({keys}) AS made(`key`) WHERE `key` IS NOT NULL"
    aggregates = "COUNT(*), AVG(`value`)" if workload.input_kind == "keyed" else "COUNT(*)"
    every, size = (f"INTERVAL '{seconds}' SECOND(6)" for seconds in (workload.every_seconds, workload.size_seconds))
    return (
        f"WITH entries AS ({entries}) SELECT window_start, `key`, {aggregates} "
        f"FROM TABLE(HOP(TABLE entries, DESCRIPTOR(ts), {every}, {size})) GROUP BY window_start, window_end, `key`"
    )


def _pairs(distance: int, most_words: int) -> str:
    """All pairs of a text as an array, null where it is shorter: SQL has no way to zip an array with itself."""
    return "ARRAY[{}]".format(
        ", ".join(
            f"words[{left}] || ' ' || words[{left + apart}]"
            for apart in range(1, distance + 1)
            for left in range(1, most_words - apart + 1)
        )
    )
