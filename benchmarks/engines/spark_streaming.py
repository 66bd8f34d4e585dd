"""A streaming query on a local Spark: one file a micro-batch, checkpoint and parquet sink on the local disk.

Native Spark and tidegate share all of it; they differ in the query between source and sink and in the state store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

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
PRIMER = "primer.parquet"
POLL_SECONDS = 0.02

SPLIT_COST = "spark.sql.files.openCostInBytes"
# Without Hadoop's native library the usual one starts a process for every chmod and stat, 80 ms of each micro-batch.
# The file system that Spark's Hive brings would rename no file onto another, so that a batch run again is not written.
NO_CHILD_PROCESSES: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
}

Build = Callable[[DataFrame, Workload], DataFrame]


class SparkEngine:
    """`build` makes the results of a workload from its stream; the Spark session lives as long as the engine.

    Files of up to `whole_file_bytes` are read by one task, larger ones are split evenly over the cores.
    """

    def __init__(self, workload: Workload, build: Build, state: Mapping[str, str], whole_file_bytes: int = 0) -> None:
        self._workload = workload
        self._build = build
        self._spark = _session(state)
        self._whole_file_bytes = whole_file_bytes
        self._sink: Path | None = None

    def run(self, data: Input, scratch: Path) -> Timing:
        """Time the query until every file is processed, and check that each file was one micro-batch.

        A file without rows comes first. Its micro-batch is the start of the query, with the processes Spark starts for it,
        and is told apart from the measured time.
        """
        writer = self._writer(data, _primed(data, scratch / "input"), scratch)
        started = time.time()
        query = writer.start()
        query.awaitTermination()
        ended = time.time()
        batches = [batch for batch in query.recentProgress if batch.numInputRows > 0]
        if len(batches) != len(data.files):
            raise RuntimeError(f"{len(data.files)} files were read in {len(batches)} micro-batches, not one in each")
        primed = datetime.fromisoformat(batches[0].timestamp).timestamp()
        batch_ms = tuple(float(batch.durationMs["triggerExecution"]) for batch in batches)
        return Timing(ended - primed, batch_ms, primed - started)

    def first_result(self, data: Input, scratch: Path, seen: Callable[[], None]) -> None:
        """Watch the sink for a file with rows in it."""
        query = self._writer(data, data.folder, scratch).start()
        while query.isActive:
            if any(_has_rows(file) for file in (scratch / "sink").glob("*.parquet")):
                seen()
                return
            time.sleep(POLL_SECONDS)
        query.awaitTermination()

    def _writer(self, data: Input, folder: Path, scratch: Path) -> DataStreamWriter:
        """The query from a folder to the sink in `scratch`, not yet started."""
        self._spark.conf.set(SPLIT_COST, str(self._split_cost(data)))
        schema = self._spark.read.parquet(str(data.files[0])).schema
        stream = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        results = self._build(stream, self._workload).select(
            "window_start", "window_end", *self._workload.keys, *self._workload.aggregates
        )
        self._sink = scratch / "sink"
        return (
            results.writeStream.format("parquet")
            .option("path", str(self._sink))
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .outputMode("append")
            .trigger(availableNow=True)
        )

    def collect(self, target: Path) -> None:
        """Copy the sink through Spark, because only the files its metadata lists are part of the results."""
        if self._sink is None:
            raise RuntimeError("spark: collect follows a run, and none has finished")
        self._spark.read.parquet(str(self._sink)).select(*self._workload.columns).write.parquet(str(target))
        self._sink = None

    def close(self) -> None:
        self._spark.stop()

    def _split_cost(self, data: Input) -> int:
        """What keeps a file whole: Spark adds this to its size before it divides by the cores."""
        size = max(file.stat().st_size for file in data.files)
        return size if size <= self._whole_file_bytes else 1


def _has_rows(file: Path) -> bool:
    """Whether a file is written to its end and holds rows."""
    try:
        return bool(pq.read_metadata(file).num_rows)
    except (OSError, pa.ArrowInvalid):
        return False


def _primed(data: Input, folder: Path) -> Path:
    """A folder of the input's files, before them one without rows."""
    folder.mkdir(parents=True)
    primer = folder / PRIMER
    pq.write_table(pq.read_schema(data.files[0]).empty_table(), primer)
    earlier_s = data.files[0].stat().st_mtime - 10
    os.utime(primer, (earlier_s, earlier_s))
    for file in data.files:
        os.link(file, folder / file.name)
    return folder


def _session(state: Mapping[str, str]) -> SparkSession:
    cores = os.cpu_count() or 1
    settings = {
        "spark.driver.memory": os.environ.get(DRIVER_MEMORY_VARIABLE, "4g"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        **NO_CHILD_PROCESSES,
        **state,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tidegate benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
