"""Counts by key in short windows on Spark, over a folder in which files keep appearing, as soon as they do."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import tidegate as tg
from benchmarks.engines.spark_native import NATIVE, WATERMARK_DELAY
from benchmarks.engines.spark_streaming import checkpoint_of, read_rows, session, sink_of, to_parquet
from benchmarks.engines.tidegate_spark import ON_SPARK, SETTINGS
from benchmarks.sink_commits import commit_path
from tidegate.runtime.spark.job import SparkJob
from tidegate.runtime.spark.sinks import SparkFolder
from tidegate.stream import cores

WINDOW_SECONDS = 1
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.01


class Running(Protocol):
    """A query that runs. `started` is when it was started, None before that; `check` raises if it has ended."""

    @property
    def started(self) -> float | None: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...


class LatencyEngine:
    """An engine whose query runs from `start` to `stop`, on a Spark session that lives as long as the engine."""

    def __init__(self, engine: str, workload: str) -> None:
        self._engine = engine
        self._spark = session(NATIVE.get(engine, SETTINGS))
        self._running: Running | None = None

    def start(self, folder: str, scratch: str) -> float:
        """Start the query over a folder that holds a file without rows: seconds until the batch of that was committed."""
        source, place = Path(folder), Path(scratch)
        if self._engine in ON_SPARK and ON_SPARK[self._engine].reads_files:
            self._running = _Run(self._spark, source, place, ON_SPARK[self._engine].cells)
        else:
            self._running = _Query(self._results(source, checkpoint_of(place)), place)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (entry := commit_path(sink_of(place), 0)) is None:
            self._running.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._engine}: no batch was completed in {PATIENCE_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        assert self._running.started is not None
        return entry.stat().st_mtime - self._running.started

    def stop(self) -> None:
        """Stop the query; if it has ended before, raise the reason."""
        assert self._running is not None
        self._running.check()
        self._running.stop()
        self._running = None

    def _results(self, folder: Path, checkpoint: Path) -> DataFrame:
        rows = read_rows(self._spark, folder, files_per_batch=None)
        if self._engine in NATIVE:
            window = F.window("ts", f"{WINDOW_SECONDS} seconds").alias("window")
            counts = rows.withWatermark("ts", WATERMARK_DELAY).groupBy(window, "key").agg(F.count("*").alias("n"))
            return counts.select(F.col("window.start").alias("window_start"), "key", "n")
        query = _counts(tg.stream(rows, time="ts", disorder=WATERMARK_DELAY))
        results: DataFrame = query.to_spark(checkpoint=checkpoint, cells=ON_SPARK[self._engine].cells)
        return results.select("window_start", "key", "n")

    def close(self) -> None:
        self._spark.stop()


class _Query:
    """A query of Spark's own."""

    def __init__(self, results: DataFrame, place: Path) -> None:
        writer = to_parquet(results, place)
        self.started = time.time()
        self._query = writer.start()

    def check(self) -> None:
        if not self._query.isActive:
            self._query.awaitTermination()  # raises what ended it
            raise RuntimeError("the query has ended by itself")

    def stop(self) -> None:
        self._query.stop()


@dataclass(frozen=True)
class _TimedFolder(SparkFolder):
    """A folder for results that knows when its query was started."""

    starts: list[float] = field(default_factory=list)

    def committer(self, df: DataFrame, checkpoint: Path) -> DataStreamWriter:
        self.starts.append(time.time())
        return super().committer(df, checkpoint)


class _Run:
    """What `tg.run` does with files and without an end, on a thread: it takes new files as they appear."""

    def __init__(self, spark: SparkSession, folder: Path, place: Path, cells: int | None) -> None:
        self._sink = _TimedFolder(sink_of(place), "parquet")
        self._checkpoint = checkpoint_of(place)
        self._failure: Exception | None = None
        job = SparkJob(
            query=_counts(tg.stream(str(folder / "*.parquet"), time="ts", disorder=WATERMARK_DELAY)).node,
            sink=self._sink,
            checkpoint=self._checkpoint,
            spark=spark,
            files_per_batch=None,
            bounded=False,
            instances=cores(),
            cells=None if cells is None else (cells, cells),
            late_to=None,
            operators="dedicated",
            hot_keys=False,
            report=lambda _: None,
            say=lambda _: None,
        )
        self._thread = threading.Thread(target=self._until_ended, args=(job,), daemon=True, name="tidegate-run")
        self._thread.start()

    @property
    def started(self) -> float | None:
        return self._sink.starts[0] if self._sink.starts else None

    def _until_ended(self, job: SparkJob) -> None:
        try:
            job.run()
        except Exception as error:
            self._failure = error

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._thread.is_alive():
            raise RuntimeError("the run has ended by itself")

    def stop(self) -> None:
        tg.end_input(self._checkpoint / "control")
        self._thread.join(PATIENCE_SECONDS)
        if self._failure is not None:
            raise self._failure
        if self._thread.is_alive():
            raise RuntimeError(f"the run goes on {PATIENCE_SECONDS:g} s after its input was ended")


def _counts(tuples: tg.Stream) -> tg.Stream:
    return tuples.key_by("key").window(f"{WINDOW_SECONDS} seconds").aggregate(n=tg.count())
