"""What a run on the other runtime refuses to go on from, and what of a checkpoint on Spark counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.carry_over import same_steps
from tidegate.compile.compiler import compile_query
from tidegate.errors import CheckpointError, QueryError, UnsupportedError
from tidegate.runtime.spark.checkpoint import Checkpoint, CheckpointInfo
from tidegate.runtime.spark.continued import last_batch, read_links, unread
from tidegate.sources.files import files_of
from tidegate.sources.positions import ReadPosition
from tidegate.state.run_lock import lock_folder
from tidegate.watermark import START

TIME = pa.timestamp("us", tz="UTC")


def table(first: int = 0) -> pa.Table:
    times = pa.array([first + 1_000 * row for row in range(20)], TIME)
    return pa.table({"ts": times, "k": list("ab") * 10, "n": list(range(20))})


def counts(source: Any, size: str = "5ms", *, follow: bool = True) -> tg.Stream:
    return tg.stream(source, time="ts", follow=follow).key_by("k").window(size).aggregate(n=tg.sum("n"))


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The checkpoint of a run in process that was cancelled, when it had taken a snapshot."""
    (tmp_path / "in").mkdir()
    pq.write_table(table(), tmp_path / "in" / "0.parquet")
    query = counts(str(tmp_path / "in"))
    job = tg.start(query, to=tmp_path / "out", checkpoint=tmp_path / "cp", every="1 hour")
    assert job.running.snapshots is not None
    job.running.snapshots.take()
    job.cancel()
    return tmp_path / "cp"


def refused(query: tg.Stream, where: Path, **options: Any) -> str:
    """What is said when a run on Spark is to go on from a checkpoint; nothing has been written."""
    to = where.parent / "refused"
    with pytest.raises((CheckpointError, QueryError, UnsupportedError)) as error:
        tg.run(query, to=to, checkpoint=where.parent / "new", continue_from=where, progress=False, **options)
    assert not list(to.glob("*")) if to.exists() else True
    assert {path.name for path in (where.parent / "new").glob("*")} <= {"lock"}
    return str(error.value)


def test_a_query_that_changed_is_refused_with_both_versions(stopped: Path) -> None:
    told = refused(counts(str(stopped.parent / "in"), "7ms"), stopped)
    assert "5 milliseconds" in told and "7 milliseconds" in told and "another query" in told


def test_a_run_in_use_is_refused(stopped: Path) -> None:
    with lock_folder(stopped):
        assert "is in use by another run" in refused(counts(str(stopped.parent / "in")), stopped)


def test_a_topic_cannot_be_read_on(stopped: Path) -> None:
    # The source is compared first with what the other runtime can read, whatever the checkpoint is of.
    topic = tg.stream(tg.kafka("calls", servers="localhost:1"), time="ts", schema=table().schema)
    query = topic.key_by("k").window("5ms").aggregate(n=tg.sum("n"))
    assert "connector jars" in refused(query, stopped)


def test_what_is_no_checkpoint_or_of_the_same_runtime_is_refused(stopped: Path, tmp_path: Path) -> None:
    query = counts(str(stopped.parent / "in"))
    assert "no checkpoint of a run" in refused(query, tmp_path / "out")
    with pytest.raises(UnsupportedError, match="on='local', and so is this one"):
        tg.run(query, on="local", to=tmp_path / "o", checkpoint=tmp_path / "c", continue_from=stopped)
    with pytest.raises(QueryError, match="needs a checkpoint of its own"):
        tg.run(query, on="local", to=tmp_path / "o", continue_from=stopped)
    with pytest.raises(QueryError, match="are both"):
        tg.run(query, to=tmp_path / "o", checkpoint=stopped, continue_from=stopped)
    with pytest.raises(QueryError, match="begins anew"):
        tg.run(query, on="reference", continue_from=stopped)


def test_a_finished_run_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(table(), tmp_path / "in" / "0.parquet")
    query = counts(str(tmp_path / "in"), follow=False)
    tg.run(query, on="local", to=tmp_path / "out", checkpoint=tmp_path / "cp", progress=False)
    assert "is finished" in refused(query, tmp_path / "cp")


