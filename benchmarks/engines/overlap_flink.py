"""The queries of the Semantic Overlap paper on Flink: SQL on its mini cluster, maps as Python table functions.

Its package reads no parquet, so input and results are CSV, in times of whole milliseconds, which the inputs have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.engines.csv_input import cores
from benchmarks.engines.overlap import columns_of, write_columns
from benchmarks.options import DRIVER_MEMORY_VARIABLE
from benchmarks.overlap.queries import QUERIES, JoinQuery, MapQuery

os.environ["JVM_ARGS"] = f"-Xmx{os.environ.get(DRIVER_MEMORY_VARIABLE, '4g')}"  # read when Flink starts its JVM

from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import udtf

SETTINGS = {"parallelism.default": str(cores()), "table.local-time-zone": "UTC"}


class OverlapOnFlink:
    """A run reads CSV files, one for each subtask, and ends when its job has written all results as CSV."""

    def __init__(self) -> None:
        self._environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in SETTINGS.items():
            self._environment.get_config().set(name, value)
        self._sink, self._columns = Path(), ()

    def run(self, query: str, form: str, files: Sequence[str], scratch: str) -> dict[str, Any]:
        asked, place = QUERIES[query], Path(scratch)
        self._sink, self._columns = place / "sink", columns_of(asked)
        read = ("orig", "change") if isinstance(asked, JoinQuery) else asked.columns
        _write_csv(files, read, place / "input")
        texts = ", ".join(f"`{name}` STRING" for name in read)
        self._table("tuples", f"`ts` TIMESTAMP(3), {texts}, WATERMARK FOR `ts` AS `ts`", place / "input")
        given = ", ".join(f"`{name}` {'TIMESTAMP(3)' if name.startswith('ts') else 'STRING'}" for name in self._columns)
        self._table("results", given, self._sink)
        select = _join(asked) if isinstance(asked, JoinQuery) else self._map(asked)
        started = time.perf_counter()
        self._environment.execute_sql(f"INSERT INTO results {select}").wait()
        return {"seconds": time.perf_counter() - started, "start_s": 0.0}

    def collect(self, target: str) -> None:
        types = {name: pa.timestamp("us") if name.startswith("ts") else pa.string() for name in self._columns}
        parts = [part for part in sorted(self._sink.iterdir()) if part.name.startswith("part-") and part.stat().st_size]
        convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False)
        tables = [
            csv.read_csv(part, csv.ReadOptions(column_names=list(types)), convert_options=convert) for part in parts
        ]
        found = pa.concat_tables([pa.schema(types).empty_table(), *tables])
        write_columns({name: found[name] for name in self._columns}, Path(target))

    def close(self) -> None:
        """Nothing to do: the JVM ends with the process."""

    def _map(self, query: MapQuery) -> str:
        result_types = [DataTypes.STRING() for _ in query.gives]
        self._environment.drop_temporary_function("apply_map")
        self._environment.create_temporary_function("apply_map", udtf(_rows_of(query), result_types=result_types))
        names = ", ".join(f"`{name}`" for name in query.gives)
        arguments = ", ".join(f"`{name}`" for name in query.columns)
        return f"SELECT ts, {names} FROM tuples, LATERAL TABLE(apply_map({arguments})) AS made({names})"

    def _table(self, name: str, columns: str, folder: Path) -> None:
        self._environment.execute_sql(f"DROP TABLE IF EXISTS {name}")
        self._environment.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv')"
        )


def _rows_of(query: MapQuery) -> Callable[..., Iterator[Any]]:
    function = query.function

    def apply(*values: str) -> Iterator[Any]:
        yield from function(*values)

    return apply


def _join(query: JoinQuery) -> str:
    size = f"INTERVAL '{query.tumbling_us // 1_000_000}' SECOND"
    side = (
        "SELECT ts, orig, CARDINALITY(SPLIT(`change`, ' ')) AS words, CHAR_LENGTH(orig) AS length, LOWER(orig) AS lowered "
        f"FROM tuples WHERE CHAR_LENGTH(orig) > {query.bound:.0f}"
    )
    windowed = f"SELECT * FROM TABLE(TUMBLE(TABLE sides, DESCRIPTOR(ts), {size}))"
    same = ("window_start", "window_end", "words", "length")
    fits = " AND ".join(f"l.{name} = r.{name}" for name in same)
    return (
        f"WITH sides AS ({side}) SELECT l.ts, r.ts, l.orig, r.orig FROM ({windowed}) l JOIN ({windowed}) r "
        f"ON {fits} AND l.lowered <> r.lowered"
    )


def _write_csv(files: Sequence[str], columns: Sequence[str], folder: Path) -> None:
    """The input in a file for each subtask, the tuples k, k + n, k + 2n, … in the k-th, each in order of time."""
    tuples = pa.concat_tables([pq.read_table(file, columns=["ts", *columns]) for file in files])
    tuples = tuples.set_column(0, "ts", tuples["ts"].cast(pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False))
    folder.mkdir(parents=True)
    for part in range(cores()):
        rows = tuples.take(np.arange(part, tuples.num_rows, cores()))
        csv.write_csv(rows, folder / f"part-{part}.csv", csv.WriteOptions(include_header=False))
