"""What a checkpoint refuses, and who may use it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import CheckpointError
from tidegate.runtime.spark.checkpoint import Checkpoint, CheckpointInfo

INFO = CheckpointInfo("window 1 minute every 1 minute | keys k (k: string) | n=count", (2, 2), "parquet to /out", 1)


def test_a_checkpoint_remembers_what_it_is(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.read() is None
    checkpoint.write(INFO)
    assert checkpoint.read() == INFO
    checkpoint.accept(INFO, INFO)
    checkpoint.write(replace(INFO, finished=True))
    finished = checkpoint.read()
    assert finished is not None
    with pytest.raises(CheckpointError, match="is finished: all of its input was read"):
        checkpoint.accept(finished, INFO)


def test_another_query_or_sink_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="it holds «n=count», the query wants «n=sum"):
        checkpoint.accept(INFO, replace(INFO, fingerprint=INFO.fingerprint.replace("n=count", "n=sum(x)")))
    with pytest.raises(CheckpointError, match="belongs to a run that writes parquet to /out, not parquet to /other"):
        checkpoint.accept(INFO, replace(INFO, sink="parquet to /other"))
    with pytest.raises(CheckpointError, match="a query that reads 1 streams, and this one reads 2"):
        checkpoint.accept(INFO, replace(INFO, sources=2))


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointError, match=r"is no checkpoint of tidegate: it holds offsets"):
        Checkpoint(tmp_path).read()
    (tmp_path / "tidegate.json").write_text('{"version": 99}')
    with pytest.raises(CheckpointError, match="another version"):
        Checkpoint(tmp_path).read()


@pytest.mark.parametrize("failing", ["write_text", "rename"])
def test_a_run_that_dies_while_it_says_what_it_is_can_be_started_again(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, write = Checkpoint(tmp_path), Path.write_text

    def fail(path: Path, *given: Any, **named: Any) -> None:
        if failing == "write_text":
            write(path, "")  # the file is there, and the disk is full
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, failing, fail)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.write(INFO)
    assert list(tmp_path.iterdir()), "a draft is left"
    assert checkpoint.read() is None
    checkpoint.write(INFO)
    assert checkpoint.read() == INFO
    assert [path.name for path in tmp_path.iterdir()] == ["tidegate.json"]


def test_a_path_that_spark_takes_for_a_pattern_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(CheckpointError, match=r"holds \[ \], which Spark takes for a pattern"),
        Checkpoint(tmp_path / "run[1]").locked(),
    ):
        pass
    assert not (tmp_path / "run[1]").exists()


def test_one_run_at_a_time(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    with (
        checkpoint.locked(),
        pytest.raises(CheckpointError, match=rf"in use by another run \(process {os.getpid()}\)"),
        checkpoint.locked(),
    ):
        pass
    with checkpoint.locked():
        pass


def test_the_successor_of_a_dead_run_waits_for_what_it_left_behind(tmp_path: Path) -> None:
    """A child that inherits the lock stands for Spark's Java process, which outlives a killed driver by a moment."""
    code = (
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        "from tidegate.runtime.spark.checkpoint import Checkpoint\n"
        "with Checkpoint(Path(sys.argv[1])).locked() as held:\n"
        "    subprocess.Popen(['sleep', '1'], pass_fds=(held,))\n"
        "    import os; os._exit(9)\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    with Checkpoint(tmp_path).locked():
        assert time.monotonic() - began > 0.9
