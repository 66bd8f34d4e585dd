"""Nexmark on Flink: SQL on its mini cluster in streaming mode.

Its package reads no parquet, so tables are CSV, in times of whole milliseconds, each subtask reading a file of its own in
order of time. Results that only grow are written as CSV; those that change go nowhere, as files take no changes, and are
collected from a smaller input to be compared.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.engines.csv_input import cores
from benchmarks.engines.nexmark import KINDS, write
from benchmarks.nexmark.flink_sql import QUERIES, UPDATING
from benchmarks.options import DRIVER_MEMORY_VARIABLE
from examples.nexmark.generator import side_table

os.environ["JVM_ARGS"] = f"-Xmx{os.environ.get(DRIVER_MEMORY_VARIABLE, '4g')}"  # read when Flink starts its JVM

from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

SETTINGS = {"parallelism.default": str(cores()), "table.local-time-zone": "UTC"}
TYPES = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "STRING", pa.timestamp("ms"): "TIMESTAMP(3)"}
READ_AS = {"BigIntType": pa.int64(), "DoubleType": pa.float64(), "TimestampType": pa.timestamp("ms")}
"""How types of results are read by Arrow; all others are text."""


class NexmarkOnFlink:
    """A run reads CSV files and ends when its job has."""

    def __init__(self) -> None:
        self._environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in SETTINGS.items():
            self._environment.get_config().set(name, value)
        self._sink, self._query = Path(), ""

    def prepare(self, folder: str, longest_ms: int) -> None:
        """Write the tables as CSV, once, and declare them."""
        place = Path(folder) / "csv"
        tables = {kind: _in_milliseconds(pq.read_table(Path(folder) / kind)) for kind in KINDS}
        tables["side"] = side_table()
        for name, table in tables.items():
            if not (place / name).exists():
                (place / name).mkdir(parents=True)
                for part in range(cores()):
                    rows = table.take(np.arange(part, table.num_rows, cores()))
                    csv.write_csv(rows, place / name / f"part-{part}.csv", csv.WriteOptions(include_header=False))
            columns = ", ".join(f"`{field.name}` {TYPES[field.type]}" for field in table.schema)
            for named, time_column in {name: "date_time", **({"arriving": "arrival"} if name == "bid" else {})}.items():
                timed = "" if name == "side" else f", WATERMARK FOR `{time_column}` AS `{time_column}`"
                self._table(named, columns + timed, place / name)

    def run(self, query: str, scratch: str) -> dict[str, Any]:
        if query not in QUERIES:
            return {"cannot": "no average over rows that change"}
        self._sink, self._query = Path(scratch) / "sink", query
        columns = ", ".join(f"`{name}` {TYPES[kind]}" for name, kind in self._columns().items())
        self._table("results", columns, None if query in UPDATING else self._sink)
        started = time.perf_counter()
        self._environment.execute_sql(f"INSERT INTO results {QUERIES[query]}").wait()
        return {"seconds": time.perf_counter() - started}

    def collect(self, target: str) -> bool:
        """The rows in the sink, or of a query that changes rows all that are left of a run of its own."""
        kinds = self._columns()
        names = list(kinds)
        if self._query in UPDATING:
            write(pa.Table.from_pylist(self._left_over(names)), target)
            return True
        convert = csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
        parts = [part for part in sorted(self._sink.iterdir()) if part.name.startswith("part-") and part.stat().st_size]
        read = [csv.read_csv(part, csv.ReadOptions(column_names=names), convert_options=convert) for part in parts]
        write(pa.concat_tables([pa.schema(kinds).empty_table(), *read]), target)
        return True

    def close(self) -> None:
        """Nothing to do: the JVM ends with the process."""

    def _columns(self) -> dict[str, pa.DataType]:
        """The columns of the query; event times are plain times to a sink."""
        schema = self._environment.sql_query(QUERIES[self._query]).get_schema()
        kinds = (READ_AS.get(type(kind).__name__, pa.string()) for kind in schema.get_field_data_types())
        return dict(zip(schema.get_field_names(), kinds, strict=True))

    def _left_over(self, names: list[str]) -> list[dict[str, Any]]:
        """The last row of each key. What a row replaces is not always taken back first, so the key decides."""
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        with self._environment.execute_sql(QUERIES[self._query]).collect() as changes:
            for change in changes:
                row = dict(zip(names, change, strict=True))
                key = tuple(row[name] for name in UPDATING[self._query].key)
                if change.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                    rows[key] = row
                elif change.get_row_kind() == RowKind.DELETE:
                    rows.pop(key, None)
        return list(rows.values())

    def _table(self, name: str, columns: str, folder: Path | None) -> None:
        files = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv'"
        to = "'connector' = 'blackhole'" if folder is None else files
        self._environment.execute_sql(f"DROP TABLE IF EXISTS {name}")
        self._environment.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({to})")


def _in_milliseconds(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            moments = table.column(number).cast(pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False)
            table = table.set_column(number, field.name, moments)
    return table
