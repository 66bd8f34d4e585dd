"""tidegate on Spark: the same workloads, the query between source and sink written with tidegate."""

from __future__ import annotations

from pyspark.sql import DataFrame

import tidegate as tg
from benchmarks.engines.spark_streaming import ROCKSDB_STATE, SparkEngine
from benchmarks.engines.tidegate_query import query_of
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
    results: DataFrame = query_of(tg.stream(stream, time="ts"), workload).to_spark()
    return results
