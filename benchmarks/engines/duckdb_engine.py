"""DuckDB: the whole input as one batch of SQL, every tuple expanded into its windows."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engines import Timing
from benchmarks.inputs import Input
from benchmarks.workloads import Workload


class DuckDBEngine:
    """One in-memory connection; a run reads the parquet files and ends with the result as an Arrow table."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._connection = duckdb.connect()
        self._connection.execute("SET preserve_insertion_order = false")
        self._connection.execute("SET TimeZone = 'UTC'")
        self._result: pa.Table | None = None

    def run(self, data: Input, scratch: Path) -> Timing:
        self._result = None
        sql = query(self._workload, str(data.folder / "*.parquet"))
        started = time.perf_counter()
        self._result = self._connection.sql(sql).to_arrow_table()
        seconds = time.perf_counter() - started
        return Timing(seconds, (seconds * 1_000,))

    def collect(self, target: Path) -> None:
        if self._result is None:
            raise RuntimeError("duckdb: collect follows a run, and none has finished")
        target.mkdir(parents=True)
        pq.write_table(self._result, target / "result.parquet")
        self._result = None

    def close(self) -> None:
        self._connection.close()


def query(workload: Workload, files: str) -> str:
    """The SQL of a workload over the parquet `files`: keys per tuple, windows per tuple, one hash aggregation."""
    every_us = workload.every_seconds * 1_000_000
    slot = f"epoch_us(ts) // {every_us}"  # the last window that holds the tuple, counted from the epoch
    match workload.name:
        case "wordcount":
            source = f"SELECT {slot} AS slot, unnest(list_distinct(string_split(text, ' '))) AS word FROM '{files}'"
            select = "word, count(*) AS tweets"
        case "paircount-l" | "paircount-m" | "paircount-h":
            split = f"SELECT {slot} AS slot, string_split(text, ' ') AS words FROM '{files}'"
            source = f"SELECT slot, unnest({_distinct_pairs(workload.pair_distance)}) AS pair FROM ({split})"
            select = 'pair[1] AS "left", pair[2] AS "right", count(*) AS tweets'
        case "keyed":
            source = f"SELECT {slot} AS slot, key, value FROM '{files}'"
            select = "key, count(*) AS n, avg(value) AS mean"
        case name:
            raise ValueError(f"duckdb: no query for workload {name!r}")
    return (
        f"SELECT make_timestamptz((slot - back) * {every_us}) AS window_start, {select} "
        f"FROM ({source}), range({workload.windows_per_tuple}) AS windows(back) GROUP BY ALL"
    )


def _distinct_pairs(distance: int) -> str:
    """The set of (words[i], words[i + k]) for k up to `distance`: the list zipped with itself, shifted by k."""
    shifted = (f"list_zip(words[:-{k + 1}], words[{k + 1}:])" for k in range(1, distance + 1))
    return f"list_distinct(flatten([{', '.join(shifted)}]))"
