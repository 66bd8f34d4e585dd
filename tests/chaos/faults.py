"""What is done to a run on Spark, and when.

A fault says what it did, and nothing if there was nothing to do it to.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
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


def between_state_and_commit(target: Target) -> Moment:
    """When a cell has written the state of a batch, and the batch is not complete."""
    state, wanted = target.checkpoint / "state", target.random.randrange(1, 5)

    def written() -> int:
        return max((_number(path) for path in state.glob("*/*/*.changelog")), default=0)

    # What an earlier attempt left there is no sign of this one.
    before = written()

    def has_come() -> bool:
        # The state after batch N is version N + 1.
        return written() >= before + wanted and written() - 1 > _committed(target.checkpoint, "commits")

    return Moment("between the commits of state and batch", has_come)


def between_sink_and_commit(target: Target) -> Moment:
    """When the results of a batch are in their folder, and the batch is not complete."""
    log, wanted = target.checkpoint.parent.parent / "out" / "_spark_metadata", target.random.randrange(1, 5)

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


def delete_caches(target: Target) -> str:
    found = list(_cached(target.temporary))
    for path in found:
        path.unlink(missing_ok=True)
    return f"deleted {len(found)} cached files" if found else ""


def alter_caches(target: Target) -> str:
    """Bits flipped, ends cut off, and the content of one file in another's place."""
    found = list(_cached(target.temporary))
    altered = 0
    for path in found:
        with suppress(OSError):
            data = bytearray(path.read_bytes())
            match target.random.randrange(3):
                case 0 if data:
                    data[target.random.randrange(len(data))] ^= 0xFF
                case 1:
                    del data[len(data) // 2 :]
                case _:
                    data = bytearray(target.random.choice(found).read_bytes())
            draft = path.with_name(f".altered-{path.name}")
            draft.write_bytes(data)
            shutil.copymode(path, draft)
            draft.rename(path)
            altered += 1
    return f"altered {altered} cached files" if altered else ""


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
    delete_caches,
    alter_caches,
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


def _cached(folder: Path) -> Iterator[Path]:
    """The files of chunk caches; they come and go while we look."""
    with suppress(FileNotFoundError):
        for path in folder.glob("tidegate-*/chunks-*/*"):
            if path.is_file() and path.name[0] != ".":
                yield path


def _committed(checkpoint: Path, log: str) -> int:
    return max((_number(path) for path in (checkpoint / log).glob("*")), default=-1)


def _number(path: Path) -> int:
    stem = path.name.split(".")[0].split("_")[0]
    return int(stem) if stem.isdigit() else -1
