"""The folder in which a run keeps what it needs to go on after a stop.

::

    tidegate.json   what the run is, and whether it is finished
    lock            held while a run uses the checkpoint
    spark/          Spark's own checkpoint: offsets, commits, state
    control/        the control stream
    inputs/         the files that Spark reads, one folder a source
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

from tidegate.errors import CheckpointError
from tidegate.runtime.spark.fingerprint import check

VERSION = 1
STATELESS = "no stateful step"
# Hadoop takes these for patterns in the paths it reads from.
PATTERN_CHARACTERS = frozenset("*?[]{}\\")
# How long a run waits for the Java process of one that was killed to let go.
PATIENCE_SECONDS = 30.0
# What is there before a run says what it is.
_EARLY = frozenset({"lock", "inputs"})


@dataclass(frozen=True, slots=True)
class Head:
    """What a checkpoint says about itself.

    ``fingerprint`` is that of the stateful step, ``cells`` the number of cells it was cut for, ``sink`` where the results
    go, and ``sources`` how many streams the query reads, 0 if that was not written down.
    """

    fingerprint: str
    cells: int
    sink: str
    finished: bool = False
    sources: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder."""

    folder: Path

    @property
    def spark(self) -> Path:
        """Spark's own checkpoint."""
        return self.folder / "spark"

    @property
    def control(self) -> Path:
        """The control stream's folder."""
        return self.folder / "control"

    def inputs(self, number: int) -> Path:
        """The folder that Spark reads one source from."""
        return self.folder / "inputs" / str(number)

    def check_path(self) -> None:
        """Refuse a path that Spark would take for a pattern."""
        odd = sorted(PATTERN_CHARACTERS & set(str(self.folder)))
        if odd:
            raise CheckpointError(
                f"the checkpoint's path {str(self.folder)!r} holds {' '.join(odd)}, which Spark takes for a pattern; "
                "choose another folder"
            )

    def read(self) -> Head | None:
        """What the checkpoint says, None if it is new."""
        try:
            held = json.loads((self.folder / "tidegate.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            others = sorted(path.name for path in self.folder.glob("*") if path.name not in _EARLY)
            if others:
                raise CheckpointError(
                    f"{self.folder} is no checkpoint of tidegate: it holds {', '.join(others[:5])} and no tidegate.json; "
                    "choose an empty or new folder"
                ) from None
            return None
        if held.pop("version") != VERSION:
            raise CheckpointError(
                f"{self.folder} was written by another version of tidegate; run it with that version, or start from a "
                "new checkpoint"
            )
        return Head(**held)

    def write(self, head: Head) -> None:
        """Replace what the checkpoint says, whole or not at all."""
        draft = self.folder / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps({"version": VERSION, **asdict(head)}, indent=2) + "\n", encoding="utf-8")
        draft.rename(self.folder / "tidegate.json")

    def finish(self) -> None:
        """Mark that all input was read and every result is out."""
        head = self.read()
        if head is not None:
            self.write(replace(head, finished=True))

    def accept(self, head: Head, fingerprint: str, sink: str, sources: int) -> None:
        """Refuse to go on from this checkpoint with a query or a sink that are not its own, or when it is finished."""
        if head.finished:
            raise CheckpointError(
                f"{self.folder} is finished: all of its input was read and all results are out ({head.sink}). To run the "
                "query again, choose another folder, or delete this one together with its results"
            )
        check(head.fingerprint, fingerprint, str(self.folder))
        if head.sources not in (0, sources):
            raise CheckpointError(
                f"{self.folder} was written by a query that reads {head.sources} streams, and this one reads {sources}, so "
                "how far each was read is not known. Start from a new checkpoint, or restore the query"
            )
        if head.sink != sink:
            raise CheckpointError(
                f"{self.folder} belongs to a run that writes {head.sink}, not {sink}: what was written before would be "
                "missing there. Go on with the same sink, or start from a new checkpoint"
            )

    def forget(self) -> None:
        """Begin anew; only before anything was committed."""
        for part in ("spark", "control", "inputs"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        (self.folder / "tidegate.json").unlink(missing_ok=True)

    def has_commits(self) -> bool:
        """Whether a batch was ever completed."""
        return any(entry.name.isdigit() for entry in (self.spark / "commits").glob("*"))

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Keep other runs away; gives the descriptor of the lock, for the Java process to hold as well.

        The system lets go of the lock when the last process that holds it ends, however it ends. So after the death of a
        run its successor waits for the Java process, which may still be busy with a batch.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+", encoding="utf-8") as file:
            self._acquire(file)
            try:
                yield file.fileno()
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _acquire(self, file: TextIO) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                owner = file.read().strip()
                if _runs(owner) or time.monotonic() > deadline:
                    raise CheckpointError(
                        f"{self.folder} is in use by another run (process {owner or 'unknown'}); wait until it ends, or "
                        "choose another checkpoint"
                    ) from None
                time.sleep(0.1)
            else:
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
                return


def _runs(pid: str) -> bool:
    with suppress(ValueError, ProcessLookupError):
        try:
            os.kill(int(pid), 0)
        except PermissionError:
            return True
        return True
    return False
