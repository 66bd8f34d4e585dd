"""Native Spark Structured Streaming, written as well as we can, on either of its state stores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.engines.spark_streaming import SparkEngine, read_rows, to_parquet
from benchmarks.workloads import Workload

WATERMARK_DELAY = "1 millisecond"  # with none, Spark drops ties at the boundary of two micro-batches as late
PARTITIONS = {"spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}
HDFS_STATE = PARTITIONS  # Spark's default: a hash map per partition, deltas written to the checkpoint
ROCKSDB_STATE: Mapping[str, str] = {
    **PARTITIONS,
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
NATIVE: Mapping[str, Mapping[str, str]] = {"spark-hdfs": HDFS_STATE, "spark-rocksdb": ROCKSDB_STATE}
"""The engines of native Spark and their settings."""


def native_on_hdfs_state(workload: Workload) -> SparkEngine:
    return SparkEngine(workload, _over_folder, HDFS_STATE, rows_counted)


def native_on_rocksdb_state(workload: Workload) -> SparkEngine:
    return SparkEngine(workload, _over_folder, ROCKSDB_STATE, rows_counted)


def rows_counted(progress: StreamingQueryProgress) -> int:
    """The tuples of a micro-batch, as Spark counts them."""
    return int(progress.numInputRows)


def _over_folder(spark: SparkSession, folder: Path, scratch: Path, workload: Workload) -> DataStreamWriter:
    columns = ("window_start", "window_end", *workload.keys, *workload.aggregates)
    return to_parquet(build(read_rows(spark, folder), workload).select(*columns), scratch)


def build(stream: DataFrame, workload: Workload) -> DataFrame:
    """The results of `workload` over `stream`, from built-in expressions only."""
    tuples = stream.withWatermark("ts", WATERMARK_DELAY)
    window = F.window("ts", f"{workload.size_seconds} seconds", f"{workload.every_seconds} seconds").alias("window")
    match workload.name:
        case "wordcount":
            words = F.array_distinct(F.split("text", " "))
            counts = tuples.select("ts", F.explode(words).alias("word")).groupBy(window, "word")
            results = counts.agg(F.count("*").alias("tweets"))
        case "paircount-l" | "paircount-m" | "paircount-h":
            pairs = tuples.select("ts", F.split("text", " ").alias("words")).select(
                "ts", F.explode(_distinct_pairs(workload.pair_distance)).alias("pair")
            )
            results = pairs.groupBy(window, "pair").agg(F.count("*").alias("tweets"))
            left, right = F.substring_index("pair", " ", 1), F.substring_index("pair", " ", -1)
            results = results.withColumns({"left": left, "right": right})
        case "keyed":
            aggregates = (F.count("*").alias("n"), F.avg("value").alias("mean"))
            results = tuples.groupBy(window, "key").agg(*aggregates)
        case name:
            raise ValueError(f"spark: no query for workload {name!r}")
    return results.withColumns({"window_start": F.col("window.start"), "window_end": F.col("window.end")})


def _distinct_pairs(distance: int) -> Column:
    """The set of pairs as "left right" strings, which ran faster than structs of two strings on both state stores."""
    partners = f"transform(slice(words, i + 2, {distance}), partner -> concat(word, ' ', partner))"
    return F.expr(f"array_distinct(flatten(transform(words, (word, i) -> {partners})))")
