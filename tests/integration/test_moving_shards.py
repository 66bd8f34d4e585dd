"""Shards that move between cells while a query runs on real Spark, and a query that goes on with other cells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tidegate.query.nodes import Node, Source, rewrite
from tidegate.runtime.spark.codec import reported
from tidegate.runtime.spark.types import spark_schema
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark
TIME = pa.timestamp("us", tz="UTC")


def flows_per_app(origin: Any) -> tg.Stream:
    """Two stateful steps; shards of both move."""
    flows = (
        tg.stream(origin, time="time")
        .key_by("appId", "appVersion")
        .window("3 minutes", every="1 minute")
        .aggregate(flows=tg.count(), amount=tg.sum("flowAmount"))
    )
    return flows.key_by("appVersion").window("6 minutes").aggregate(apps=tg.count(), flows=tg.sum("flows"))


def test_shards_move_in_the_middle_of_a_run(spark: Any, tmp_path: Path) -> None:
    query, out = flows_per_app(usage(tmp_path / "usage", rows=900, minutes=9, files=5)), tmp_path / "out"

    def change(progress: tg.Progress) -> None:
        control = out / "_checkpoint" / "control"
        if progress.batch == 0:
            tg.set_cells(control, 3)
        elif progress.batch == 1:
            tg.move_shards(control, None, dict.fromkeys(range(0, 1024, 2), 1))
        elif progress.batch == 2:
            with pytest.raises(tg.QueryError, match="was built for cells 0 to 2, and cell 3 was asked for"):
                tg.set_cells(control, 4)
            with pytest.raises(tg.QueryError, match="has no stateful step 'daily'; it has '1:aggregate_1'"):
                tg.move_shards(control, "daily", {0: 1})

    result = tg.run(query, to=out, spark=spark, files_per_batch=1, instances=2, cells=(1, 3), progress=change)
    assert difference(result.read(), answer(query).rows) is None


def left_and_right() -> tuple[pa.Table, pa.Table]:
    minutes = list(range(12))
    moments = pa.array([60_000_000 * minute for minute in minutes], TIME)
    calls = pa.table({"ts": moments, "k": [minute % 3 for minute in minutes], "n": minutes})
    return calls, pa.table(
        {"ts": moments, "k": [minute % 2 for minute in minutes], "m": [-minute for minute in minutes]}
    )


def joined(calls: Any, others: Any) -> tg.Stream:
    """A stateful step and a source meet in another: with several cells the sources come to Spark in another order."""
    counts = tg.stream(calls, time="ts", name="calls").key_by("k").window("2 minutes").aggregate(n=tg.sum("n"))
    return counts.select("ts", "k", "n").join(tg.stream(others, time="ts", name="others"), window="4 minutes", on="k")


@pytest.mark.parametrize("kind", ["by key", "any pair"])
def test_a_query_goes_on_with_other_cells(kind: str, spark: Any, tmp_path: Path) -> None:
    tables = dict(zip(("calls", "others"), left_and_right(), strict=True))
    query = joined(*tables.values())
    if kind == "any pair":
        calls, others = (tg.stream(table, time="ts", name=name) for name, table in tables.items())
        query = calls.join(others, within="3 minutes", where=lambda l, r: (l.n + r.m) % 2 == 0)

    def bound(node: Node) -> Node:
        if not isinstance(node, Source):
            return node
        reader = spark.readStream.schema(spark_schema(node.schema)).option("maxFilesPerTrigger", 1)
        return tg.stream(reader.parquet(str(tmp_path / node.name)), time="ts", name=node.name).node

    def run(cells: Any) -> list[dict[str, Any]]:
        df = tg.Stream(rewrite(query.node, bound)).to_spark(checkpoint=tmp_path / "cp", control=steering, cells=cells)
        writer = df.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        running = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
        running.awaitTermination()
        told = [each for progress in running.recentProgress for each in reported(progress.observedMetrics)]
        return [each for each in told if "step" in each]

    steering = tmp_path / "control"
    active = []
    for number, cells in enumerate([1, 3, (1, 2), 1, (2, 4)]):
        for name, table in tables.items():
            (tmp_path / name).mkdir(exist_ok=True)
            place = tmp_path / name / f"{number}.parquet"
            pq.write_table(table.slice(number * 2, 2 if number < 4 else None), place)
            os.utime(place, (1_700_000_000 + 2 * number,) * 2)
        if number == 4:
            tg.end_input(steering)
        told = run(cells)
        active.append({each["cell"] for each in told if each["shards"]})
    assert active == [{0}, {0, 1, 2}, {0, 1}, {0}, {0, 1}]
    made = spark.read.schema(spark_schema(query.schema)).parquet(str(tmp_path / "out")).toArrow().cast(query.schema)
    assert made.num_rows > 5
    told_difference = difference(made, answer(query).rows)
    assert told_difference is None, told_difference
