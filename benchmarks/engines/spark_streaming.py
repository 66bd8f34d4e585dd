"""A streaming query on a local Spark: one file a micro-batch, checkpoint and parquet sink on the local disk.

Native Spark and tidegate share all of it; they differ in the query between source and sink and in the state store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.engines import Timing
from benchmarks.inputs import Input
from benchmarks.options import DRIVER_MEMORY_VARIABLE
from benchmarks.workloads import Workload

ROCKSDB_STATE: Mapping[str, str] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
HDFS_STATE: Mapping[str, str] = {}  # Spark's default: a hash map per partition, deltas written to the checkpoint

Build = Callable[[DataFrame, Workload], DataFrame]


class SparkEngine:
    """`build` makes the results of a workload from its stream; the Spark session lives as long as the engine."""

    def __init__(self, workload: Workload, build: Build, state: Mapping[str, str]) -> None:
        self._workload = workload
        self._build = build
        self._spark = _session(state)
        self._sink: Path | None = None

    def run(self, data: Input, scratch: Path) -> Timing:
        """Time the query from its start until every file is processed, and check that each file was one micro-batch."""
        schema = self._spark.read.parquet(str(data.files[0])).schema
        stream = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(data.folder))
        results = self._build(stream, self._workload).select(
            "window_start", "window_end", *self._workload.keys, *self._workload.aggregates
        )
        self._sink = scratch / "sink"
        writer = (
            results.writeStream.format("parquet")
            .option("path", str(self._sink))
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .outputMode("append")
            .trigger(availableNow=True)
        )
        started = time.perf_counter()
        query = writer.start()
        query.awaitTermination()
        seconds = time.perf_counter() - started
        batches = [batch for batch in query.recentProgress if batch.numInputRows > 0]
        if len(batches) != len(data.files):
            raise RuntimeError(f"{len(data.files)} files were read in {len(batches)} micro-batches, not one in each")
        return Timing(seconds, tuple(float(batch.durationMs["triggerExecution"]) for batch in batches))

    def collect(self, target: Path) -> None:
        """Copy the sink through Spark, because only the files its metadata lists are part of the results."""
        if self._sink is None:
            raise RuntimeError("spark: collect follows a run, and none has finished")
        self._spark.read.parquet(str(self._sink)).select(*self._workload.columns).write.parquet(str(target))
        self._sink = None

    def close(self) -> None:
        self._spark.stop()


def _session(state: Mapping[str, str]) -> SparkSession:
    cores = os.cpu_count() or 1
    settings = {
        "spark.driver.memory": os.environ.get(DRIVER_MEMORY_VARIABLE, "4g"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.files.openCostInBytes": "0",  # else a small file is not split over the cores
        **state,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tidegate benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
