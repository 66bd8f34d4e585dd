"""What makes a batch a pure function of the state before it and its rows: each rule broken on purpose, on real Spark."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tidegate as tg
from tidegate.errors import CheckpointError, TidegateError
from tidegate.runtime.spark.failure import translated

SCHEMA = pa.schema({"ts": pa.timestamp("us", tz="UTC"), "k": pa.int64()})
SECOND = 1_000_000


class Story:
    """A folder of input files, one a batch, and the query that counts their tuples per key and two seconds."""

    def __init__(self, spark: Any, folder: Path, cells: int = 1) -> None:
        self.spark, self.folder, self.cells = spark, folder, cells
        self.rows: dict[int, list[Any]] = {}

    def write(self, source: str, number: int, *seconds: int) -> None:
        """A file with a tuple at each of some seconds."""
        place = self.folder / source
        place.mkdir(exist_ok=True)
        table = pa.table({"ts": [second * SECOND for second in seconds], "k": [0] * len(seconds)})
        pq.write_table(table.cast(SCHEMA), place / f".{number}")
        (place / f".{number}").rename(place / f"{number}.parquet")
        os.utime(place / f"{number}.parquet", (1_700_000_000 + 2 * number,) * 2)

    def frame(self, source: str) -> Any:
        (self.folder / source).mkdir(exist_ok=True)
        reader = self.spark.readStream.schema("ts timestamp, k long").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / source))

    def counts(self, *sources: str) -> Any:
        first, *others = (tg.stream(self.frame(name), time="ts", name=name) for name in sources or ("in",))
        stream = first.union(*others) if others else first
        counted = stream.key_by("k").window("2 seconds").aggregate(n=tg.count())
        return counted.to_spark(state=self.folder / "state", cells=self.cells)

    def end(self) -> None:
        tg.end_input(self.folder / "state" / "control")

    def run(self, df: Any, take: Callable[[Any, int], None] | None = None) -> None:
        """All that is there, through foreachBatch, to its end."""
        self.follow(df.writeStream.foreachBatch(take or self.collect).trigger(availableNow=True))

    def follow(self, writer: Any) -> None:
        """Starts a query and waits until it has read all that is there."""
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        try:
            query.processAllAvailable()
            query.stop()
            query.awaitTermination()
        except StreamingQueryException as error:
            raise translated(str(error)) or error from error
        finally:
            query.stop()

    def collect(self, df: Any, batch: int) -> None:
        self.rows[batch] = df.collect()

    def counted(self) -> list[tuple[int, int]]:
        """Begin of the window in seconds, and its count."""
        rows = [row for batch in sorted(self.rows) for row in self.rows[batch]]
        return sorted((int(row.window_start.timestamp()), row.n) for row in rows)


@pytest.fixture(params=[1, 2], ids=["one cell", "two cells"])
def story(spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Story:
    return Story(spark, tmp_path, request.param)


@pytest.fixture
def alone(spark: Any, tmp_path: Path) -> Story:
    return Story(spark, tmp_path)


def test_results_of_a_batch_leave_in_that_batch(alone: Story) -> None:
    # in     0 s  1 s | 2 s | 5 s      windows [0, 2) and [2, 4) expire in the batch that brings 2 s, and 5 s
    for number, seconds in enumerate([(0, 1), (2,), (5,)]):
        alone.write("in", number, *seconds)
    alone.run(alone.counts())
    assert [[row.n for row in alone.rows[batch]] for batch in range(3)] == [[], [2], [1]]


def test_a_step_runs_in_every_batch_though_its_source_is_idle(story: Story) -> None:
    # a      0 s | 2 s | 4 s      b      6 s |     |          the watermark follows a alone after the first batch
    for number, second in enumerate([0, 2, 4]):
        story.write("a", number, second)
    story.write("b", 0, 6)
    df = story.counts("a", "b")
    story.run(df)
    story.end()
    story.run(df)
    assert story.counted() == [(0, 1), (2, 1), (4, 1), (6, 1)]


def test_a_native_aggregate_behind_the_step_may_cause_batches_without_data(alone: Story) -> None:
    for number, second in enumerate([0, 2, 4, 9]):
        alone.write("in", number, second, second + 1)
    df = alone.counts().withWatermark("ts", "0 seconds").groupBy(F.window("ts", "4 seconds")).agg(F.sum("n").alias("n"))
    behind = df.select(F.col("window.start").alias("window_start"), "n")
    alone.run(behind)
    # The last window that has left ends at 10 s, so Spark's watermark is just before.
    assert alone.counted() == [(0, 4), (4, 2)]
    alone.write("in", 4, 24)
    alone.write("in", 5, 30)
    alone.run(behind)
    assert alone.counted() == [(0, 4), (4, 2), (8, 2)]


def test_a_consumer_that_stops_early_loses_no_state(alone: Story) -> None:
    for number, second in enumerate([0, 0, 0, 2, 9]):
        alone.write("in", number, second, second + 1)

    def take(df: Any, batch: int) -> None:
        if batch < 2:
            df.isEmpty()
        elif batch == 2:
            df.limit(1).collect()
        else:
            alone.collect(df, batch)

    alone.run(alone.counts(), take)
    assert alone.counted() == [(0, 6), (2, 2), (8, 1)]


def test_a_batch_that_is_not_evaluated_is_refused_in_the_next(alone: Story) -> None:
    for number, second in enumerate([0, 2, 4]):
        alone.write("in", number, second)
    with pytest.raises(CheckpointError, match=r"after batch 0 is missing .* remove commits/0 and offsets/1"):
        alone.run(alone.counts(), lambda df, batch: df.collect() if batch else None)


def test_one_partition_of_two_is_not_a_batch(spark: Any, tmp_path: Path) -> None:
    story = Story(spark, tmp_path, cells=2)
    for number, second in enumerate([0, 2, 4, 6]):
        story.write("in", number, second)
    with pytest.raises(CheckpointError, match="is missing"):
        story.run(story.counts(), lambda df, batch: df.collect() if batch else _one_partition(df))


def _one_partition(df: Any) -> Any:
    return df.sparkSession.sparkContext.runJob(df.rdd, list, [0])


def test_a_frame_that_is_read_twice_gives_the_same_twice(story: Story) -> None:
    for number, second in enumerate([0, 2, 4]):
        story.write("in", number, second)
    seen: list[tuple[Any, Any]] = []
    story.run(story.counts(), lambda df, batch: seen.append((df.collect(), df.collect())))
    assert all(first == second for first, second in seen)
    assert sum(len(first) for first, _ in seen) == 2


def test_a_frame_of_an_earlier_batch_is_refused(alone: Story) -> None:
    for number, second in enumerate([0, 2, 4]):
        alone.write("in", number, second)
    kept: list[Any] = []

    def take(df: Any, batch: int) -> None:
        kept.append(df)
        kept[0].collect()
        df.collect()

    with pytest.raises(TidegateError, match="batch 1 was given the rows of an earlier one"):
        alone.run(alone.counts(), take)


def test_a_thread_that_does_not_know_the_batch_is_refused_and_one_that_does_is_not(alone: Story) -> None:
    alone.write("in", 0, 0, 1)
    failures: list[str] = []

    def in_thread(kind: Any, df: Any) -> None:
        def run() -> None:
            try:
                df.collect()
            except Exception as error:
                failures.append(str(error))

        thread = kind(target=run)
        thread.start()
        thread.join()

    def take(df: Any, batch: int) -> None:
        in_thread(threading.Thread, df)
        in_thread(InheritableThread, df)

    alone.run(alone.counts(), take)
    assert len(failures) == 1 and "outside a micro-batch" in failures[0] and "InheritableThread" in failures[0]


def test_unions_and_coalesce_behind_the_step_do_not_change_which_cell_is_which(spark: Any, tmp_path: Path) -> None:
    story = Story(spark, tmp_path, cells=2)
    for number, second in enumerate([0, 2, 4, 6]):
        story.write("in", number, second)
    counts = story.counts()
    story.run(counts.where("n > 0").union(counts.where("n > 0")).coalesce(1))
    assert story.counted() == [(0, 1), (0, 1), (2, 1), (2, 1), (4, 1), (4, 1)]


def test_a_batch_whose_commit_was_removed_is_run_again_with_the_same_result(story: Story) -> None:
    for number, second in enumerate([0, 2, 4, 6]):
        story.write("in", number, second)
    df = story.counts()
    story.run(df)
    before = dict(story.rows)
    for batch in (2, 3):
        for name in (f"{batch}", f".{batch}.crc"):
            (story.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    for name in ("3", ".3.crc"):
        (story.folder / "checkpoint" / "offsets" / name).unlink(missing_ok=True)
    story.run(df)
    assert story.rows == before


def test_a_late_attempt_of_an_earlier_batch_changes_nothing(alone: Story) -> None:
    for number, second in enumerate([0, 2, 4, 6]):
        alone.write("in", number, second)
    late: list[Any] = []

    def take(df: Any, batch: int) -> None:
        alone.collect(df, batch)
        if batch == 1:
            zombie = InheritableThread(target=lambda: late.append(_after(alone, 2) and df.collect()))
            zombie.start()
            late.append(zombie)
        if batch == 3:
            late[0].join()

    alone.run(alone.counts(), take)
    assert late[1] == alone.rows[1]
    assert alone.counted() == [(0, 1), (2, 1), (4, 1)]


def _after(story: Story, batch: int) -> bool:
    while batch not in story.rows:
        time.sleep(0.02)
    return True


def test_offsets_that_do_not_continue_are_refused(alone: Story) -> None:
    # Asynchronous progress tracking need not log every batch; after a crash the last one logged is run again with the rows
    # of all since the one logged before it.
    for number, second in enumerate([0, 0, 0]):
        alone.write("in", number, second)
    df = alone.counts()
    unlogged = df.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
    unlogged = unlogged.option("asyncProgressTrackingCheckpointIntervalMs", "0")
    alone.follow(unlogged)
    checkpoint = alone.folder / "checkpoint"
    for part, batch in (("offsets", 1), ("commits", 1), ("commits", 2)):
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / part / name).unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match="does not get the rows it had"):
        alone.follow(unlogged)


def test_state_that_is_gone_is_told_with_the_batch_to_run_again(alone: Story) -> None:
    for number, second in enumerate([0, 2]):
        alone.write("in", number, second)
    df = alone.counts()
    alone.run(df)
    for step in (alone.folder / "state").glob("*/step-*"):
        shutil.rmtree(step)
    alone.write("in", 2, 4)
    with pytest.raises(CheckpointError, match=r"after batch 1 is missing .* remove commits/1 and offsets/2"):
        alone.run(df)
