"""Runs in process that are ended at some moment and go on: nothing is lost and nothing is there twice."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import CheckpointError, QueryError, UnsupportedError
from tidegate.runtime.local.job import LocalJob

FILES, ROWS = 4, 20_000
SMALL: dict[str, Any] = {"segment_rows": 500, "waiting_rows": 1_000}
"""Little is under way at a time, so that a marker is soon through."""


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
            **SMALL,
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
    with pytest.raises(UnsupportedError, match="beside the results"):
        tg.start(counts(calls), to=tmp_path / "out", checkpoint=tmp_path / "out" / "cp")
    with pytest.raises(UnsupportedError, match="late_to"):
        tg.start(counts(calls), to=tmp_path / "out", late_to=tmp_path / "late", checkpoint=tmp_path / "cp")
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


def finished(calls: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A run that was ended behind a snapshot: its checkpoint and its results."""
    job = start(calls, tmp_path)
    snapshots = job.running.snapshots
    assert snapshots is not None
    while snapshots.checkpoint.last is None or not snapshots.checkpoint.last.parts:
        assert not job.wait(0.001), "the run was over before a snapshot with results was there"
    job.cancel()
    assert job.running.done.wait(10)
    return tmp_path / "cp", tmp_path / "out"


def start(calls: Path, tmp_path: Path, **more: Any) -> LocalJob:
    given = {"to": tmp_path / "out", "checkpoint": tmp_path / "cp", "every": "5 milliseconds", **SMALL}
    return tg.start(counts(calls), **(given | more))


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("where", ["snapshots", "state/state-0/cell-0", "state/state-0/chunks"])
@pytest.mark.parametrize("how", [damaged, Path.unlink])
def test_what_is_damaged_is_refused_and_named(calls: Path, tmp_path: Path, where: str, how: Any) -> None:
    checkpoint, _ = finished(calls, tmp_path)
    files = sorted((checkpoint / where).iterdir())
    assert files
    for path in files:
        how(path)
    told = "is not empty" if (where, how) == ("snapshots", Path.unlink) else "damaged"
    with pytest.raises(CheckpointError, match=told):
        start(calls, tmp_path).wait()


def test_a_part_that_is_gone_and_one_that_is_foreign_are_refused(calls: Path, tmp_path: Path) -> None:
    tg.start(counts(calls), to=tmp_path / "out", checkpoint=tmp_path / "cp").wait()
    (tmp_path / "out" / "part-99999.parquet").touch()
    with pytest.raises(CheckpointError, match="holds part-99999"):
        start(calls, tmp_path)
    (tmp_path / "out" / "part-99999.parquet").unlink()
    newest = max((tmp_path / "out").glob("part-*"))
    newest.unlink()
    with pytest.raises(CheckpointError, match=re.escape(f"{newest.name} is gone")):
        start(calls, tmp_path)


def test_two_runs_on_one_checkpoint_are_refused(calls: Path, tmp_path: Path) -> None:
    with start(calls, tmp_path) as job:
        with pytest.raises(CheckpointError, match="in use by another run"):
            start(calls, tmp_path)
        job.cancel()


def test_new_files_are_read_after_the_others_and_a_changed_one_is_refused(calls: Path, tmp_path: Path) -> None:
    copied = tmp_path / "calls"
    shutil.copytree(calls, copied)
    newer = copied / "zzz.parquet"
    finished(copied, tmp_path)
    moved = pq.read_table(copied / "000.parquet")
    times = pc.add(moved.column("ts").cast(pa.int64()), FILES * 10_000_000)
    pq.write_table(moved.set_column(0, "ts", times.cast(pa.timestamp("us"))), newer)
    start(copied, tmp_path).wait()
    tg.start(counts(copied), to=tmp_path / "whole").wait()
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")

    again = tmp_path / "again"
    again.mkdir()
    checkpoint, _ = finished(copied, again)
    snapshot = json.loads(json.loads(max((checkpoint / "snapshots").iterdir()).read_text())["snapshot"])
    changed = snapshot["positions"][0]["file"]
    pq.write_table(pq.read_table(changed).slice(1), changed)
    with pytest.raises(CheckpointError, match="which of its records were taken is not known"):
        start(copied, again)


def test_each_result_of_a_query_is_there_once(calls: Path, tmp_path: Path) -> None:
    tuples = tg.stream(f"{calls}/*.parquet", time="ts").map_batches(slowly)
    keyed = tuples.key_by("k")
    queries = {
        "short": keyed.window("1 second").aggregate(n=tg.count()),
        "long": keyed.window("5 seconds").aggregate(n=tg.count()),
    }
    given = {**SMALL, "format": "jsonl"}
    tg.start(queries, to=tmp_path / "whole", **given).wait()
    job = tg.start(queries, to=tmp_path / "out", checkpoint=tmp_path / "cp", every="5 milliseconds", **given)
    snapshots = job.running.snapshots
    assert snapshots is not None
    while snapshots.checkpoint.last is None or snapshots.checkpoint.last.number < 3:
        if job.wait(0.001):
            break
    job.cancel()
    assert job.running.done.wait(10)
    tg.start(queries, to=tmp_path / "out", checkpoint=tmp_path / "cp", instances=1, **given).wait()
    for name in queries:
        lines = [sorted(_lines(tmp_path / folder / name)) for folder in ("whole", "out")]
        assert lines[0] == lines[1]
        assert lines[0]


def _lines(folder: Path) -> list[str]:
    return [line for part in folder.glob("part-*") for line in part.read_text().splitlines()]


def test_the_two_newest_snapshots_are_kept(calls: Path, tmp_path: Path) -> None:
    job = start(calls, tmp_path, every="1 millisecond")
    job.wait()
    snapshots = job.running.snapshots
    assert snapshots is not None and snapshots.checkpoint.last is not None
    number = snapshots.checkpoint.last.number
    assert number > 2
    kept = sorted(path.name for path in (tmp_path / "cp" / "snapshots").iterdir())
    assert kept == [f"{number - 1:010}", f"{number:010}"]
    batches = {int(path.name.partition("-")[0]) for path in (tmp_path / "cp/state/state-0/cell-0").iterdir()}
    assert min(batches) >= number - 2


def test_run_takes_a_checkpoint_in_process_and_nowhere_else_but_on_spark(calls: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"to": tmp_path / "out", "checkpoint": tmp_path / "cp", "progress": False}
    first = tg.run(counts(calls), on="local", **given)
    assert (first.rows, first.finished) == (FILES * ROWS, True)
    again = tg.run(counts(calls), on="local", **given)
    assert (again.rows, again.results) == (0, 0)
    assert again.read().num_rows == first.results
    with pytest.raises(QueryError, match="on='spark' and on='local'"):
        tg.run(counts(calls), on="reference", **given)
