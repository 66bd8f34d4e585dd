"""Queries as DataFrames in streaming queries of the user's own: what Spark's users do with them, and what is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import tidegate as tg
from tidegate.runtime.spark.failure import translated
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark

MOMENT = pa.timestamp("us", tz="UTC")
MINUTE = 60_000_000
MINUTES = [[0.25, 0.5, 1.5], [2.5], [3.5, 4.25, 4.5]]


def tuples(minutes: list[float]) -> pa.Table:
    times = pa.array([int(minute * MINUTE) for minute in minutes], pa.int64()).cast(MOMENT)
    return pa.table({"ts": times, "k": ["a", "b", "c"][: len(minutes)]})


def counts(source: Any, name: str = "counts") -> tg.Stream:
    return tg.stream(source, time="ts", name="s").key_by("k").window("1 minute").aggregate(n=tg.count(), name=name)


@pytest.fixture
def frame(spark: Any, tmp_path: Path) -> Any:
    """A file in each of three batches."""
    (tmp_path / "in").mkdir()
    for number, minutes in enumerate(MINUTES):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(tuples(minutes), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    reader = spark.readStream.schema("ts timestamp, k string").option("maxFilesPerTrigger", 1)
    return reader.parquet(str(tmp_path / "in"))


LAW = answer(counts(pa.concat_tables(map(tuples, MINUTES)))).rows
CLOSED = LAW.filter(pa.array([row["ts"].minute < 4 for row in LAW.to_pylist()]))
"""The windows that expire as all is read, and the input is not ended."""


def run(df: Any, checkpoint: Path, each: Callable[[Any, int], None]) -> None:
    """All batches, each given to a function."""
    writer = df.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def collected(df: Any, checkpoint: Path) -> pa.Table:
    found: list[pa.Table] = []
    run(df, checkpoint, lambda batch, _: found.append(batch.toArrow().cast(LAW.schema)))
    return pa.concat_tables(found)


def refused(df: Any, checkpoint: Path, each: Callable[[Any, int], None]) -> str:
    """What is said of a query that fails."""
    with pytest.raises(StreamingQueryException) as failed:
        run(df, checkpoint, each)
    ours = translated(str(failed.value))
    assert ours is not None, failed.value
    return str(ours)


def test_a_frame_that_has_a_watermark_already_is_taken_as_any_other(frame: Any, tmp_path: Path) -> None:
    """Spark's watermark drops nothing before a step of ours, and ours is by the disorder that the stream says."""
    query = counts(frame.withWatermark("ts", "1 second"))
    df = query.to_spark(checkpoint=tmp_path / "checkpoint")
    before = collected(df, tmp_path / "checkpoint")
    assert difference(before, CLOSED) is None
    tg.end_input(tmp_path / "checkpoint" / "tidegate" / "control")
    df = query.to_spark(checkpoint=tmp_path / "checkpoint")
    assert difference(pa.concat_tables([before, collected(df, tmp_path / "checkpoint")]), LAW) is None


@pytest.mark.parametrize("cells", [1, 2])
def test_a_batch_may_be_looked_at_in_part_and_more_than_once(frame: Any, tmp_path: Path, cells: int) -> None:
    found: list[pa.Table] = []

    def looks(batch: Any, number: int) -> None:
        batch.isEmpty()
        batch.limit(1).collect()
        found.append(batch.toArrow())
        assert batch.count() == found[-1].num_rows

    run(counts(frame).to_spark(state=tmp_path / "state", cells=cells), tmp_path / "checkpoint", looks)
    assert difference(pa.concat_tables(found).cast(LAW.schema), CLOSED) is None


def test_a_batch_that_is_not_evaluated_is_missed_in_the_next(frame: Any, tmp_path: Path) -> None:
    df = counts(frame).to_spark(state=tmp_path / "state")
    told = refused(df, tmp_path / "checkpoint", lambda batch, number: None if number == 1 else batch.collect())
    assert told.startswith("step 'counts': the state of cell 0 after batch 1 is missing from")
    assert "a foreachBatch that does not evaluate all of its DataFrame" in told
    # What the message says helps.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "offsets" / "2").unlink()
    for crc in (tmp_path / "checkpoint").rglob(".*.crc"):
        crc.unlink()
    made = collected(counts(frame).to_spark(state=tmp_path / "state"), tmp_path / "checkpoint")
    assert made.num_rows == 3, "the windows of minutes 1 to 3"


def test_a_batch_that_is_kept_and_evaluated_in_a_later_one_is_refused(frame: Any, tmp_path: Path) -> None:
    kept: list[Any] = []

    def keeps(batch: Any, number: int) -> None:
        kept.append(batch)
        batch.collect()
        kept[0].collect()

    told = refused(counts(frame).to_spark(state=tmp_path / "state"), tmp_path / "checkpoint", keeps)
    assert "a DataFrame was kept beyond its foreachBatch" in told or "was evaluated twice, with different rows" in told


def test_a_thread_that_does_not_know_its_batch_is_refused(frame: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    said: list[str] = []

    def elsewhere(batch: Any, number: int) -> None:
        def evaluate() -> None:
            try:
                batch.collect()
            except PySparkException as error:
                said.append(str(translated(str(error))))

        thread = threading.Thread(target=evaluate)
        thread.start()
        thread.join()
        batch.collect()

    run(counts(frame).to_spark(state=tmp_path / "state"), tmp_path / "checkpoint", elsewhere)
    assert len(said) == len(MINUTES)
    assert all("outside a micro-batch" in each and "pyspark.InheritableThread" in each for each in said)


def test_two_queries_make_one_of_sparks(frame: Any, tmp_path: Path) -> None:
    one = counts(frame, "one").to_spark(state=tmp_path / "one")
    two = counts(frame, "two").to_spark(state=tmp_path / "two", cells=2)
    made = collected(one.unionByName(two), tmp_path / "checkpoint")
    assert difference(made, pa.concat_tables([CLOSED, CLOSED])) is None


def test_two_queries_of_one_folder_cannot_go_on(frame: Any, tmp_path: Path) -> None:
    def both() -> Any:
        one, other = (counts(frame).to_spark(state=tmp_path / "state") for _ in range(2))
        return one.unionByName(other)

    run(both(), tmp_path / "checkpoint", lambda batch, _: batch.collect())
    pq.write_table(tuples([9.5]), tmp_path / "in" / "9.parquet")
    told = refused(both(), tmp_path / "checkpoint", lambda batch, _: batch.collect())
    assert "holds the state of two parts of one query" in told


def test_a_query_with_state_says_that_it_needs_a_place_for_it(frame: Any) -> None:
    with pytest.raises(tg.QueryError, match=r"to_spark\(checkpoint='...'\).*to_spark\(state='...'\)"):
        counts(frame).to_spark()
    assert tg.stream(frame, time="ts").to_spark().isStreaming, "one without state needs none"
