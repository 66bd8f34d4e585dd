"""The folder in which a run keeps what it needs to go on after a stop.

::

    tidegate.json   what the run is, and whether it is finished
    lock            held while a run uses the checkpoint
    spark/          Spark's own checkpoint: offsets and commits
    state/          the state of stateful steps, by query
    control/        the control stream
    inputs/         the files that Spark reads, one folder a source
    continued/      what the run began with, if it goes on where another one was stopped
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tidegate.errors import CheckpointError
from tidegate.operators.fingerprint import check_fingerprint
from tidegate.state.run_lock import lock_folder
from tidegate.state.storage import DRAFT

VERSION = 3
# Hadoop takes these for patterns in the paths it reads from.
PATTERN_CHARACTERS = frozenset("*?[]{}\\")
# How long a run waits for the Java process of one that was killed to let go.
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What a checkpoint says about its run.

    ``fingerprint`` is that of the stateful steps, ``cells`` the least and the most that each of them has, ``sink`` where the
    results go, and ``sources`` how many streams the query reads. ``letters`` are the files for malformed records, each with
    its length before the first batch. ``results`` are the folders of results, and ``continues`` is the checkpoint of the run
    that this one goes on from.
    """

    fingerprint: str
    cells: tuple[int, int]
    sink: str
    sources: int
    letters: dict[str, int] = field(default_factory=dict)
    finished: bool = False
    results: list[str] = field(default_factory=list)
    continues: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder."""

    folder: Path

    @property
    def spark(self) -> Path:
        """Spark's own checkpoint."""
        return self.folder / "spark"

    @property
    def state(self) -> Path:
        """Where the state of stateful steps is."""
        return self.folder / "state"

    @property
    def control(self) -> Path:
        """The control stream's folder."""
        return self.folder / "control"

    @property
    def continued(self) -> Path:
        """What the run began with."""
        return self.folder / "continued"

    def inputs(self, number: int) -> Path:
        """The folder that Spark reads one source from."""
        return self.folder / "inputs" / str(number)

    def read(self) -> CheckpointInfo | None:
        """Reads what the checkpoint says, None if it is new."""
        try:
            held = json.loads((self.folder / "tidegate.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            # The lock and the inputs are there before a run says what it is, and all that it continues.
            own = ("lock", "inputs", *(draft.name for draft in self._drafts()))
            others = sorted(path.name for path in self.folder.glob("*") if path.name not in own)
            if others and not self.continued.exists():
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
        return CheckpointInfo(**{**held, "cells": tuple(held["cells"])})

    def write(self, info: CheckpointInfo) -> None:
        """Replaces what the checkpoint says, whole or not at all."""
        for left in self._drafts():
            left.unlink(missing_ok=True)
        draft = self.folder / f"{DRAFT}{uuid.uuid4().hex}"
        draft.write_text(json.dumps({"version": VERSION, **asdict(info)}, indent=2) + "\n", encoding="utf-8")
        draft.rename(self.folder / "tidegate.json")

    def _drafts(self) -> Iterator[Path]:
        """What runs that died left of what they were about to say of themselves."""
        return self.folder.glob(f"{DRAFT}*")

    def accept(self, found: CheckpointInfo, wanted: CheckpointInfo) -> None:
        """Refuses to go on with a query or a sink that are not the checkpoint's own, or when it is finished."""
        if found.finished:
            raise CheckpointError(
                f"{self.folder} is finished: all of its input was read and all results are out ({found.sink}). To run the "
                "query again, choose another folder, or delete this one together with its results"
            )
        check_fingerprint(found.fingerprint, wanted.fingerprint, str(self.folder))
        if found.sources != wanted.sources:
            raise CheckpointError(
                f"{self.folder} was written by a query that reads {found.sources} streams, and this one reads "
                f"{wanted.sources}, so how far each was read is not known. Start from a new checkpoint, or restore the query"
            )
        if found.sink != wanted.sink:
            raise CheckpointError(
                f"{self.folder} belongs to a run that writes {found.sink}, not {wanted.sink}: what was written before would "
                "be missing there. Go on with the same sink, or start from a new checkpoint"
            )

    def forget(self) -> None:
        """Begins anew; only before anything was committed."""
        (self.folder / "tidegate.json").unlink(missing_ok=True)
        for part in ("spark", "state", "control", "inputs", "continued"):
            shutil.rmtree(self.folder / part, ignore_errors=True)

    def has_commits(self) -> bool:
        """Whether a batch was ever completed."""
        return any(entry.name.isdigit() for entry in (self.spark / "commits").glob("*"))

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Keeps other runs away; gives the descriptor of the lock, for the Java process to hold as well.

        The system lets go of the lock when the last process that holds it ends, however it ends. So after the death of a
        run its successor waits for the Java process, which may still be busy with a batch.
        """
        odd = sorted(PATTERN_CHARACTERS & set(str(self.folder)))
        if odd:
            raise CheckpointError(
                f"the checkpoint's path {str(self.folder)!r} holds {' '.join(odd)}, which Spark takes for a pattern; "
                "choose another folder"
            )
        with lock_folder(self.folder, PATIENCE_SECONDS) as lock:
            yield lock
