"""Folders for this user alone, below the temporary folder of a machine, and the removal of what ended processes left there.

::

    tidegate-<uid>/        0700, ours, no link; refused otherwise
        chunks-…/          the cache of a step's chunks, held by the workers that use it: each has a lock on the folder
        spark-…/           what a Java process of ours writes, held by it and by the Python process that started it

The system releases a lock when its process ends, however it ends. So a folder without a lock is of no use any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from tidegate.errors import EnvironmentFault

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def own_folder(name: str = "tidegate") -> Path:
    """The folder of this user on this machine, created if it is not there; refused if others could have altered it."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise EnvironmentFault(f"{folder} cannot be created: {error.strerror}; {_advice(folder)}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise EnvironmentFault(f"{folder} is not a folder; {_advice(folder)}")
    if found.st_uid != os.getuid():
        raise EnvironmentFault(
            f"{folder} belongs to user {found.st_uid}, who could read and alter what user {os.getuid()} keeps there; "
            f"{_advice(folder)}"
        )
    if found.st_mode & 0o022:
        raise EnvironmentFault(
            f"{folder} may be written by others (mode {stat.S_IMODE(found.st_mode):o}), so what is in it cannot be trusted; "
            f"{_advice(folder)}"
        )
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def hold(folder: Path) -> int:
    """Create a folder inside `own_folder` and lock it: the descriptor of the lock, for the caller to close."""
    while True:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        held = os.open(folder, _OPEN_FOLDER)
        fcntl.flock(held, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held), folder.lstat()):
                return held
        os.close(held)  # swept between the two


def sweep(folder: Path) -> None:
    """Remove what no process holds in `own_folder`."""
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                _remove_unheld(Path(entry.path))
            else:
                Path(entry.path).unlink()


def _remove_unheld(folder: Path) -> None:
    held = os.open(folder, _OPEN_FOLDER)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(held)


def _advice(folder: Path) -> str:
    return f"remove {folder}, or set TMPDIR to a folder of your own"
