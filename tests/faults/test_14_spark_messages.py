"""What goes wrong around a run on Spark, said in a sentence; and what must not stop it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tests.kit import full_disk_run
from tidegate.results import read_results
from tidegate.runtime.spark.control import unknown_files
from tidegate.runtime.spark.sinks import SparkFolder
from tidegate.testing import answer, difference

NO_MESSAGES = {
    "cut.json": b'{"message": "inst',
    "number.json": b'{"message": 5}',
    "unknown.json": b'{"message": "cells 4"}\n{"message": "instances 2 1"}\n',
    "none.json": b'{"message": "instances 0 1"}',
    "many.json": b'{"message": "instances 9999 1"}',
    "null.json": b"null\n",
    "binary.json": bytes(range(256)),
}


def counts(files: str) -> tg.Stream:
    return tg.stream(files, time="time").key_by("appId").window("1 minute").aggregate(flows=tg.count())


@pytest.mark.spark
def test_control_files_that_are_none_are_left_out_and_named(spark: Any, tmp_path: Path) -> None:
    """They are read by a batch that is stopped, and again by the run that goes on."""
    files, out = usage(tmp_path / "in", rows=500, minutes=5, files=4), tmp_path / "out"
    query, control = counts(files), out / "_checkpoint" / "control"

    def spoil(progress: tg.Progress) -> None:
        if progress.batch == 0:
            for name, data in NO_MESSAGES.items():
                (control / f".{name}").write_bytes(data)
                (control / f".{name}").rename(control / name)
        elif progress.batch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tg.run(query, to=out, spark=spark, files_per_batch=1, progress=spoil)
    result = tg.run(query, to=out, spark=spark, files_per_batch=1, progress=False)
    assert difference(result.read(), answer(query).rows) is None
    for name in NO_MESSAGES:
        assert f"control file {control / name} holds something that is no message" in " ".join(result.notes)


def test_only_what_is_no_message_is_named_and_only_once(tmp_path: Path) -> None:
    for name, data in NO_MESSAGES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / ".draft").write_bytes(b"not yet")
    (tmp_path / "_ignored").write_bytes(b"by Spark")
    tg.end_input(tmp_path)
    tg.set_instances(tmp_path, 3)
    seen: set[Path] = set()
    assert len(unknown_files(tmp_path, seen)) == len(NO_MESSAGES)
    assert unknown_files(tmp_path, seen) == []


def test_a_control_file_holds_one_message(tmp_path: Path) -> None:
    tg.end_input(tmp_path)
    (path,) = tmp_path.iterdir()
    assert json.loads(json.loads(path.read_text())["message"]) == {"tidegate": 2, "kind": "end"}


@pytest.mark.spark
def test_a_checkpoint_of_another_query_is_refused_before_a_query_is_started(spark: Any, tmp_path: Path) -> None:
    """``to_spark`` is told where the checkpoint is, and looks; a new one, and the query's own, are taken."""
    (tmp_path / "in").mkdir()
    files = usage(tmp_path / "in" / "usage", rows=200, minutes=5, files=1)
    df = spark.readStream.schema(spark.read.parquet(files).schema).parquet(files)
    keyed = tg.stream(df, time="time").key_by("appId")
    query, place = keyed.window("1 minute").aggregate(flows=tg.count()), tmp_path / "checkpoint"
    started = query.to_spark(checkpoint=place).writeStream.format("noop").option("checkpointLocation", str(place))
    started.trigger(availableNow=True).start().awaitTermination()

    assert query.to_spark(checkpoint=place).isStreaming
    other = keyed.window("2 minutes").aggregate(flows=tg.count())
    differs = "it holds «window 1 minute every 1 minute», the query wants «window 2 minutes every 2 minutes»"
    assert refusal(lambda: other.to_spark(checkpoint=str(place))) == refused(place / "tidegate", differs)
    assert query.to_spark(checkpoint=place, cells=2).isStreaming, "any number of cells will do"
    two = query.key_by("flows").window("5 minutes").aggregate(apps=tg.count())
    steps = "it holds the state of 1 stateful steps, and the query has 2"
    assert refusal(lambda: two.to_spark(checkpoint=place)) == refused(place / "tidegate", steps)


def refused(place: Path, why: str) -> str:
    return (
        f"{place} was written by another query and cannot serve this one: {why}. "
        "Start from a new checkpoint, or restore the query"
    )


def refusal(build: Callable[[], object]) -> str:
    """What is said, in a sentence that stands alone."""
    with pytest.raises(tg.CheckpointError) as told:
        build()
    assert told.value.__cause__ is None
    return str(told.value)


@pytest.mark.spark
def test_a_run_from_the_checkpoint_of_another_query_starts_none(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, out = usage(tmp_path / "in", rows=200, minutes=5, files=3), tmp_path / "out"

    def stop_soon(progress: tg.Progress) -> None:
        if progress.batch == 0:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tg.run(counts(files), to=out, spark=spark, files_per_batch=1, progress=stop_soon)
    monkeypatch.setattr(SparkFolder, "committer", lambda *given: pytest.fail("a query was started"))
    keyed = tg.stream(files, time="time").key_by("appId")
    other = keyed.window("2 minutes").aggregate(flows=tg.count())
    differs = "it holds «window 1 minute every 1 minute», the query wants «window 2 minutes every 2 minutes»"
    told = refusal(lambda: tg.run(other, to=out, spark=spark, progress=False))
    assert told == refused(out / "_checkpoint", differs)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_full_checkpoint_disk_is_named_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    files, out, disk = usage(tmp_path / "in", rows=200_000, minutes=20, files=4), tmp_path / "out", tmp_path / "disk"
    disk.mkdir()
    alone = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip(reason="no mounts for users on this machine")
    command = [*alone, sys.executable, "-m", "tests.kit.full_disk_run", files, str(out), str(disk)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"a disk is full, so that Spark could not write: {disk}/checkpoint has ")
    law = answer(full_disk_run.query(files)).rows
    assert difference(read_results(out, "parquet", law.schema), law) is None