def test_other_state_on_spark_is_refused_by_the_name_of_the_step() -> None:
    one = tg.stream(table(), time="ts")
    query = one.join(one, on="k", within="5ms", name="near").node
    local = compile_query(query, "local")
    assert same_steps(local, compile_query(query, "spark", cells=2))
    with pytest.raises(UnsupportedError, match=r"step 'near'.*leave out what changes that"):
        same_steps(local, compile_query(query, "spark", cells=2, hot_keys=True))
    query = one.key_by("k").window("5ms").aggregate(n=tg.collect("n")).node
    with pytest.raises(UnsupportedError, match="leave hot_keys out"):
        same_steps(compile_query(query, "local"), compile_query(query, "spark", cells=2, hot_keys=True))


def spark_checkpoint(folder: Path, committed: list[int], planned: list[int]) -> Checkpoint:
    for name, numbers in {"commits": committed, "offsets": planned}.items():
        (folder / "spark" / name).mkdir(parents=True)
        for number in numbers:
            (folder / "spark" / name / str(number)).write_text(f'v1\n{{}}\n{{"logOffset":{number}}}\n-\n')
    return Checkpoint(folder)


def info(*results: Path) -> CheckpointInfo:
    return CheckpointInfo("any", (1, 1), "any", 1, results=[str(each) for each in results])


def logged(folder: Path, *batches: int) -> Path:
    (folder / "_spark_metadata").mkdir(parents=True)
    for batch in batches:
        (folder / "_spark_metadata" / str(batch)).write_text("v1\n")
    return folder


def test_the_batch_that_counts_is_the_newest_whose_results_are_out(tmp_path: Path) -> None:
    checkpoint = spark_checkpoint(tmp_path / "cp", [0, 1], [0, 1, 2])
    assert last_batch(checkpoint, info()) == 1
    assert last_batch(checkpoint, info(logged(tmp_path / "a", 0, 1))) == 1
    both = info(logged(tmp_path / "b", 0, 1, 2))
    assert last_batch(checkpoint, both) == 2
    with pytest.raises(CheckpointError, match="some of its results"):
        last_batch(checkpoint, info(tmp_path / "a", tmp_path / "b"))
    with pytest.raises(CheckpointError, match="is gone"):
        last_batch(checkpoint, info(tmp_path / "gone"))
    with pytest.raises(CheckpointError, match="no batch was completed"):
        last_batch(spark_checkpoint(tmp_path / "new", [], [0]), info(logged(tmp_path / "c")))


def test_what_was_read_is_told_by_the_offsets_of_the_batch(tmp_path: Path) -> None:
    checkpoint = spark_checkpoint(tmp_path / "cp", [0, 1], [0, 1, 2])
    log = checkpoint.spark / "sources" / "0"
    log.mkdir(parents=True)
    for batch in range(3):
        path = (checkpoint.inputs(0) / f"{batch}.parquet").absolute().as_uri()
        (log / str(batch)).write_text(f"v1\n{json.dumps({'path': path, 'timestamp': 1, 'batchId': batch})}\n")
    assert read_links(checkpoint, 1) == {(0, "0.parquet"), (0, "1.parquet")}
    (log / "1").unlink()
    (checkpoint.spark / "offsets" / "1").write_text("v1\n")
    assert read_links(checkpoint, 1) == set()


def test_files_that_are_left_come_in_the_order_in_which_they_were_known(tmp_path: Path) -> None:
    for name in "abcd":
        pq.write_table(table(), tmp_path / f"{name}.parquet")
    files = files_of(str(tmp_path / "*.parquet"))
    paths = [str(tmp_path / f"{name}.parquet") for name in "abcd"]
    position = ReadPosition(START, START, files=(paths[2], paths[1]), done=(paths[0],))
    assert unread(files, position).paths == (paths[2], paths[1], paths[3])
