"""Nexmark on the engines that are no Java: tidegate in process, and DuckDB as one batch; adapters by name.

An adapter has `prepare(folder)`, which is not measured, `run(query, scratch)`, which returns the seconds it took, or why the
engine cannot express the query, and `collect(target)`, which writes the results of the last run as parquet.
"""

from __future__ import annotations

import time
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KINDS = ("person", "auction", "bid")


def nexmark_engine(engine: str, workload: str) -> Any:
    """The adapter of an engine, imported only in its own process."""
    if engine == "flink":
        return import_module("benchmarks.engines.nexmark_flink").NexmarkOnFlink()
    if "spark" in engine:
        return import_module("benchmarks.engines.nexmark_spark").NexmarkOnSpark(engine)
    return NexmarkInDuckDB() if engine == "duckdb" else NexmarkInProcess()


class NexmarkInProcess:
    """tidegate on threads of one process, two instances, from parquet files into tables in memory."""

    def __init__(self) -> None:
        self._folder, self._longest = Path(), timedelta()
        self._made: list[pa.Table] = []

    def prepare(self, folder: str, longest_ms: int) -> None:
        self._folder, self._longest = Path(folder), timedelta(milliseconds=longest_ms)

    def run(self, query: str, scratch: str) -> dict[str, Any]:
        import tidegate as tg
        from examples.nexmark.market import market_of_files
        from examples.nexmark.queries import QUERIES

        self._made = []
        asked = QUERIES[query](market_of_files(self._folder, self._longest))
        started = time.perf_counter()
        tg.start(asked, to=self._made.append, instances=2).wait()
        return {"seconds": time.perf_counter() - started}

    def collect(self, target: str) -> bool:
        write(pa.concat_tables(self._made), target)
        self._made = []
        return True

    def close(self) -> None:
        self._made = []


class NexmarkInDuckDB:
    """One in-memory connection; a run reads the parquet files and ends with the result as an Arrow table."""

    def __init__(self) -> None:
        import duckdb

        self._connection = duckdb.connect()
        self._connection.execute("SET preserve_insertion_order = false")
        self._connection.execute("SET TimeZone = 'UTC'")
        self._result: pa.Table | None = None

    def prepare(self, folder: str, longest_ms: int) -> None:
        from examples.nexmark.generator import side_table

        for kind in KINDS:
            self._connection.execute(f"CREATE OR REPLACE VIEW {kind} AS SELECT * FROM '{folder}/{kind}/*.parquet'")
        self._connection.register("side", side_table())

    def run(self, query: str, scratch: str) -> dict[str, Any]:
        from examples.nexmark.answers import ANSWERS

        self._result = None
        started = time.perf_counter()
        self._result = self._connection.sql(ANSWERS[query]).to_arrow_table()
        return {"seconds": time.perf_counter() - started}

    def collect(self, target: str) -> bool:
        assert self._result is not None
        write(self._result, target)
        self._result = None
        return True

    def close(self) -> None:
        self._connection.close()


def write(table: pa.Table, target: str) -> None:
    """Results as one parquet file in the folder ``target``."""
    Path(target).mkdir(parents=True)
    pq.write_table(table, Path(target) / "results.parquet")
