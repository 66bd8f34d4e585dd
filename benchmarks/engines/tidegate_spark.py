"""tidegate on Spark: the same workloads, the query between source and sink written with tidegate."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
from pyspark.sql import DataFrame

import tidegate as tg
from benchmarks.engines.spark_streaming import ROCKSDB_STATE, SparkEngine
from benchmarks.pairs import pairs_within
from benchmarks.workloads import Workload

# State is outside the Java heap and tuples are combined in Python workers, so a small heap does. Every Python task has its
# price, so a file of 50,000 tuples is not split over the cores: the cost of opening a file is Spark's default again.
SETTINGS = {**ROCKSDB_STATE, "spark.driver.memory": "1g", "spark.sql.files.openCostInBytes": str(4 * 1024**2)}


def tidegate_on_spark(workload: Workload) -> SparkEngine:
    return SparkEngine(workload, build, SETTINGS)


def build(stream: DataFrame, workload: Workload) -> DataFrame:
    """The results of `workload` over `stream`, as the streaming DataFrame that tidegate makes of it."""
    tuples = tg.stream(stream, time="ts")
    size, every = f"{workload.size_seconds} seconds", f"{workload.every_seconds} seconds"
    match workload.name:
        case "wordcount":
            words = tuples.with_columns(words=nw.col("text").str.split(" ")).key_by(tg.each("words", name="word"))
            query = words.window(size, every=every).aggregate(tweets=tg.count())
        case "paircount-l" | "paircount-m":
            pairs = tg.keys(
                pairs_within(workload.pair_distance),
                columns={"left": pa.string(), "right": pa.string()},
                reads=["text"],
            )
            query = tuples.key_by(pairs).window(size, every=every).aggregate(tweets=tg.count())
        case "keyed":
            query = tuples.key_by("key").window(size, every=every).aggregate(n=tg.count(), mean=tg.mean("value"))
        case name:
            raise ValueError(f"tidegate-spark: no query for workload {name!r}")
    results: DataFrame = query.to_spark()
    return results
