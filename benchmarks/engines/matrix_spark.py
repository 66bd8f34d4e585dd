"""The cells of the matrix on Spark: native, in Spark's SQL over streams with watermarks, and by tidegate over files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import tidegate as tg
from benchmarks.engines.overlap import tree_cpu_seconds
from benchmarks.engines.spark_native import NATIVE, WATERMARK_DELAY, rows_counted
from benchmarks.engines.spark_streaming import read_rows, session, sink_of, timed, to_parquet
from benchmarks.engines.tidegate_spark import ON_SPARK, SETTINGS, rows_reported
from benchmarks.matrix.cells import AGGREGATES, KEYS, SECOND, WINDOWS, MatrixCell
from benchmarks.matrix.engines import query_of
from benchmarks.matrix.on_spark import TABLE, streams_of
from benchmarks.matrix.query_cells import QueryCell
from benchmarks.matrix.run import ALL

CELLS = {cell.name: cell for cell in ALL}


class MatrixOnSpark:
    """An engine on a Spark session that lives as long as it does; a file of each stream is a micro-batch."""

    def __init__(self, engine: str, _workload: str) -> None:
        self._engine = engine
        self._spark = session(NATIVE.get(engine, SETTINGS))
        self._sink, self._columns = Path(), ()

    def run(self, cell: str, folder: str, files: int, scratch: str) -> dict[str, Any]:
        """Run a cell over the streams in the folders of a folder; each of their files, but the empty one, is a batch."""
        asked, place = CELLS[cell], Path(scratch)
        self._sink, self._columns = sink_of(place), asked.columns
        folders = [Path(folder) / name for name in streams_of(asked)]
        table = pq.read_table(Path(folder) / TABLE) if isinstance(asked, QueryCell) else None
        if self._engine in NATIVE:
            writer = to_parquet(self._native(asked, folders, table), place)
        else:
            writer = ON_SPARK[self._engine].writer(self._spark, partial(_ours, asked, table), folders, place)
        rows_of = rows_counted if self._engine in NATIVE else rows_reported
        used = tree_cpu_seconds()
        timing = timed(writer.trigger(availableNow=True), files, rows_of)
        return {"seconds": timing.seconds, "cpu_seconds": tree_cpu_seconds() - used}

    def collect(self, target: str) -> None:
        self._spark.read.parquet(str(self._sink)).select(*self._columns).write.parquet(target)

    def close(self) -> None:
        self._spark.stop()

    def _native(self, cell: MatrixCell | QueryCell, folders: list[Path], table: pa.Table | None) -> DataFrame:
        for folder in folders:
            rows = read_rows(self._spark, folder).withWatermark("ts", WATERMARK_DELAY)
            rows.createOrReplaceTempView(folder.name)
        if isinstance(cell, MatrixCell):
            return self._spark.sql(_aggregate_sql(cell))
        assert cell.native is not None
        assert table is not None
        self._spark.createDataFrame(table).createOrReplaceTempView("t")
        return self._spark.sql(cell.native)


def _ours(cell: MatrixCell | QueryCell, table: pa.Table | None, *streams: tg.Stream) -> tg.Stream:
    if isinstance(cell, MatrixCell):
        return query_of(cell, *streams)
    assert table is not None
    return cell.ours(*streams, table)


def _aggregate_sql(cell: MatrixCell) -> str:
    keys, form, rows = ", ".join(KEYS[cell.keys]), WINDOWS[cell.window], "tuples"
    if cell.keys == "many keys":
        rows = "(select *, explode(array_distinct(words)) as word from tuples)"
    kind = "session_window" if form.is_session else "window"
    size, every = f"'{form.size // SECOND} seconds'", f"'{form.every // SECOND} seconds'"
    window = f"{kind}(ts, {size})" if form.is_session else f"{kind}(ts, {size}, {every})"
    value = AGGREGATES[cell.aggregate].native
    return f"select {keys}, {kind}.start as window_start, {value} as value from {rows} group by {keys}, {window}"
