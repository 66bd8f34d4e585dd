"""Runs on real Spark: what comes out is what the reference says, through stops, restarts and mistakes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tests.kit.late_files import late_files, late_rows
from tidegate.results import SPARK_LOG
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark

MOMENT = pa.timestamp("us", tz="UTC")
MINUTE = 60_000_000


def by_app(files: Any, **options: Any) -> tg.Stream:
    """A sliding window over network usage, with a stateless step on either side."""
    return (
        tg.stream(files, time="time", **options)
        .filter(nw.col("appVersion") > 1)
        .key_by("appId")
        .window("90 seconds", every="60 seconds")
        .aggregate(flows=tg.count(), amount=tg.sum("flowAmount"))
        .filter(nw.col("flows") > 1)
    )


def near_in_size(files: Any) -> tg.Stream:
    """Flows of a stream joined with itself: about as large, within 20 seconds, and no equality."""
    flows = tg.stream(files, time="time").select("time", "appId", "flowAmount")
    return flows.join(flows, within="20 seconds", where=lambda l, r: abs(l.flowAmount - r.flowAmount) <= 40)


class Sizes:
    """The flows of each application by version, and the last amount."""

    def __init__(self) -> None:
        self.versions: dict[int, dict[int, int]] = {}
        self.last: dict[int, float] = {}

    def process(self, t: Any) -> dict[str, Any]:
        app = t["app"]
        versions = self.versions.setdefault(app, {})
        versions[t["version"]] = versions.get(t["version"], 0) + 1
        change, self.last[app] = t["amount"] - self.last.get(app, 0.0), t["amount"]
        return {"app": app, "change": change, "versions": str(list(versions.items()))}


def by_class(files: Any) -> tg.Stream:
    """A plain class, with a store and a state."""
    flows = tg.stream(files, time="time").select(
        "time",
        app=nw.col("appId").cast(nw.Int64),
        version=nw.col("appVersion").cast(nw.Int64),
        amount=nw.col("flowAmount").cast(nw.Float64),
    )
    returns = {"app": pa.int64(), "change": pa.float64(), "versions": pa.string()}
    return flows.apply(tg.operator(Sizes, returns=returns))


def amounts_so_far(files: Any) -> tg.Stream:
    """A running state, which a restart must find as it was; the key retires now and then."""
    flows = tg.stream(files, time="time").filter(nw.col("appVersion") > 1)
    return flows.key_by("appId").running(
        create=lambda flow: {"amount": flow["flowAmount"], "flows": 1},
        add=lambda state, flow: {"amount": state["amount"] + flow["flowAmount"], "flows": state["flows"] + 1},
        merge=lambda carried, period: {name: carried[name] + period[name] for name in carried},
        output=lambda state: tg.updated(rows=dict(state), retire=state["flows"] % 7 == 0),
        every="10 seconds",
        state={"amount": pa.float64(), "flows": pa.int64()},
        returns={"amount": pa.float64(), "flows": pa.int64()},
    )


def counts(source: Any, **options: Any) -> tg.Stream:
    return tg.stream(source, time="ts", **options).key_by("k").window("1 minute").aggregate(n=tg.count())


def tuples(minutes: list[float], key: str = "a") -> pa.Table:
    times = pa.array([int(minute * MINUTE) for minute in minutes], pa.int64()).cast(MOMENT)
    return pa.table({"ts": times, "k": [key] * len(minutes)})


def write(folder: Path, tables: list[pa.Table], modified: list[int] | None = None) -> str:
    folder.mkdir()
    for number, table in enumerate(tables):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        moment = 1_000_000_000 + (modified[number] if modified else number)
        os.utime(path, (moment, moment))
    return str(folder)


@pytest.fixture
def flows(tmp_path: Path) -> str:
    """Four files over ten minutes."""
    return usage(tmp_path / "usage", rows=1_000, minutes=10, files=4)


def test_a_bounded_run_hands_out_every_window(spark: Any, flows: str, tmp_path: Path) -> None:
    query, seen = by_app(flows), []
    result = tg.run(query, to=tmp_path / "out", spark=spark, progress=seen.append)
    assert difference(result.read(), answer(query).rows) is None
    assert (result.finished, result.rows, result.late, result.results) == (True, 1_000, 0, result.read().num_rows)
    assert result.batches == len(seen) >= 5
    assert [progress.batch for progress in seen] == list(range(len(seen)))
    assert seen[-1].ended
    assert seen[-1].state_rows == 0
    assert max(progress.state_rows for progress in seen) > 0
    assert seen[2].watermark is not None
    # Any reader of the folder sees the same rows, not only one that knows Spark's log.
    assert pq.read_table(tmp_path / "out").num_rows == result.results

    with pytest.raises(tg.CheckpointError, match="is finished"):
        tg.run(query, to=tmp_path / "out", spark=spark, progress=False)


@pytest.mark.parametrize("build", [by_app, near_in_size, amounts_so_far, by_class])
def test_a_stopped_run_goes_on_where_it_was(
    spark: Any, flows: str, tmp_path: Path, build: Callable[[str], tg.Stream]
) -> None:
    query, out = build(flows), tmp_path / "out"

    def stop_soon(progress: tg.Progress) -> None:
        if progress.batch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tg.run(query, to=out, spark=spark, progress=stop_soon)
    before = pq.read_table(out).num_rows
    assert 0 < before < answer(query).rows.num_rows
    (out / "part-99999-left-by-an-attempt.parquet").write_bytes(b"never committed")

    other = tg.stream(flows, time="time").key_by("appVersion").window("1 minute").aggregate(n=tg.count())
    with pytest.raises(tg.CheckpointError, match="written by another query"):
        tg.run(other, to=out, spark=spark, progress=False)
    with pytest.raises(tg.CheckpointError, match="belongs to a run that writes"):
        tg.run(query, to=tmp_path / "elsewhere", checkpoint=out / "_checkpoint", spark=spark, progress=False)

    result = tg.run(query, to=out, spark=spark, progress=False)
    assert result.finished
    assert 0 < result.results < result.read().num_rows
    assert difference(result.read(), answer(query).rows) is None
    assert pq.read_table(out).num_rows == result.read().num_rows


@pytest.mark.parametrize("cells", [1, 2])
def test_operators_made_of_aggregates_go_on_where_they_were_too(
    spark: Any, flows: str, tmp_path: Path, cells: int
) -> None:
    query, out = by_app(flows), tmp_path / "out"

    def stop_soon(progress: tg.Progress) -> None:
        if progress.batch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tg.run(query, to=out, spark=spark, cells=cells, operators="multi", progress=stop_soon)
    with pytest.raises(tg.CheckpointError, match="written by another query"):
        tg.run(query, to=out, spark=spark, cells=cells, progress=False)
    result = tg.run(query, to=out, spark=spark, cells=cells, operators="multi", progress=False)
    assert result.finished
    assert 0 < result.results < result.read().num_rows
    assert difference(result.read(), answer(query).rows) is None


def test_a_table_goes_to_json_lines(spark: Any, tmp_path: Path) -> None:
    table = pa.concat_tables([tuples([0.25, 0.5, 7]), tuples([0.5], "b")])
    result = tg.run(counts(table), to=tmp_path / "out.jsonl", spark=spark, progress=False)
    lines = [line for part in (tmp_path / "out.jsonl").glob("*.json") for line in part.read_text().splitlines()]
    assert sorted((row["k"], row["n"], row["ts"]) for row in map(json.loads, lines)) == [
        ("a", 1, "1970-01-01T00:07:59.999999Z"),
        ("a", 2, "1970-01-01T00:00:59.999999Z"),
        ("b", 1, "1970-01-01T00:00:59.999999Z"),
    ]
    assert difference(result.read(), answer(counts(table)).rows) is None
    reference = tg.run(counts(table), on="reference", to=tmp_path / "reference.jsonl")
    written = (tmp_path / "reference.jsonl" / "part-00000.json").read_text()
    assert sorted(map(json.loads, lines), key=str) == sorted(map(json.loads, written.splitlines()), key=str)
    assert difference(reference.read(), result.read()) is None


@pytest.mark.parametrize("cells", [1, 2])
def test_late_tuples_are_counted_and_written_on_request(spark: Any, tmp_path: Path, cells: int) -> None:
    on_time, late = [tuples([10.5, 11.5, 12.5]), tuples([13.5, 12.75])], tuples([1.5, 2.5, 11.25], "late")
    folder = write(tmp_path / "in", [on_time[0], pa.concat_tables([late, on_time[1]])])
    options = {"spark": spark, "cells": cells, "progress": False}
    result = tg.run(counts(folder), to=tmp_path / "out", late_to=tmp_path / "late", **options)
    assert result.late == 3
    (step,) = late_files(tmp_path / "late")
    missed = int(12.5 * MINUTE)
    assert late_rows(tmp_path / "late", step) == [
        (int(minute * MINUTE), "late", missed) for minute in (1.5, 2.5, 11.25)
    ]
    assert difference(result.read(), answer(counts(pa.concat_tables(on_time))).rows) is None


def test_files_that_were_not_written_in_order_make_one_batch(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", [tuples([n + 0.5]) for n in range(4)], modified=[3, 0, 2, 1])
    result = tg.run(counts(folder), to=tmp_path / "out", spark=spark, progress=False, files_per_batch=1)
    assert "not written in the order of their names" in result.notes[0]
    assert (result.late, result.results) == (0, 4)


def test_two_streams_of_files_are_brought_together(spark: Any, tmp_path: Path) -> None:
    left = tg.stream(write(tmp_path / "left", [tuples([0.5, 1.5]), tuples([2.5])]), time="ts")
    right = tg.stream(write(tmp_path / "right", [tuples([0.75], "b")]), time="ts")
    query = left.union(right).key_by("k").window("1 minute").aggregate(n=tg.count())
    result = tg.run(query, to=tmp_path / "out", spark=spark, progress=False)
    assert difference(result.read(), answer(query).rows) is None


def test_a_query_without_state_needs_no_end(spark: Any, tmp_path: Path) -> None:
    lines = [{"ts": f"2024-01-01T00:0{minute}:30.000001Z", "k": "a", "x": minute / 4} for minute in range(3)]
    path = write_lines(tmp_path / "in.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    query = tg.stream(path, time="ts").filter(nw.col("x") > 0)
    result = tg.run(query, to=tmp_path / "out", spark=spark, progress=False)
    assert result.finished
    assert result.results == 2
    assert difference(result.read(), answer(query).rows) is None


def test_the_screen_shows_the_first_rows_and_a_count(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = counts(write(tmp_path / "in", [tuples([0.5, 1.5]), tuples([2.5, 3.5, 4.5])]))
    result = tg.run(query, spark=spark, show=3, progress=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ts", "k", "window_start", "window_end", "n"]
    assert [line.split()[1][:5] for line in lines[1:4]] == ["00:00", "00:01", "00:02"]
    assert lines[4] == "(5 rows, 3 shown)"
    with pytest.raises(tg.UserError, match="to='a folder'"):
        result.read()


def test_an_unbounded_run_takes_new_files_until_the_input_is_ended(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", [tuples([0.5, 1.5])])
    query = counts(folder, follow=True)
    with pytest.raises(tg.QueryError, match=r"bounded=True ends the run .* stream 'in' is made with follow=True"):
        tg.run(query, to=tmp_path / "out", bounded=True)

    def feed(progress: tg.Progress) -> None:
        if progress.batch == 0:
            pq.write_table(tuples([2.5, 3.5]), tmp_path / "late-arrival")
            (tmp_path / "late-arrival").rename(Path(folder) / "1.parquet")
        elif progress.rows_total == 4 and not progress.ended:
            tg.end_input(tmp_path / "out" / "_checkpoint" / "control")

    result = tg.run(query, to=tmp_path / "out", spark=spark, progress=feed)
    assert result.finished
    assert difference(result.read(), answer(counts(folder)).rows) is None


def test_a_streaming_dataframe_runs_in_its_own_session(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", [tuples([0.5, 1.5]), tuples([2.5])])
    own = spark.newSession()
    # The results of a batch leave in that batch, with or without batches that read nothing.
    own.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    df = own.readStream.schema("ts timestamp, k string").option("maxFilesPerTrigger", 1).parquet(folder)
    result = tg.run(counts(df), to=tmp_path / "out", bounded=True, progress=False)
    assert difference(result.read(), answer(counts(folder)).rows) is None


def test_results_of_two_runs_are_not_mixed(spark: Any, tmp_path: Path) -> None:
    log = tmp_path / "out" / SPARK_LOG / "0"
    log.parent.mkdir(parents=True)
    log.write_text('v1\n{"path":"file:///elsewhere/part-0.parquet"}\n')
    with pytest.raises(tg.CheckpointError, match="is not empty"):
        tg.run(counts(tuples([1])), to=tmp_path / "out", spark=spark, progress=False)


def test_what_a_worker_found_wrong_is_raised_here(spark: Any, tmp_path: Path) -> None:
    big = tuples([0.5, 0.75]).append_column("x", pa.array([2**62, 2**62]))
    query = tg.stream(big, time="ts").key_by("k").window("1 minute").aggregate(x=tg.sum("x"))
    with pytest.raises(tg.DataError, match=r"^a sum of 'x' does not fit int64; cast the column to float64") as caught:
        tg.run(query, to=tmp_path / "sum", spark=spark, progress=False)
    assert type(caught.value.__cause__).__name__ == "StreamingQueryException"

    def touchy(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            raise ValueError("I did not expect this")
        return batch

    failing = tg.stream(tuples([1]), time="ts").map_batches(touchy).key_by("k").window("1 minute")
    place = rf"ValueError: I did not expect this \(.*test_run.py, line {touchy.__code__.co_firstlineno + 2}\)"
    with pytest.raises(tg.DataError, match=place):
        tg.run(failing.aggregate(n=tg.count()), to=tmp_path / "touchy", spark=spark, progress=False)
    # Nothing was committed, so the mended query may begin where the other failed.
    mended = tg.stream(tuples([1]), time="ts").key_by("k").window("2 minutes").aggregate(n=tg.count())
    assert tg.run(mended, to=tmp_path / "touchy", spark=spark, progress=False).read()["n"].to_pylist() == [1]

    good = counts(write_lines(tmp_path / "lines.jsonl", '{"ts": "2024-01-01T00:00:00Z", "k": "a"}\n'))
    write_lines(tmp_path / "lines.jsonl", '{"ts": "2024-01-01T00:00:00Z", "k": \n')
    with pytest.raises(tg.DataError, match=r"lines\.jsonl, line 1: "):
        tg.run(good, to=tmp_path / "lines", spark=spark, progress=False)


def write_lines(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)
