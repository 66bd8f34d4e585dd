"""Nexmark on Spark: native, and by tidegate. Files of one number are a micro-batch; results go to parquet files."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import tidegate as tg
from benchmarks.engines.nexmark import KINDS, write
from benchmarks.engines.spark_native import NATIVE as SETTINGS_OF_NATIVE
from benchmarks.engines.spark_streaming import checkpoint_of, read_rows, session, sink_of, to_parquet
from benchmarks.engines.tidegate_spark import SETTINGS
from benchmarks.nexmark.spark_queries import CANNOT, NATIVE, UPDATING, Tables
from examples.nexmark.generator import side_table
from examples.nexmark.market import market_of_files
from examples.nexmark.queries import QUERIES
from tidegate.results import RunResult

WHOLE = ("q0", "q1", "q2", "q3", "q10", "q13", "q14", "q17", "q18", "q20", "q21", "q22")
"""Queries of native Spark whose results are all there when a run ends; others have windows that are still open."""


class NexmarkOnSpark:
    """An engine on a Spark session that lives as long as it does. A run is timed from its start to its end."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._spark = session(SETTINGS_OF_NATIVE.get(engine, SETTINGS))
        self._folder, self._longest = Path(), timedelta()
        self._sink, self._query = Path(), ""
        self._run: RunResult | None = None

    def prepare(self, folder: str, longest_ms: int) -> None:
        self._folder, self._longest = Path(folder), timedelta(milliseconds=longest_ms)

    def run(self, query: str, scratch: str) -> dict[str, Any]:
        place = Path(scratch)
        self._sink, self._query = sink_of(place), query
        if self._engine not in SETTINGS_OF_NATIVE:
            asked = QUERIES[query](market_of_files(self._folder, self._longest))
            started = time.perf_counter()
            self._run = tg.run(asked, on="spark", spark=self._spark, to=self._sink, files_per_batch=1, progress=False)
            return {"seconds": time.perf_counter() - started}
        if query in CANNOT:
            return {"cannot": CANNOT[query]}
        writer = self._native(query, place).trigger(availableNow=True)
        started = time.perf_counter()
        writer.start().awaitTermination()
        return {"seconds": time.perf_counter() - started}

    def collect(self, target: str) -> bool:
        if self._engine not in SETTINGS_OF_NATIVE:
            assert self._run is not None
            write(self._run.read(), target)
        elif self._query in UPDATING:
            self._sink.rename(target)
        else:
            self._spark.read.parquet(str(self._sink)).write.parquet(target)
        return self._engine not in SETTINGS_OF_NATIVE or self._query in WHOLE

    def close(self) -> None:
        self._spark.stop()

    def _native(self, query: str, place: Path) -> DataStreamWriter:
        streams = {kind: read_rows(self._spark, self._folder / kind) for kind in KINDS}
        side = self._spark.createDataFrame(side_table())
        results = NATIVE[query](Tables(**streams, side=side, longest=self._longest))
        if query not in UPDATING:
            return to_parquet(results, place)
        self._sink.mkdir(parents=True)
        writer = results.writeStream.outputMode("update").foreachBatch(self._changed)
        return writer.option("checkpointLocation", str(checkpoint_of(place)))

    def _changed(self, rows: DataFrame, batch: int) -> None:
        """The rows that a micro-batch changed, with its number: the last of each key counts."""
        rows.withColumn("batch", F.lit(batch)).write.mode("append").parquet(str(self._sink))
