"""Runs on Spark that are killed between the state of a batch and its commit, more than once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tests.kit.killed_run import QUERIES, committed, directories, parted
from tests.kit.spark_driver import Batch, Driver
from tidegate.results import read_results
from tidegate.state.chunks import Directory
from tidegate.testing import answer, difference


def run(name: str, files: str, out: Path, batches: int | str | None = None) -> subprocess.CompletedProcess[str]:
    """A run in processes of its own, killed when so many more batches are committed and the state of the next is written."""
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
    checkpoint = out / "_checkpoint"
    for batches in kills:
        killed = run(name, files, out, batches)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert committed(checkpoint) in directories(checkpoint).values(), "the state of a batch that is not committed"
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
@pytest.mark.parametrize(
    ("name", "kills"), [("counted", [0, 1, 2, 1, 0]), ("joined", [1, 2]), ("applied", [1, 2]), ("stored", [1, 2])]
)
def test_kills_between_the_commits_lose_nothing(tmp_path: Path, name: str, kills: list[int]) -> None:
    """`test_chaos` begins with two of them."""
    check(name, tmp_path, kills)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_kills_between_the_folders_of_a_batch_double_nothing(tmp_path: Path) -> None:
    # run 0   lists batch 0 in 'minutes' and is killed
    # run 1   runs it again, which 'minutes' has and the others get; lists batch 1 in 'minutes' and is killed; and so on
    files, out = usage(tmp_path / "in", rows=1_000, minutes=5, files=4), tmp_path / "out"
    law = answer(parted(files))
    for batch in range(3):
        killed = run("parted", files, out, "folders")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert committed(out / "_checkpoint") == batch, "the batch is not committed"
        listed = {name: (out / name / "_spark_metadata" / str(batch)).exists() for name in parted(files)}
        assert listed == {"minutes": True, "busy": False, "large": False, "rest": False}
    last = run("parted", files, out)
    assert last.returncode == 0, last.stderr
    for name in parted(files):
        told = difference(read_results(out / name, "parquet", law[name].schema), law[name])
        assert told is None, f"{name}: {told}"
        assert pq.read_table(out / name).num_rows == law[name].num_rows > 0, "no part is there that is not listed"


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
        stream = manager.createAtomic(hadoop.Path(f"file://{tmp_path}/1"), True)
        stream.writeBytes(attempt)
        stream.close()
    assert (tmp_path / "1").read_text() == "second"
    assert not list(tmp_path.glob(".*.tmp"))


def test_attempts_of_a_batch_write_the_same_state(tmp_path: Path) -> None:
    """Rows cross an exchange in any order; attempts that do the same thing leave the same files behind."""
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
    left = []
    for seed in (1, 2):  # each has orders of its own
        driver = Driver(query.node, 2, tmp_path / str(seed), seed=seed)
        for _ in range(12):  # so many that small chunks are merged
            driver.batch(Batch({"s": parts}, attempts=2))
        left.append(files_of(tmp_path / str(seed) / "query"))
    assert left[0] == left[1]
    assert len([name for name in left[0] if "cell-" in name]) == 2 * 12, "a directory for each cell and batch"
    assert len([name for name in left[0] if "chunks" in name]) == 2 * 12


def files_of(folder: Path) -> dict[str, Any]:
    """What each file of a state folder holds, without the name of the run that wrote it."""
    found: dict[str, Any] = {}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        place = f"{path.parent.relative_to(folder)}/{path.name}"
        if path.parent.name.startswith("cell-"):
            directory = Directory.decode(path.read_bytes(), place)
            found[place.partition("-build")[0]] = replace(directory, run="", began_ns=0)
        else:
            found[place] = path.read_bytes()
    return found
