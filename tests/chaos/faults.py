"""What is done to a run on Spark, and when.

A fault says what it did, and nothing if there was nothing to do it to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from tests.chaos.children import Child
from tests.chaos.small_disk import SmallDisk

BATCHES = 12


@dataclass(frozen=True, slots=True)
class Target:
    """A run and its places: its process, Spark's checkpoint, the folder for temporary files, the disk of the checkpoint."""

    child: Child
    checkpoint: Path
    temporary: Path
    disk: SmallDisk
    random: Random


@dataclass(frozen=True, slots=True)
class Moment:
    """When a fault strikes: ``has_come`` becomes true then, and is asked all the time."""

    name: str
    has_come: Callable[[], bool]


def some_time_after_the_start(target: Target) -> Moment:
    """While Java starts, while the first batch runs, or later."""
    due = time.monotonic() + target.random.uniform(0.5, 8.0)
    return Moment("some time after the start", lambda: time.monotonic() >= due)


def in_the_middle_of_a_batch(target: Target) -> Moment:
    """After a number of batches, and then at any moment of one."""
    batch, beyond = target.random.randrange(1, BATCHES // 2), target.random.uniform(0.0, 0.5)
    seen: list[float] = []

    def has_come() -> bool:
        if not seen and sum(line.startswith("batch") for line in target.child.lines) >= batch:
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() >= seen[0] + beyond

    return Moment(f"in the middle of the {batch + 1}th batch", has_come)


def between_state_and_commit(target: Target, batches: int = 4) -> Moment:
    """When a cell has written its directory of one of the next batches, and the batch is not complete."""
    # What an earlier attempt left there is no sign of this one.
    before, wanted = set(_directories(target)), target.random.randint(1, batches)

    def has_come() -> bool:
        new = {_number(path) for path in _directories(target) if path not in before}
        return len(new) >= wanted and max(new) > _committed(target.checkpoint, "commits")

    return Moment("between the state and the commit of a batch", has_come)


def between_sink_and_commit(target: Target, batches: int = 4) -> Moment:
    """When the results of one of the next batches are in their folder, and the batch is not complete."""
    log, wanted = target.checkpoint.parent.parent / "out" / "_spark_metadata", target.random.randint(1, batches)

    def written() -> int:
        return max((_number(path) for path in log.glob("*")), default=-1)

    before = written()

    def has_come() -> bool:
        return written() >= before + wanted and written() > _committed(target.checkpoint, "commits")

    return Moment("between the commits of results and batch", has_come)


def kill_everything(target: Target) -> str:
    """As when the machine loses its power."""
    target.child.kill()
    return "killed the driver with all of its processes"


def kill_driver(target: Target) -> str:
    """The Java process finds out by itself, and may complete its batch meanwhile."""
    return _kill(target.child.family()[:1], "the Python process of the driver")


def kill_java(target: Target) -> str:
    return _kill(_running(target, "SparkSubmit", "PythonGatewayServer"), "the Java process of the driver")


def kill_worker(target: Target) -> str:
    workers = _running(target, "pyspark.daemon", "pyspark/daemon", "pyspark.worker")
    return _kill(target.random.sample(workers, 1) if workers else [], "a Python worker")


def kill_all_workers(target: Target) -> str:
    return _kill(_running(target, "pyspark.daemon", "pyspark/daemon", "pyspark.worker"), "all Python workers")


def kill_executor(target: Target) -> str:
    executors = _running(target, "CoarseGrainedExecutorBackend")
    return _kill(target.random.sample(executors, 1) if executors else [], "an executor")


def litter_state(target: Target) -> str:
    """Leave in the state folder what attempts leave that die: drafts, and chunks that no directory lists."""
    folders = {path.parent for path in _directories(target)}
    for folder in folders:
        for place in (folder, folder.parent / "chunks"):
            (place / f".draft-1-{target.random.randrange(10**9)}").write_bytes(b"half a fi")
        (folder.parent / "chunks" / f"{target.random.randrange(9):010}-{'f' * 32}-0.0.-1").write_bytes(b"never listed")
    return f"littered {len(folders)} cells" if folders else ""


def fill_disk(target: Target) -> str:
    """The disk of checkpoint and results is full until the run has ended, or for some seconds."""
    if not target.disk.mounted:
        return ""
    target.disk.fill()
    return "filled the disk of checkpoint and results"


MOMENTS = (
    some_time_after_the_start,
    in_the_middle_of_a_batch,
    between_state_and_commit,
    between_sink_and_commit,
)
FAULTS = (
    kill_everything,
    kill_driver,
    kill_java,
    kill_worker,
    kill_all_workers,
    litter_state,
    fill_disk,
)


def _running(target: Target, *words: str) -> list[psutil.Process]:
    found = []
    for process in target.child.family():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            line = " ".join(process.cmdline())
            if any(word in line for word in words):
                found.append(process)
    return found


def _kill(processes: list[psutil.Process], what: str) -> str:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return f"killed {what}" if processes else ""


def _directories(target: Target) -> list[Path]:
    """The directories that cells have written."""
    with suppress(FileNotFoundError):  # a run that begins anew removes what there was
        return list((target.checkpoint.parent / "state").glob("*/step-*/cell-*/[0-9]*"))
    return []


def _committed(checkpoint: Path, log: str) -> int:
    return max((_number(path) for path in (checkpoint / log).glob("*")), default=-1)


def _number(path: Path) -> int:
    stem = path.name.partition(".")[0].partition("-")[0]
    return int(stem) if stem.isdigit() else -1
