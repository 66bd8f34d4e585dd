"""A disk of a few megabytes that can be filled without harm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

BLOCK = b"\0" * 65_536


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A file system in memory; ``folder`` is on the usual disk if this machine does not let us mount one."""

    folder: Path
    mounted: bool

    def fill(self) -> None:
        """Leave no byte."""
        with suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                file.write(BLOCK)
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0")

    def empty(self) -> None:
        """Give back what was filled."""
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A disk of its own at ``folder``, where we may mount one; nobody but root may."""
    folder.mkdir(parents=True)
    if os.geteuid() != 0 or not _mount(folder, megabytes):
        yield SmallDisk(folder, mounted=False)
        return
    try:
        yield SmallDisk(folder, mounted=True)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _mount(folder: Path, megabytes: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tidegate-chaos", str(folder)]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
