"""The folder of a run: snapshots and the results that were committed with them.

One file, replaced in one step, says which snapshot counts: the states of all processes, and every file of results up to it.
What it does not name is left of an attempt that was interrupted, and is removed by the next one. So a result is there once
the snapshot behind it is, and never twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tidegate.errors import CheckpointError
from tidegate.micro.graph import AggregateStage, Row, walk_stages
from tidegate.micro.pipeline import Saved

_COMMITTED, _LOCK = "committed.json", "lock"


@dataclass(frozen=True, slots=True)
class Committed:
    """What counts: the number of the last snapshot, its files, those of all results so far, and how many rows they hold."""

    graph: str
    number: int = 0
    states: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    rows: int = 0
    finished: bool = False


class ResultWriter:
    """Writes the results of one process between two snapshots into a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._file: IO[bytes] | None = None
        self._rows = 0

    def write(self, rows: list[Row]) -> None:
        if self._file is None:
            self._name = f"rows-{uuid.uuid4().hex}"
            self._file = (self._folder / self._name).open("wb")
        pickle.dump(rows, self._file, 5)
        self._rows += len(rows)

    def cut(self) -> tuple[str | None, int]:
        """The file written since the last cut, now on disk, and its number of rows."""
        written, rows, self._rows = None if self._file is None else self._name, self._rows, 0
        if self._file is not None:
            _to_disk(self._file)
        self.close()
        return written, rows

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class RunFolder:
    """The folder of a run, held by one process at a time."""

    def __init__(self, path: Path, graph: AggregateStage) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = (path / _LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise CheckpointError(
                f"folder '{path}': another run is at work in it; wait for it, or take another"
            ) from error
        try:
            self.committed = self._read(describe_graph(graph))
            self._sweep()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._lock.close()

    def restored(self) -> list[Saved]:
        """What the processes put into the snapshot that counts."""
        return [pickle.loads((self.path / name).read_bytes()) for name in self.committed.states]

    def commit(self, states: list[str], results: list[str], rows: int, finished: bool) -> None:
        """Make a snapshot count, with the results before it."""
        before = self.committed
        all_results = (*before.results, *results)
        after = Committed(before.graph, before.number + 1, tuple(states), all_results, before.rows + rows, finished)
        draft = self.path / f"{_COMMITTED}.draft"
        with draft.open("w") as file:
            json.dump(asdict(after), file)
            _to_disk(file)
        draft.replace(self.path / _COMMITTED)
        sync_folder(self.path)
        self.committed = after
        for name in before.states:
            (self.path / name).unlink()

    def _read(self, graph: str) -> Committed:
        file = self.path / _COMMITTED
        if not file.exists():
            return Committed(graph)
        found = _load(file)
        if found.graph != graph:
            raise CheckpointError(
                f"folder '{self.path}': its snapshots are of another graph; take another folder. It holds\n{found.graph}\n"
                f"and this graph is\n{graph}"
            )
        return found

    def _sweep(self) -> None:
        named = {*self.committed.states, *self.committed.results}
        for path in self.path.iterdir():
            if path.name.startswith(("rows-", "state-")) and path.name not in named:
                path.unlink()


def save_state(folder: Path, saved: Saved) -> str:
    """Write what a process saved; the name of the file."""
    name = f"state-{uuid.uuid4().hex}"
    with (folder / name).open("wb") as file:
        pickle.dump(saved, file, 5)
        _to_disk(file)
    sync_folder(folder)
    return name


def results(folder: str | Path) -> Iterator[Row]:
    """The results that are committed in a folder, those of each process in the order of their times."""
    file = Path(folder) / _COMMITTED
    for name in _load(file).results if file.exists() else ():
        with (Path(folder) / name).open("rb") as written:
            while True:
                try:
                    rows: list[Row] = pickle.load(written)
                except EOFError:
                    break
                yield from rows


def describe_graph(graph: AggregateStage) -> str:
    """A graph as text: what must be the same for a snapshot to fit."""
    lines = []
    for node in walk_stages(graph):
        if isinstance(node, AggregateStage):
            reads = ", ".join(each.name for each in node.inputs)
            lines.append(f"{node.name}: {node.window.size} µs every {node.window.every} µs of {reads}")
        else:
            lines.append(f"{node.name}: {len(node.splits)} splits, disorder {node.disorder_us} µs")
    return "\n".join(lines)


def _load(file: Path) -> Committed:
    values: dict[str, Any] = json.loads(file.read_text())
    return Committed(**{**values, "states": tuple(values["states"]), "results": tuple(values["results"])})


def _to_disk(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
