"""The number of instances of cells, changed while a query runs on real Spark, and what a killed batch makes of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import tidegate as tg
from examples.inputs.usage import usage
from tidegate.runtime.spark.codec import reported
from tidegate.runtime.spark.types import spark_schema
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark


def flows_per_app(origin: Any) -> tg.Stream:
    """Two stateful steps, so that two are told."""
    flows = (
        tg.stream(origin, time="time")
        .key_by("appId", "appVersion")
        .window("90 seconds", every="60 seconds")
        .aggregate(flows=tg.count(), amount=tg.sum("flowAmount"))
    )
    return flows.key_by("appVersion").window("2 minutes").aggregate(apps=tg.count(), flows=tg.sum("flows"))


def test_instances_are_changed_in_the_middle_of_a_run(spark: Any, tmp_path: Path) -> None:
    query, out = flows_per_app(usage(tmp_path / "usage", rows=800, minutes=8, files=3)), tmp_path / "out"
    seen: list[tg.Progress] = []

    def change(progress: tg.Progress) -> None:
        seen.append(progress)
        if progress.batch == 0:
            tg.set_instances(out / "_checkpoint" / "control", 3)

    result = tg.run(query, to=out, spark=spark, files_per_batch=1, instances=2, cells=2, progress=change)
    assert set(seen[0].instances) == {2}
    assert seen[-1].instances == (3, 3, 3, 3), "every cell of every step is told, with input or without"
    assert difference(result.read(), answer(query).rows) is None


def kill_if(marker: Path) -> Any:
    def untouched(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows and marker.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    return untouched


def test_a_batch_that_is_killed_takes_its_control_row_again(spark: Any, tmp_path: Path) -> None:
    """::

    batch   0: file 0       1: file 1, instances 3       2: file 2
                            ✗ killed, run again ─────────▶ 3 instances from here on
    """
    files = sorted(Path(usage(tmp_path / "usage", rows=600, minutes=6, files=3)).glob("*.parquet"))
    place, steering, marker = tmp_path / "in", tmp_path / "control", tmp_path / "kill"
    place.mkdir()
    steering.mkdir()
    schema = spark_schema(pq.read_schema(files[0]))

    def frame() -> Any:
        df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(place))
        stream = tg.stream(df, time="time").map_batches(kill_if(marker))
        windows = stream.key_by("appId").window("1 minute").aggregate(flows=tg.count())
        return windows.to_spark(checkpoint=tmp_path / "cp", control=steering, instances=2)

    def ran(df: Any) -> list[set[int]]:
        writer = df.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
        query.awaitTermination()
        told = [reported(progress.observedMetrics) for progress in query.recentProgress]
        return [{each["instances"] for each in cells if "step" in each} for cells in told]

    files[0].rename(place / "0.parquet")
    assert set().union(*ran(frame())) == {2}
    files[1].rename(place / "1.parquet")
    tg.set_instances(steering, 3)
    marker.touch()
    with pytest.raises(StreamingQueryException):
        ran(frame())
    planned, committed = (max(int(entry.name) for entry in (tmp_path / "cp" / log).glob("[0-9]*")) for log in LOGS)
    assert planned == committed + 1
    marker.unlink()
    files[2].rename(place / "2.parquet")
    assert set().union(*ran(frame())) == {3}
    tg.end_input(steering)
    assert set().union(*ran(frame())) == {2}, "a new start begins with the number it is given"
    made = spark.read.parquet(str(tmp_path / "out")).toArrow()
    whole = pa.concat_tables(pq.read_table(path) for path in sorted(place.iterdir()))
    law = tg.stream(whole, time="time").key_by("appId").window("1 minute").aggregate(flows=tg.count())
    assert difference(made.cast(law.schema), answer(law).rows) is None


LOGS = ("offsets", "commits")


def test_instances_are_checked_where_they_are_given(tmp_path: Path) -> None:
    query = flows_per_app(usage(tmp_path / "usage", rows=10, minutes=1, files=1))
    for wrong in (0, 257, (1, 2), 1.5, True):
        with pytest.raises(tg.QueryError, match="a number from 1 to 256"):
            tg.run(query, to=tmp_path / "out", instances=wrong)  # type: ignore[arg-type]
        with pytest.raises(tg.QueryError, match="a number from 1 to 256"):
            tg.set_instances(tmp_path / "control", wrong)  # type: ignore[arg-type]
    with pytest.raises(tg.QueryError, match="the reference runs a query alone, so leave it out"):
        tg.run(query, on="reference", instances=2)
