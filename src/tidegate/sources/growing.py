"""Files that may still appear: a folder or glob that is looked at again and again, and how far it was read.

Files that one look finds are read in the order of their names, as bounded input is; those that a later look finds come after
them, whatever they are called. A file is complete when it appears under its name, so each is read once: writers write under
another name and rename. A file that changes after it was found is an error. One that was read may be removed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
import time as _time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from tidegate.errors import CheckpointError, DataError, QueryError, choices
from tidegate.query.nodes import Node, sources
from tidegate.sources import PlacedBatch, Rejects
from tidegate.sources.files import FORMATS, SUFFIXES, Files, files_of, paths_of
from tidegate.sources.positions import NOTHING, ReadPosition

LOOK_SECONDS, LOOK_SHARE = 0.02, 0.1
"""New files are looked for this often; where a folder is large, for at most this share of the time."""
_NAME_BYTES, _VERSION_BYTES = 8, 4


@dataclass(frozen=True, slots=True)
class GrowingFiles:
    """The origin of a stream without end: ``files`` are those that were there when the query was built."""

    files: Files

    @property
    def name(self) -> str:
        """What the stream is called: the folder."""
        root = Path(self.files.pattern).absolute()
        return (root if root.is_dir() else root.parent).name or "files"

    @property
    def schema(self) -> pa.Schema:
        return self.files.schema

    def arriving(
        self, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None, pause: Callable[[float], object]
    ) -> Iterator[PlacedBatch]:
        """The records of all files that are there and that appear; see `ArrivingOrigin`."""
        return FolderReader(self).arriving(schema, rows, rejects, time, pause)


def growing_files_of(pattern: str, schema: pa.Schema | None, *, lenient: bool = False) -> GrowingFiles:
    """A folder or glob to which files will come; with a ``schema`` there need be none yet, if the glob tells the format."""
    root = Path(pattern)
    if not root.is_dir() and not any(sign in pattern for sign in "*?["):
        raise QueryError(
            f"stream: follow=True takes new files as they appear, and {pattern!r} is one file; name a folder or a glob, "
            "as in 'in/*.parquet'"
        )
    if paths_of(pattern):
        return GrowingFiles(files_of(pattern, schema, lenient=lenient))
    kind = None if root.is_dir() else SUFFIXES.get(root.suffix)
    if schema is None or kind is None:
        raise QueryError(
            f"stream: no file matches {pattern!r} yet, so its format and columns are not known; declare them, as in "
            f"tg.stream('in/*.parquet', schema=..., follow=True), with one of {choices(SUFFIXES)}"
        )
    return GrowingFiles(files_of(pattern, schema, kind=kind))


def endless_stream(query: Node) -> str | None:
    """The name of a stream of a query that takes new files as they appear, if there is one."""
    return next((source.name for source in sources(query) if isinstance(source.origin, GrowingFiles)), None)


def interrupted_folder(stream: str) -> QueryError:
    """Why a run in process that only an interrupt ends does not write into a folder without a checkpoint."""
    return QueryError(
        f"stream '{stream}' is made with follow=True, so the run goes on until it is interrupted, and of results in a "
        "folder only whole parts stay then; name a checkpoint=..., by which the same call goes on, or use tg.start(...) and "
        "job.stop()"
    )


def bounded_but_endless(stream: str) -> QueryError:
    """Why a run over such a stream is not bounded."""
    return QueryError(
        f"bounded=True ends the run when all is read, and stream '{stream}' is made with follow=True, which has no end; "
        "leave one of the two out"
    )


def version_of(path: str) -> tuple[int, int]:
    """What shows that a file was changed: its size and when it was modified."""
    found = os.stat(path)  # noqa: PTH116 - called for each file of a folder, many times a second
    return found.st_size, found.st_mtime_ns


def changed_error(path: str) -> DataError:
    """The error about a file that is not what it was."""
    return DataError(
        f"{path} was changed after it was found, and a file is read once; write what is new into files of its own, under "
        "another name until they are complete (one that begins with '.', for example), and rename them then"
    )


@dataclass(slots=True, eq=False)
class FolderReader:
    """Reads the files of a folder for one run. `arriving` is used by one thread, `position` by any.

    ``known`` has a digest of the name and the version of each file that was found and is still there; the ``waiting`` ones
    are yet to be read, or are being read.
    """

    growing: GrowingFiles
    known: dict[bytes, bytes] = field(default_factory=dict)
    waiting: deque[str] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return self.growing.name

    @property
    def schema(self) -> pa.Schema:
        return self.growing.schema

    @property
    def pattern(self) -> str:
        """The folder or glob, from wherever the run was started."""
        return str(Path(self.growing.files.pattern).absolute())

    @staticmethod
    def at(growing: GrowingFiles, position: ReadPosition, stream: str) -> FolderReader:
        """A reader that goes on from a position; refused if it is none of a folder that grows, or a file is gone."""
        if position.files and not position.known:
            raise CheckpointError(
                f"stream '{stream}' was bounded when the checkpoint was written, and is made with follow=True now; go on "
                "without follow, or start from a new checkpoint"
            )
        for path in position.files:
            if not Path(path).is_file():
                raise CheckpointError(
                    f"stream '{stream}': {path} was being read, or was to be read next, and is gone; restore it, or start "
                    "from a new checkpoint"
                )
        return FolderReader(growing, _decoded(position.known), deque(position.files))

    def position(self, reached: ReadPosition) -> ReadPosition:
        """How far the folder was read, given how far its records have been delivered."""
        with self._lock:
            known, waiting = dict(self.known), tuple(self.waiting)
        begun = reached.file is not None and reached.file in waiting
        return replace(
            reached,
            files=waiting,
            known=_encoded(known),
            file=reached.file if begun else None,
            last=reached.last if begun else NOTHING,
        )

    def arriving(
        self, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None, pause: Callable[[float], object]
    ) -> Iterator[PlacedBatch]:
        """The records of the files in their order, until ``pause`` says that no more are wanted."""
        files = self.growing.files
        while True:
            began = _time.monotonic()
            self.look()
            took = _time.monotonic() - began
            while self.waiting:
                path = self.waiting[0]
                self._check(path)
                try:
                    yield from FORMATS[files.format].read(path, files, schema, rows, rejects, time)
                except OSError as error:
                    raise DataError(f"{path} cannot be read: {error}") from error
                self._check(path)
                with self._lock:
                    self.waiting.popleft()
            if pause(max(LOOK_SECONDS, took / LOOK_SHARE)):
                return

    def _check(self, path: str) -> None:
        """Refuse a file that is not what was found."""
        try:
            changed = self.known[_digest(path)] != _version(path)
        except FileNotFoundError as error:
            raise DataError(
                f"{path} is gone, and was not yet read to its end; restore it, and remove files only when they were read"
            ) from error
        if changed:
            raise changed_error(path)

    def look(self) -> None:
        """Find what is new; refuses files that were changed, and forgets those that were read and are gone."""
        there: set[bytes] = {_digest(path) for path in self.waiting}
        for path in paths_of(self.pattern):
            if SUFFIXES.get(Path(path).suffix) != self.growing.files.format:
                raise DataError(
                    f"{path}: all files of {self.growing.files.pattern!r} are {self.growing.files.format} files; move it"
                )
            name = _digest(path)
            try:
                version = _version(path)
            except FileNotFoundError:  # since the folder was listed
                continue
            there.add(name)
            if self.known.get(name, version) != version:
                raise changed_error(path)
            if name not in self.known:
                with self._lock:
                    self.known[name] = version
                    self.waiting.append(path)
        with self._lock:
            for gone in self.known.keys() - there:
                del self.known[gone]


def known_paths(growing: GrowingFiles, position: ReadPosition) -> tuple[str, ...]:
    """The files of a position that are still there; refused if one has changed."""
    known = _decoded(position.known)
    there = [path for path in paths_of(FolderReader(growing).pattern) if _digest(path) in known]
    for path in there:
        if known[_digest(path)] != _version(path):
            raise changed_error(path)
    return tuple(there)


def known_from(versions: Mapping[str, tuple[int, int]]) -> str:
    """What a position knows of files, by path, of which sizes and modification times were noted."""
    return _encoded({_digest(path): _version_digest(version) for path, version in versions.items()})


def _digest(path: str) -> bytes:
    return hashlib.blake2b(os.fsencode(path), digest_size=_NAME_BYTES).digest()


def _version(path: str) -> bytes:
    return _version_digest(version_of(path))


def _version_digest(version: tuple[int, int]) -> bytes:
    return hashlib.blake2b(repr(version).encode(), digest_size=_VERSION_BYTES).digest()


def _encoded(known: dict[bytes, bytes]) -> str:
    return base64.b64encode(b"".join(name + known[name] for name in sorted(known))).decode()


def _decoded(text: str) -> dict[bytes, bytes]:
    data, size = base64.b64decode(text), _NAME_BYTES + _VERSION_BYTES
    entries: Iterable[bytes] = (data[at : at + size] for at in range(0, len(data), size))
    return {entry[:_NAME_BYTES]: entry[_NAME_BYTES:] for entry in entries}
