"""Errors of a Spark query as tidegate's own: wrong input, failing functions of the user, full disks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tidegate import errors
from tidegate.errors import DataError, EnvironmentFault, TidegateError

_KINDS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, TidegateError)
}
_END = r"(?=\n\s*SQLSTATE: |\n=== |\n\s+at |\n\nThe above exception|\n\nDuring handling|\Z)"
_OURS = re.compile(rf"^tidegate\.errors\.(\w+): (.*?){_END}", re.MULTILINE | re.DOTALL)
_ANY = re.compile(rf"^([A-Za-z_][\w.]*): (.*?){_END}", re.MULTILINE | re.DOTALL)
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in ', re.MULTILINE)
# Frames of compiled modules, such as pyarrow's, have the relative paths of their sources.
_NOT_THE_USERS = re.compile(r"/pyspark[./]|/tidegate/|/site-packages/|/lib/python3|^<|\.p(yx|xi|xd)$")
_UNREADABLE = re.compile(
    r"MALFORMED_RECORD_IN_PARSING|FAILED_READ_FILE|CSV header does not conform|CANNOT_READ_FILE_FOOTER|is not a Parquet file"
)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_STAGED = re.compile(r"(?:file:)?(/[^\s'\"]*/inputs/\d+/[0-9a-f]{24}\.(?:parquet|json|csv))")


def translated(message: str) -> TidegateError | None:
    """Finds the error behind a failed query: one of tidegate's own, or bad input, or a failing function of the user's.

    None if the cause is Spark's own.
    """
    text = message.split("=== Streaming Query ===")[0]
    ours = [found for found in _OURS.finditer(text) if found[1] in _KINDS]
    if ours:
        return _KINDS[ours[-1][1]](ours[-1][2].strip())
    frames = [found for found in _FRAME.finditer(text) if not _NOT_THE_USERS.search(found[1])]
    raised = list(_ANY.finditer(text))
    if frames and raised:
        place = f"{frames[-1][1]}, line {frames[-1][2]}"
        return DataError(
            f"a function of the query failed on the data: {raised[-1][1]}: {raised[-1][2].strip()} ({place})"
        )
    if _UNREADABLE.search(text):
        return DataError(f"the input cannot be read: {_named(_first_lines(text))}")
    return None


@contextmanager
def full_disks_named(folders: Sequence[Path], log: Path | None = None) -> Iterator[None]:
    """Turns the errors of a full disk into one sentence; where only Spark's log has them, it is read."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        said = str(error)
        with suppress(OSError):
            said += log.read_text(encoding="utf-8", errors="replace") if log is not None else ""
        if not _NO_SPACE.search(said):
            raise
        room = {folder: shutil.disk_usage(_there(folder)).free for folder in folders}
        fullest = min(room, key=lambda folder: room[folder])
        raise EnvironmentFault(
            f"a disk is full, so that Spark could not write: {fullest} has {room[fullest] / 1e6:,.1f} MB left. Make room "
            "there, and run the same again: it goes on after the last batch that was committed"
        ) from error


def _there(folder: Path) -> Path:
    """A folder, or the nearest one above it that is there."""
    return next((each for each in (folder, *folder.parents) if each.is_dir()), Path.cwd())


def summary(message: str) -> str:
    """Summarises a Spark error on one line."""
    return _named(_first_lines(message.split("=== Streaming Query ===")[0]))


def _first_lines(text: str) -> str:
    """The message without stack traces and without the names of queries."""
    text = re.sub(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ", "", text)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "  File "))]
    kept = " ".join(" ".join(lines[:3]).split())
    return re.sub(r" ?SQLSTATE: \w+", "", kept)


def _named(text: str) -> str:
    """Replaces the paths of links in a message by those of the files they link to."""

    def original(found: re.Match[str]) -> str:
        path = Path(found[1])
        return str(path.readlink()) if path.is_symlink() else found[0]

    return _STAGED.sub(original, text)
