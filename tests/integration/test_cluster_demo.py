"""The cluster demo: a standalone Spark on this machine, what moved on it, and nothing left behind, however it ends."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tidegate.telemetry.read import decisions

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(420)]
ROOT = Path(__file__).parents[2]


def demo(folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "examples.cluster", "--to", str(folder)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def left_behind(folder: Path) -> list[str]:
    """The processes of a cluster: masters and workers have the demo's folder in their words, executors work inside it."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            inside = process.cwd().startswith(str(folder)) or f"{folder}/cluster" in words
            if inside and process.status() != psutil.STATUS_ZOMBIE:
                found.append(words[:200])
    return found


def test_executors_follow_the_load_and_nothing_is_left_behind(tmp_path: Path) -> None:
    running = demo(tmp_path)
    told, _ = running.communicate()
    assert running.returncode == 0, told
    assert "counted, each once" in told
    assert "has 2 workers" in told
    assert left_behind(tmp_path) == []
    changes = decisions(tmp_path / "run.ledger", changes_only=True).to_pylist()
    assert changes, told
    if shutil.which("chromium"):
        assert (tmp_path / "page.png").stat().st_size > 20_000
    else:
        assert "there is no Chromium" in told


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_stops_its_cluster(tmp_path: Path, sent: signal.Signals) -> None:
    running = demo(tmp_path)
    until = time.monotonic() + 90
    while not left_behind(tmp_path) or not list((tmp_path / "out").glob("*")):
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.2)
    running.send_signal(sent)
    told, _ = running.communicate(timeout=60)
    assert running.returncode == 130, told
    assert "the cluster was stopped" in told
    assert left_behind(tmp_path) == []
