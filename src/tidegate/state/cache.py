"""Encoded chunks in local files, so that a worker that did not write a chunk need not fetch it from the state store.

A chunk never changes, so a file needs no lock and no owner: it is the complete chunk, or it is absent, and a reader
compares it with the directory. Attempts that failed leave files behind that are never read; they go when the folder grows
past its limit, oldest first. The folder is private, and goes with the last process that holds it (`own_folder`).
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import EnvironmentFault
from tidegate.state.own_folder import hold, own_folder, sweep

LOG = logging.getLogger(__name__)
LIMIT_BYTES = 2 * 1024**3
SWEEPS_PER_LIMIT = 16
MOST_HELD = 16
PREFIX = "chunks-"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _HeldFolder:
    """A folder that this process holds, and how many bytes it has put there since it was last swept."""

    descriptor: int
    unswept_bytes: int = 0


_HELD: dict[Path, _HeldFolder | None] = {}
"""Spark opens a cell's operator anew for every batch: what lasts longer belongs to the process. None: switched off."""


@dataclass(frozen=True, slots=True)
class ChunkCache:
    """A folder of chunk files. Losing any of it costs time, never correctness; a full disk turns it off.

    A ``folder`` without a leading slash lies in this user's own folder, on each machine that uses it.
    """

    folder: Path
    limit_bytes: int = LIMIT_BYTES

    def put(self, name: str, data: bytes) -> None:
        """Keep a chunk; another process sees all of it or nothing."""
        with contextlib.suppress(OSError):
            try:
                self._put(name, data)
            except FileNotFoundError:
                _let_go(self.folder)  # another process removed the folder with its last file
                self._put(name, data)

    def get(self, name: str) -> bytes | None:
        """A chunk's bytes, as they are found, or None."""
        with contextlib.suppress(OSError):
            if (held := self._held()) is not None:
                with os.fdopen(os.open(name, _OLD_FILE, dir_fd=held.descriptor), "rb") as file:
                    return file.read()
        return None

    def drop(self, name: str) -> None:
        """Forget a chunk. With its last file the folder goes."""
        with contextlib.suppress(OSError):
            held = self._held()
            if held is not None:
                os.unlink(name, dir_fd=held.descriptor)
                self._place().rmdir()
                _let_go(self.folder)

    def _put(self, name: str, data: bytes) -> None:
        held = self._held()
        if held is not None:
            _write(held.descriptor, name, data)
            held.unswept_bytes += len(data)
            if held.unswept_bytes * SWEEPS_PER_LIMIT > self.limit_bytes:
                self._sweep(held)

    def file(self, name: str) -> Path:
        """Where a chunk is kept on this machine."""
        return self._place() / name

    def _place(self) -> Path:
        return self.folder if self.folder.is_absolute() else own_folder() / self.folder

    def _held(self) -> _HeldFolder | None:
        held = _HELD.pop(self.folder) if self.folder in _HELD else self._open()
        _HELD[self.folder] = held
        while len(_HELD) > MOST_HELD:
            _let_go(next(iter(_HELD)))
        return held

    def _open(self) -> _HeldFolder | None:
        try:
            place = self._place()
            if not self.folder.is_absolute():
                sweep(place.parent)
            held = _HeldFolder(hold(place))
        except (OSError, EnvironmentFault) as error:
            LOG.warning("chunks are not cached in local files, and are read from the state store: %s", error)
            return None
        self._sweep(held)
        return held

    def _sweep(self, held: _HeldFolder) -> None:
        held.unswept_bytes = 0
        found = []
        for name in os.listdir(held.descriptor):  # noqa: PTH208 - Path knows no descriptors
            with contextlib.suppress(FileNotFoundError):
                known = os.stat(name, dir_fd=held.descriptor, follow_symlinks=False)
                found.append((known.st_mtime_ns, known.st_size, name))
        excess = sum(size for _, size, _ in found) - self.limit_bytes
        for _, size, name in sorted(found):
            if excess <= 0:
                return
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=held.descriptor)
            excess -= size


def cache_of(run: str, step: int) -> ChunkCache:
    """Where the chunks of a run's step are kept, by the step's number, on each machine that has its cells."""
    return ChunkCache(Path(f"{PREFIX}{run}-{step}"))


def _let_go(folder: Path) -> None:
    held = _HELD.pop(folder)
    if held is not None:
        os.close(held.descriptor)


def _write(folder: int, name: str, data: bytes) -> None:
    draft = f".{name}.{os.getpid()}"
    try:
        with os.fdopen(os.open(draft, _NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
