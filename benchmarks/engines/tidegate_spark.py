"""tidegate on Spark: the same workloads, the query between source and sink written with tidegate."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
from pyspark.sql import DataFrame

import tidegate as tg
from benchmarks.engines.spark_streaming import ROCKSDB_STATE, SparkEngine
from benchmarks.pairs import pairs_within
from benchmarks.workloads import Workload

# State is outside the Java heap and tuples are combined in Python workers, so a small heap does. Spark measures an Arrow
# batch after every row if its bytes are limited, which takes longer than making it.
SETTINGS = {
    **ROCKSDB_STATE,
    "spark.driver.memory": "1g",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
# Every Python task has its price. Pairs make a million keys of a batch and are worth a task for each core. For words and
# single keys one cell is enough, and a file of 50,000 tuples is not split.
ONE_CELL = {"spark.sql.shuffle.partitions": "1"}
WHOLE_FILE_BYTES = 4 * 1024**2


def tidegate_on_spark(workload: Workload) -> SparkEngine:
    if workload.pair_distance:
        return SparkEngine(workload, build, SETTINGS)
    return SparkEngine(workload, build, SETTINGS | ONE_CELL, WHOLE_FILE_BYTES)


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
