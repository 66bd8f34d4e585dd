"""Decoded chunks in local files, so that a worker that did not write a chunk can map it instead of fetching it.

A chunk never changes and its id is random, so a file needs no lock and no owner: it is either the chunk, whole, or it is
absent and the chunk is read from the state store. Attempts that failed leave files behind that nobody asks for; they go
when the folder grows past its limit, oldest first.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

LIMIT_BYTES = 2 * 1024**3
SWEEP_EVERY = 512


def default_folder(query: str) -> Path:
    """Where the chunks of one query are kept on this machine."""
    return Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}" / query


@dataclass(slots=True)
class ChunkCache:
    """A folder of chunk files. Losing any of it costs time, never correctness; a full disk turns it off."""

    folder: Path
    limit_bytes: int = LIMIT_BYTES
    _puts: int = 0

    def put(self, chunk_id: int, data: bytes) -> None:
        """Keep a chunk; another process sees all of it or nothing."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = self.folder / f".{chunk_id:x}.{os.getpid()}"
            draft.write_bytes(data)
            draft.rename(self._file(chunk_id))
            self._puts += 1
            if self._puts % SWEEP_EVERY == 0:
                self._sweep()

    def get(self, chunk_id: int) -> pa.Buffer | None:
        """A chunk's bytes, mapped, or None."""
        try:
            return pa.memory_map(str(self._file(chunk_id))).read_buffer()
        except OSError:
            return None

    def drop(self, chunk_id: int) -> None:
        """Forget a chunk; mapped readers keep theirs. With its last file the folder goes."""
        with contextlib.suppress(OSError):
            self._file(chunk_id).unlink()
            self.folder.rmdir()

    def _file(self, chunk_id: int) -> Path:
        return self.folder / f"{chunk_id:x}"

    def _sweep(self) -> None:
        found = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(self.folder))
        excess = sum(size for _, size, _ in found) - self.limit_bytes
        for _, size, path in found:
            if excess <= 0:
                return
            with contextlib.suppress(OSError):
                Path(path).unlink()
            excess -= size
