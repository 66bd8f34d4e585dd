"""The folder in which a run keeps what it needs to go on after a stop, and what its state depends on.

::

    tidegate.json   what the run is, and whether it is finished
    lock            held while a run uses the checkpoint
    spark/          Spark's own checkpoint: offsets and commits
    state/          the state of stateful steps, by query
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
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

import pyarrow as pa

from tidegate.errors import CheckpointError, InternalError
from tidegate.query.aggregates import Monoid, Ranked
from tidegate.query.event_time import format_duration
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import (
    BagAggregate,
    Dedup,
    Join,
    KeyedApply,
    Running,
    SessionAggregate,
    Stateful,
    WindowAggregate,
)
from tidegate.query.schema import show_columns

VERSION = 3
GRID = "none, on a grid"
"""What a fingerprint says of the keys of a join without any."""
# Hadoop takes these for patterns in the paths it reads from.
PATTERN_CHARACTERS = frozenset("*?[]{}\\")
# How long a run waits for the Java process of one that was killed to let go.
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What a checkpoint says about its run.

    ``fingerprint`` is that of the stateful steps, ``cells`` the least and the most that each of them has, ``sink`` where the
    results go, and ``sources`` how many streams the query reads. ``letters`` are the files for malformed records, each with
    its length before the first batch.
    """

    fingerprint: str
    cells: tuple[int, int]
    sink: str
    sources: int
    letters: dict[str, int] = field(default_factory=dict)
    finished: bool = False


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

    def inputs(self, number: int) -> Path:
        """The folder that Spark reads one source from."""
        return self.folder / "inputs" / str(number)

    def read(self) -> CheckpointInfo | None:
        """Reads what the checkpoint says, None if it is new."""
        try:
            held = json.loads((self.folder / "tidegate.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            # The lock and the inputs are there before a run says what it is.
            others = sorted(path.name for path in self.folder.glob("*") if path.name not in ("lock", "inputs"))
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
        return CheckpointInfo(**{**held, "cells": tuple(held["cells"])})

    def write(self, info: CheckpointInfo) -> None:
        """Replaces what the checkpoint says, whole or not at all."""
        draft = self.folder / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps({"version": VERSION, **asdict(info)}, indent=2) + "\n", encoding="utf-8")
        draft.rename(self.folder / "tidegate.json")

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
        for part in ("spark", "state", "control", "inputs"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        (self.folder / "tidegate.json").unlink(missing_ok=True)

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
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (ValueError, ProcessLookupError):
        return False
    return True


def fingerprint(node: Stateful) -> str:
    """Describes the parts of a stateful step that its state depends on, in words that an error can show.

    Stateless steps may change between runs, and so may functions, as long as the state they declare is the same.
    """
    window = f"window {node.window}" if node.window is not None else "unbounded window"
    match node:
        case WindowAggregate() | SessionAggregate():
            if isinstance(node, SessionAggregate):
                window = f"sessions {node.session}"
            parts = [window, f"keys {node.keys} ({show_columns(node.key_schema)})"]
            for name, aggregate in node.aggregates:
                tuples = node.input.schema
                read = tuples if isinstance(aggregate, Ranked) else pa.schema(map(tuples.field, aggregate.columns()))
                state = f" in ({show_columns(aggregate.state)})" if isinstance(aggregate, Monoid) else ""
                parts.append(f"{name}={aggregate} of ({show_columns(read)}){state}")
        case Dedup():
            parts = [
                f"dedup by {node.keys[0]} within {format_duration(node.within_us)}",
                f"tuples ({show_columns(node.schema)})",
            ]
        case Running(form=form):
            parts = [
                f"running every {format_duration(node.period.every)}",
                *(
                    f"keys {keys} of ({show_columns(below.schema)})"
                    for keys, below in zip(node.keys, node.inputs, strict=True)
                ),
                f"key ({show_columns(node.key_schema)})",
                f"a state ({show_columns(form.state)})",
            ]
        case KeyedApply(form=form):
            states = form.states if isinstance(form, TupleForm) else (form.state,)
            kept = "per input" if isinstance(form, TupleForm) else "for all inputs"
            parts = [
                f"{window}, {'one that slides' if node.single else 'one for each place'}",
                *(
                    f"keys {keys} of ({show_columns(below.schema)})"
                    for keys, below in zip(node.keys, node.inputs, strict=True)
                ),
                f"key ({show_columns(node.key_schema)})",
                f"a state {kept}: {'; '.join(f'({show_columns(state)})' for state in states)}",
            ]
            if isinstance(form, TupleForm) and form.stores:
                parts.append(f"stores: {'; '.join(f'{name} {of}' for name, of in form.stores.items())}")
        case BagAggregate():
            # State is tuples here too.
            parts = [f"bags, {window}"]
            parts += [
                f"keys {keyed} of ({show_columns(below.schema)})"
                for keyed, below in zip(node.keys, node.inputs, strict=True)
            ]
        case Join():
            # State is tuples, and where they are depends on keys alone.
            extent = window if node.window is not None else f"within {node.within_us} µs"
            keys = ", ".join(f"{name} = {other}" for name, other in node.on) or GRID
            left, right = (show_columns(side.schema) for side in node.inputs)
            parts = [f"join {extent}", f"keys {keys}", f"left ({left})", f"right ({right})"]
        case _:
            raise InternalError(f"no fingerprint is known for {type(node).__name__}")
    return " | ".join(parts)


def check_fingerprint(found: str, wanted: str, where: str) -> None:
    """Refuses a checkpoint whose state was written by another query."""
    if found == wanted:
        return
    old, new = found.split(" | "), wanted.split(" | ")
    pairs = [(a, b) for a, b in zip(old, new, strict=False) if a != b]
    if len(old) != len(new):
        pairs.append((found, wanted))
    differences = [f"it holds «{a}», the query wants «{b}»" for a, b in pairs]
    raise CheckpointError(
        f"{where} was written by another query and cannot serve this one: {'; '.join(differences)}. "
        "Start from a new checkpoint, or restore the query"
    )
