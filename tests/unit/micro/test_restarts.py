"""A run that is interrupted at any moment, and again, gives every result once."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import tidegate as tg
from tests.kit import micro_graphs as graphs
from tests.kit import micro_run
from tidegate import micro
from tidegate.micro import runner

ROOT = Path(__file__).parents[3]


class Crashed(BaseException):
    """The process ends here."""


class Countdown:
    """Crashes at the n-th thing that is done to the disk or read from a source."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise Crashed
            return function(*args, **options)

        return counted


ROWS = graphs.generated(60, 5, 8)


def attempt(folder: Path, crash_at: int, patch: pytest.MonkeyPatch) -> bool:
    """Run with a snapshot after every batch of ten rows; whether it came to the end."""
    countdown = Countdown(crash_at)

    def reading(split: list[micro.Row], skip: int) -> Iterator[list[micro.Row]]:
        for first in range(skip, len(split), 10):
            yield countdown(lambda at: split[at : at + 10])(first)

    source = micro.source("rows", [ROWS[0::2], ROWS[1::2]], reading)
    with patch.context() as patched:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
            patched.setattr(owner, name, countdown(getattr(owner, name)))
        try:
            micro.run(graphs.self_join(source, 9, 3), to=folder, snapshot_seconds=0.0)
        except Crashed:
            return False
    return True


@pytest.mark.parametrize("first", range(1, 70, 3))
def test_crashes_at_every_step_of_reading_and_committing(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(first)
    crashes = [first, dice.randrange(1, 40), dice.randrange(1, 20)]
    for crash_at in crashes:
        if attempt(tmp_path, crash_at, monkeypatch):
            break
    else:
        assert attempt(tmp_path, 0, monkeypatch)
    assert sorted(micro.results(tmp_path)) == graphs.expected_pairs(ROWS, 9, 3)
    committed = (tmp_path / "committed.json").read_text()
    assert attempt(tmp_path, 0, monkeypatch), "a run that has finished is left as it is"
    assert (tmp_path / "committed.json").read_text() == committed


def start(folder: Path, processes: int, pause: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.kit.micro_run", str(folder), str(processes), str(pause)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    return child


def until_committed(folder: Path, child: subprocess.Popen[str]) -> None:
    """Wait for a further snapshot, so that a kill finds something to go on from."""
    file = folder / "committed.json"
    before = file.stat().st_mtime_ns if file.exists() else 0
    while child.poll() is None and (not file.exists() or file.stat().st_mtime_ns == before):
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("processes", "victim"),
    [
        (1, "run"),
        (2, "worker"),
        pytest.param(2, "run", marks=pytest.mark.long),
        pytest.param(3, "worker", marks=pytest.mark.long),
    ],
)
def test_killed_twice(processes: int, victim: str, tmp_path: Path) -> None:
    """The process that was started, or one of those that it started; each time another number of processes goes on."""
    dice = random.Random(processes)
    committed = []
    for turn in range(2):
        child = start(tmp_path, processes + (turn if processes > 1 else 0), 0.04)
        until_committed(tmp_path, child)
        workers = psutil.Process(child.pid).children()
        time.sleep(dice.random() * 0.2)
        target = (
            psutil.Process(child.pid)
            if victim == "run"
            else dice.choice([each for each in workers if "resource_tracker" not in " ".join(each.cmdline())])
        )
        target.kill()
        _, said = child.communicate(timeout=60)
        assert child.returncode not in (0, None)
        if victim == "worker":
            assert "EnvironmentFault" in said and f"Run it again with the folder '{tmp_path}'" in said
        psutil.wait_procs(workers, timeout=20)
        assert not any(worker.is_running() for worker in workers), "processes end with the one that started them"
        committed.append(len(list(micro.results(tmp_path))))
    assert committed[0] <= committed[1] < len(micro_run.expected())
    child = start(tmp_path, processes, 0.0)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said
    assert sorted(micro.results(tmp_path)) == micro_run.expected()


def test_another_graph_and_a_second_run_are_refused(tmp_path: Path) -> None:
    source = micro.source("rows", [ROWS])

    def second(rows: Any) -> None:
        micro.run(graphs.sums(source, 5, 5), to=tmp_path)

    slow = micro.aggregate(
        "within", source, function=lambda key, at, rows: second(rows) or [], size_us=1, distributes=True
    )
    with pytest.raises(tg.DataError, match=r"CheckpointError: folder .*: another run is at work in it"):
        micro.run(slow, to=tmp_path)
    assert micro.run(graphs.sums(source, 5, 5), to=tmp_path) == len(graphs.expected_sums(ROWS, 5, 5))
    with pytest.raises(tg.CheckpointError, match="its snapshots are of another graph"):
        micro.run(graphs.sums(source, 10, 5), to=tmp_path)


def test_results_of_a_folder_without_any(tmp_path: Path) -> None:
    assert list(micro.results(tmp_path)) == []


def test_a_process_that_dies_before_it_is_told_of_a_snapshot_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock, which is asked before every snapshot, kills the processes when there is one."""

    def monotonic() -> float:
        if (tmp_path / "committed.json").exists():
            for process in multiprocessing.active_children():
                process.kill()
                process.join()
        return time.monotonic()

    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=monotonic))
    graph = micro_run.graph(0.02)
    with pytest.raises(tg.EnvironmentFault, match=r"process 0 of the run ended with exit code -9\. Run it again"):
        micro.run(graph, to=tmp_path, processes=2, snapshot_seconds=0.0)
