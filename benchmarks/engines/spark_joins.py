"""Joins of two streams on Spark, by native Spark and by tidegate: all pairs near in time, and by key.

Native Spark refuses a stream-stream join without an equality, so for all pairs it gets a constant key.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import tidegate as tg
from benchmarks.compare import digest
from benchmarks.engines.spark_native import NATIVE, WATERMARK_DELAY, rows_counted
from benchmarks.engines.spark_streaming import read_rows, session, sink_of, timed, to_parquet
from benchmarks.engines.tidegate_spark import ON_SPARK, SETTINGS, rows_reported
from benchmarks.joins import near

SIDES = ("left", "right")
COLUMNS = {
    "scalejoin-spark": ("ts_left", "x", "y", "ts_right", "a", "b"),
    "equijoin": ("key", "ts_left", "value", "ts_right", "value_right"),
}


class JoinEngine:
    """An engine for a workload of `COLUMNS`, on a Spark session that lives as long as it does."""

    def __init__(self, engine: str, workload: str) -> None:
        self._engine, self._workload = engine, workload
        self._spark = session(NATIVE.get(engine, SETTINGS))

    def join(self, folder: str, within_us: int, files: int, scratch: str) -> dict[str, Any]:
        """Join the streams in two folders, a file of each in a micro-batch: what it took, and a fingerprint of the pairs."""
        place = Path(scratch)
        writer = self._writer([Path(folder) / side for side in SIDES], within_us, place)
        rows_of = rows_counted if self._engine in NATIVE else rows_reported
        timing = timed(writer.trigger(availableNow=True), files, rows_of)
        pairs = pl.scan_parquet(sink_of(place) / "*.parquet").select(COLUMNS[self._workload]).collect()
        return {
            "seconds": timing.seconds,
            "batch_ms": timing.batch_ms,
            "start_s": timing.start_seconds,
            "digest": digest(pairs),
        }

    def _writer(self, folders: list[Path], within_us: int, place: Path) -> DataStreamWriter:
        by_key = self._workload == "equijoin"
        if self._engine in NATIVE:
            left, right = (read_rows(self._spark, folder) for folder in folders)
            return to_parquet((_native_keyed if by_key else _native_near)(left, right, within_us), place)
        query = partial(_keyed if by_key else _near, within=f"{within_us}us")
        return ON_SPARK[self._engine].writer(self._spark, query, folders, place)

    def close(self) -> None:
        self._spark.stop()


def _near(left: tg.Stream, right: tg.Stream, within: str) -> tg.Stream:
    return left.join(right, within=within, where=near, bands=False).select("ts", *COLUMNS["scalejoin-spark"])


def _keyed(left: tg.Stream, right: tg.Stream, within: str) -> tg.Stream:
    return left.join(right, on="key", within=within).select("ts", *COLUMNS["equijoin"])


def _native_near(left: DataFrame, right: DataFrame, within_us: int) -> DataFrame:
    fits = "abs(x - a) <= 10 and abs(y - b) <= 10"
    one, other = left.withColumn("one", F.lit(1)), right.withColumn("other", F.lit(1))
    return _native(one, other, within_us, f"one = other and {fits}").select(*COLUMNS["scalejoin-spark"])


def _native_keyed(left: DataFrame, right: DataFrame, within_us: int) -> DataFrame:
    named = right.withColumnsRenamed({"key": "key_right", "value": "value_right"})
    return _native(left, named, within_us, "key = key_right").select(*COLUMNS["equijoin"])


def _native(left: DataFrame, right: DataFrame, within_us: int, condition: str) -> DataFrame:
    one, other = (
        side.withColumnRenamed("ts", name).withWatermark(name, WATERMARK_DELAY)
        for side, name in ((left, "ts_left"), (right, "ts_right"))
    )
    within = f"interval {within_us} microseconds"
    close = f"ts_right between ts_left - {within} and ts_left + {within}"
    return one.join(other, F.expr(f"{condition} and {close}"))
