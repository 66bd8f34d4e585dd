"""Queries as parts of streaming queries of the user's own; `test_batches_on_spark` has what is done to their batches."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

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
    stream = source if isinstance(source, tg.Stream) else tg.stream(source, time="ts")
    return stream.key_by("k").window("1 minute").aggregate(n=tg.count(), name=name)


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
    with pytest.warns(UserWarning, match=r"has a watermark.*; remove withWatermark before"):
        df = query.to_spark(checkpoint=tmp_path / "checkpoint")
    before = collected(df, tmp_path / "checkpoint")
    assert difference(before, CLOSED) is None
    tg.end_input(tmp_path / "checkpoint" / "tidegate" / "control")
    with pytest.warns(UserWarning, match="has a watermark"):
        df = query.to_spark(checkpoint=tmp_path / "checkpoint")
    assert difference(pa.concat_tables([before, collected(df, tmp_path / "checkpoint")]), LAW) is None
    behind = df.withWatermark("ts", "1 second").groupBy(F.window("ts", "4 seconds")).count()
    with pytest.raises(StreamingQueryException, match="Redefining watermark"):
        run(behind, tmp_path / "another", lambda batch, _: batch.collect())


def test_two_queries_make_one_of_sparks(frame: Any, tmp_path: Path) -> None:
    """One of them has two steps side by side, each with cells that have to be told of every batch."""
    one = counts(frame, "one").to_spark(state=tmp_path / "one")
    stream = tg.stream(frame, time="ts")
    two = counts(stream, "two").union(counts(stream, "three")).to_spark(state=tmp_path / "two", cells=2)
    made = collected(one.unionByName(two), tmp_path / "checkpoint")
    assert difference(made, pa.concat_tables([CLOSED] * 3)) is None


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
