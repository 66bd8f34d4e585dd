"""A streaming query on a local Spark: one file a micro-batch, checkpoint and parquet sink on the local disk.

Native Spark and tidegate share all of it; they differ in the query between folder and sink and in the session's settings.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.engines import Timing
from benchmarks.inputs import PRIMER, Input
from benchmarks.options import DRIVER_MEMORY_VARIABLE, python_path
from benchmarks.workloads import Workload

POLL_SECONDS = 0.02
# Without Hadoop's native library the usual one starts a process for every chmod and stat, 80 ms of each micro-batch.
# The file system that Spark's Hive brings would rename no file onto another, so that a batch run again is not written.
NO_CHILD_PROCESSES: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
}

Build = Callable[[SparkSession, Path, Path, Workload], DataStreamWriter]
"""Makes the query, not started yet, from the files in a folder to the sink in a scratch folder."""
RowsOf = Callable[[StreamingQueryProgress], int]
"""How many tuples a micro-batch read, from its progress."""


class SparkEngine:
    """A windowed workload on a Spark session that lives as long as the engine."""

    def __init__(self, workload: Workload, build: Build, settings: Mapping[str, str], rows_of: RowsOf) -> None:
        self._workload = workload
        self._build = build
        self._rows_of = rows_of
        self._spark = session(settings)
        self._sink: Path | None = None

    def run(self, data: Input, scratch: Path) -> Timing:
        """Time the query until every file is processed, and check that each file was one micro-batch.

        A file without rows comes first. Its micro-batch is the start of the query, with the processes Spark starts for it,
        and is told apart from the measured time.
        """
        return timed(self._writer(_primed(data, scratch / "input"), scratch), len(data.files), self._rows_of)

    def first_result(self, data: Input, scratch: Path, seen: Callable[[], None]) -> None:
        """Watch the sink for a file with rows in it."""
        query = self._writer(data.folder, scratch).start()
        while query.isActive:
            if any(_has_rows(file) for file in (scratch / "sink").glob("*.parquet")):
                seen()
                return
            time.sleep(POLL_SECONDS)
        query.awaitTermination()

    def _writer(self, folder: Path, scratch: Path) -> DataStreamWriter:
        """The query from a folder to the sink in `scratch`, not yet started."""
        self._sink = sink_of(scratch)
        return self._build(self._spark, folder, scratch, self._workload).trigger(availableNow=True)

    def collect(self, target: Path) -> None:
        """Copy the sink through Spark, because only the files its metadata lists are part of the results."""
        if self._sink is None:
            raise RuntimeError("spark: collect follows a run, and none has finished")
        self._spark.read.parquet(str(self._sink)).select(*self._workload.columns).write.parquet(str(target))
        self._sink = None

    def close(self) -> None:
        self._spark.stop()


def session(settings: Mapping[str, str]) -> SparkSession:
    """A local Spark on all cores, with what every engine has and `settings` of its own; workers are as this process is."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": python_path()}
    cores = os.cpu_count() or 1
    usual = {
        "spark.driver.memory": os.environ.get(DRIVER_MEMORY_VARIABLE, "4g"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        **NO_CHILD_PROCESSES,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tidegate benchmark")
    for name, value in {**usual, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_rows(spark: SparkSession, folder: Path, files_per_batch: int | None = 1) -> DataFrame:
    """The rows of the parquet files in a folder as a stream, with the columns of the first file."""
    schema = spark.read.parquet(str(min(folder.glob("*.parquet")))).schema
    reader = spark.readStream.schema(schema)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.parquet(str(folder))


def checkpoint_of(scratch: Path) -> Path:
    return scratch / "checkpoint"


def sink_of(scratch: Path) -> Path:
    return scratch / "sink"


def to_parquet(results: DataFrame, scratch: Path) -> DataStreamWriter:
    """The query that writes results to the sink in `scratch`; its trigger may still be chosen."""
    writer = results.writeStream.format("parquet").option("path", str(sink_of(scratch)))
    return writer.option("checkpointLocation", str(checkpoint_of(scratch))).outputMode("append")


def timed(writer: DataStreamWriter, files: int, rows_of: RowsOf) -> Timing:
    """Run a query whose first file has no rows, and take the time from behind that until it has ended.

    Each of the `files` with rows must have been a micro-batch of its own.
    """
    started = time.time()
    query = writer.start()
    query.awaitTermination()
    ended = time.time()
    batches = [batch for batch in query.recentProgress if rows_of(batch) > 0]
    if len(batches) != files:
        raise RuntimeError(f"{files} files were read in {len(batches)} micro-batches, not one in each")
    primed = datetime.fromisoformat(batches[0].timestamp).timestamp()
    batch_ms = tuple(float(batch.durationMs["triggerExecution"]) for batch in batches)
    return Timing(ended - primed, batch_ms, primed - started)


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
