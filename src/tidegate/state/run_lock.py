"""The lock of a checkpoint: one run at a time uses it, and the system lets go of it when the run's process ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tidegate.errors import CheckpointError


@contextmanager
def lock_folder(folder: Path, patience_seconds: float = 0.0) -> Iterator[int]:
    """Keep other runs away from a folder, which is created if need be; gives the descriptor of the lock.

    Where the process of a run that ended has left the lock to another of its own, that is waited for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+", encoding="utf-8") as file:
        _acquire(folder, file, patience_seconds)
        try:
            yield file.fileno()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def lock_for_reading(folder: Path, patience_seconds: float = 0.0) -> Iterator[None]:
    """Keep runs away from a folder that is only read; refused while one uses it. Nothing is written there."""
    try:
        file = (folder / "lock").open(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is no checkpoint of tidegate: it has no lock") from None
    with file:
        _wait_for(folder, file, patience_seconds, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _acquire(folder: Path, file: TextIO, patience_seconds: float) -> None:
    _wait_for(folder, file, patience_seconds, fcntl.LOCK_EX)
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()


def _wait_for(folder: Path, file: TextIO, patience_seconds: float, kind: int) -> None:
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            if _runs(owner) or time.monotonic() > deadline:
                raise CheckpointError(
                    f"{folder} is in use by another run (process {owner or 'unknown'}); wait until it ends, or "
                    "choose another checkpoint"
                ) from None
            time.sleep(0.1)
        else:
            return


def _runs(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (ValueError, ProcessLookupError):
        return False
    return True
