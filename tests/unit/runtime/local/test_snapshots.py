"""Runs in process that are ended at some moment and go on: nothing is lost and nothing is there twice."""

from __future__ import annotations

import time
from pathlib import Path

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import CheckpointError, UnsupportedError
from tidegate.runtime.local.job import LocalJob

FILES, ROWS = 4, 20_000


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calls")
    drawn = np.random.default_rng(7)
    for number in range(FILES):
        times = number * 10_000_000 + np.sort(drawn.integers(0, 10_000_000, ROWS))
        columns = {"ts": pa.array(times, pa.timestamp("us")), "k": drawn.integers(0, 50, ROWS)}
        pq.write_table(pa.table(columns), folder / f"{number:03}.parquet")
    return folder


def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, after a while: a run lasts longer than it takes to end it."""
    if batch.num_rows:
        time.sleep(0.004)
    return batch


def counts(calls: Path) -> tg.Stream:
    tuples = tg.stream(f"{calls}/*.parquet", time="ts").map_batches(slowly)
    return tuples.key_by("k").window("2 seconds", every="1 second").aggregate(n=tg.count())


def parted(calls: Path) -> dict[str, tg.Stream]:
    tuples = tg.stream(f"{calls}/*.parquet", time="ts")
    counted = tuples.key_by("k").window("2 seconds", every="1 second").aggregate(n=tg.count())
    return {"counts": counted, "busy": counted.filter(nw.col("n") > 1), "calls": tuples}


def rows_of(folder: Path) -> list[tuple[str, ...]]:
    return sorted(tuple(map(str, row.values())) for row in pq.read_table(folder).to_pylist())


def test_a_run_that_is_ended_again_and_again_gives_the_same_rows(calls: Path, tmp_path: Path) -> None:
    tg.start(counts(calls), to=tmp_path / "whole").wait()
    ended = 0
    for instances in (1, 3, 2, 1, 2):
        job = tg.start(
            counts(calls),
            to=tmp_path / "out",
            checkpoint=tmp_path / "cp",
            every="5 milliseconds",
            instances=instances,
            segment_rows=500,
        )
        snapshots = job.running.snapshots
        assert snapshots is not None
        before = snapshots.checkpoint.last
        while snapshots.checkpoint.last is before and not job.wait(0.001):
            pass
        job.cancel()
        assert job.running.done.wait(10)
        ended += job.cancelled
    tg.start(counts(calls), to=tmp_path / "out", checkpoint=tmp_path / "cp").wait()
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")
    assert ended
    again = tg.start(counts(calls), to=tmp_path / "out", checkpoint=tmp_path / "cp")
    assert again.wait()
    assert again.rows == again.results == 0
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")


def test_another_query_is_refused_with_both_versions(calls: Path, tmp_path: Path) -> None:
    tg.start(counts(calls), to=tmp_path / "out", checkpoint=tmp_path / "cp").wait()
    other = tg.stream(f"{calls}/*.parquet", time="ts").key_by("k").window("3 seconds").aggregate(n=tg.count())
    with pytest.raises(CheckpointError, match=r"2 seconds.*3 seconds"):
        tg.start(other, to=tmp_path / "out", checkpoint=tmp_path / "cp")


def test_what_cannot_go_on_is_refused_when_the_run_is_started(calls: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="name a folder"):
        tg.start(counts(calls), checkpoint=tmp_path / "cp")
    endless = tg.stream(iter([{"ts": 1, "k": 1}]), time="ts", schema={"ts": pa.timestamp("us"), "k": pa.int64()})
    with pytest.raises(UnsupportedError, match="write its items to files"):
        tg.start(endless, to=tmp_path / "out", checkpoint=tmp_path / "cp")
    assert not (tmp_path / "cp").exists()


def test_several_results_go_on_from_one_snapshot_under_the_names_they_had(calls: Path, tmp_path: Path) -> None:
    tg.start(parted(calls), to=tmp_path / "whole").wait()

    def begin(results: dict[str, tg.Stream]) -> LocalJob:
        out, checkpoint = tmp_path / "out", tmp_path / "cp"
        return tg.start(results, to=out, checkpoint=checkpoint, every="5 milliseconds", segment_rows=100)

    job = begin(parted(calls))
    job.wait(0.05)
    job.cancel()
    assert job.running.done.wait(10)
    begin(parted(calls)).wait()
    renamed = {"other" if name == "busy" else name: result for name, result in parted(calls).items()}
    with pytest.raises(CheckpointError, match="counts, busy, calls"):
        begin(renamed)
    for name in parted(calls):
        assert rows_of(tmp_path / "out" / name) == rows_of(tmp_path / "whole" / name)
        assert rows_of(tmp_path / "out" / name)
