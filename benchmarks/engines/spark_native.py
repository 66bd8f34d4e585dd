"""Native Spark Structured Streaming, written as well as we can, on either of its state stores."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.engines.spark_streaming import HDFS_STATE, ROCKSDB_STATE, SparkEngine
from benchmarks.workloads import Workload

WATERMARK_DELAY = "1 millisecond"  # with none, Spark drops ties at the boundary of two micro-batches as late


def native_on_hdfs_state(workload: Workload) -> SparkEngine:
    return SparkEngine(workload, build, HDFS_STATE)


def native_on_rocksdb_state(workload: Workload) -> SparkEngine:
    return SparkEngine(workload, build, ROCKSDB_STATE)


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
