"""Runs on Spark that are killed between the commit of state and the commit of the batch, more than once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tests.kit.killed_run import QUERIES, committed, versions
from tests.kit.spark_driver import Batch, Driver
from tidegate.results import read_results
from tidegate.runtime.spark import session
from tidegate.runtime.spark.session import ATTEMPTS_APART, FILE_MANAGER, LOCAL_FILES
from tidegate.testing import answer, difference


def run(name: str, files: str, out: Path, batches: int | str | None = None) -> subprocess.CompletedProcess[str]:
    """A run in processes of its own, killed when so many more batches are committed and the state of the next is."""
    command = [sys.executable, "-m", "tests.kit.killed_run", name, files, str(out)]
    temporary = out.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        command if batches is None else [*command, str(batches)],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    )


def check(name: str, tmp_path: Path, kills: list[int]) -> None:
    """Every row of a run that is killed so often is that of an undisturbed one, and nothing is left in between."""
    files, out = usage(tmp_path / "in", rows=2_000, minutes=8, files=4 + sum(kills)), tmp_path / "out"
    checkpoint = out / "_checkpoint" / "spark"
    for batches in kills:
        killed = run(name, files, out, batches)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert committed(checkpoint) + 1 in versions(checkpoint), "the state of a batch that is not committed"
    last = run(name, files, out)
    assert last.returncode == 0, last.stderr
    check_undisturbed(name, files, out)


def check_undisturbed(name: str, files: str, out: Path) -> None:
    law = answer(QUERIES[name](files)).rows
    told = difference(read_results(out, "parquet", law.schema), law)
    assert told is None, told
    assert pq.read_table(out).num_rows == law.num_rows
    left = [path for path in (out.parent / "tmp").rglob("*") if not path.is_dir()]
    assert not left, "what was killed is swept by the next run, which leaves nothing itself"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "kills"), [("counted", [0, 1, 2, 1, 0]), ("joined", [1, 2]), ("applied", [1, 2])])
def test_kills_between_the_commits_lose_nothing(tmp_path: Path, name: str, kills: list[int]) -> None:
    """`test_chaos` begins with two of them."""
    check(name, tmp_path, kills)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_death_of_java_is_told_and_the_same_process_goes_on(tmp_path: Path) -> None:
    files, out = usage(tmp_path / "in", rows=1_000, minutes=5, files=5), tmp_path / "out"
    told = run("counted", files, out, "java")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(
        "Spark's Java process has ended: it was killed, or ran out of memory. Run the same again"
    )
    check_undisturbed("counted", files, out)


@pytest.mark.spark
def test_a_file_of_a_checkpoint_that_is_written_again_replaces_the_first(spark: Any, tmp_path: Path) -> None:
    """What Spark's contract demands of the file manager that tidegate chooses for local disks."""
    hadoop = spark._jvm.org.apache.hadoop.fs
    kind = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass").rpartition(".")[2]
    managers = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing
    manager = getattr(managers, kind)(hadoop.Path(f"file://{tmp_path}"), spark._jsc.hadoopConfiguration())
    for attempt in ("first", "second"):
        stream = manager.createAtomic(hadoop.Path(f"file://{tmp_path}/1.changelog"), True)
        stream.writeBytes(attempt)
        stream.close()
    assert (tmp_path / "1.changelog").read_text() == "second"
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.spark
def test_a_session_that_mixes_attempts_is_refused(spark: Any, tmp_path: Path) -> None:
    own = spark.newSession()
    own.conf.set(ATTEMPTS_APART, "1")
    own.conf.set(LOCAL_FILES, "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem")
    df = own.readStream.schema("ts timestamp, k string").parquet(str(tmp_path))
    query = tg.stream(df, time="ts").key_by("k").window("1 minute").aggregate(n=tg.count())
    with pytest.raises(tg.EnvironmentFault, match=r"the next crash destroys the checkpoint; .*\n.*\"2\"\)"):
        query.to_spark()
    own.conf.unset(FILE_MANAGER)
    assert query.to_spark().isStreaming, "Spark's own way to write checkpoints replaces files"


@pytest.mark.long
@pytest.mark.spark
def test_a_checkpoint_that_keeps_attempts_together_goes_on(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The format of state is settled when a checkpoint begins; those of before must still serve."""
    files, out = usage(tmp_path / "in", rows=500, minutes=5, files=4), tmp_path / "out"
    query = QUERIES["counted"](files)

    def stop_soon(progress: tg.Progress) -> None:
        if progress.batch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as before:
        before.setattr(session, "STREAMING", {**session.STREAMING, ATTEMPTS_APART: "1"})
        with pytest.raises(KeyboardInterrupt):
            tg.run(query, to=out, spark=spark, files_per_batch=1, progress=stop_soon)
    assert list((out / "_checkpoint" / "spark" / "state" / "0" / "0").glob("1.changelog"))
    result = tg.run(query, to=out, spark=spark, files_per_batch=1, progress=False)
    assert difference(result.read(), answer(query).rows) is None


def test_attempts_of_a_batch_write_the_same_state() -> None:
    """Rows cross an exchange in any order; attempts that do the same thing leave the same bytes behind."""
    moment = pa.timestamp("us", tz="UTC")

    def part(seed: int) -> pa.Table:
        times = pa.array([1_000_000 * (seed * 7 + n) for n in range(20)], pa.int64()).cast(moment)
        return pa.table({"ts": times, "k": [f"k{(n * seed) % 5}" for n in range(20)], "x": [n / 8 for n in range(20)]})

    parts = [part(seed) for seed in (1, 2, 3)]
    query = (
        tg.stream(parts[0].schema, time="ts", name="s", disorder="1 hour")
        .key_by("k")
        .window("1 minute", every="30 seconds")
        .aggregate(n=tg.count(), x=tg.sum("x"), all=tg.collect("x"))
    )
    left: list[list[Any]] = []
    for order in (parts, parts[::-1]):
        driver = Driver(query.node, 2)
        left.append([])
        for _ in range(12):  # so many that small chunks are merged
            driver._batch(Batch({"s": list(order)}))
            left[-1] += [(key, store.directory, store.chunks) for key, store in driver.steps[0].cells.items()]
    assert left[0] == left[1]
    assert len(left[0]) == 24
    assert all(chunks for _, _, chunks in left[0])
