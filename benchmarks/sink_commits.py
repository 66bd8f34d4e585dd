"""When each micro-batch of a query was committed to its parquet sink, and which rows it wrote.

A reader of such a sink takes the files that its log lists, so a row is visible from the moment at which the batch that wrote
it is in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOG = "_spark_metadata"


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch in the log of a sink: when it got there, and the files it wrote."""

    batch: int
    at_us: int
    files: tuple[Path, ...]


def commit_path(sink: Path, batch: int) -> Path | None:
    """The entry of a batch in the log of a sink; None if there is none yet."""
    places = (sink / LOG / str(batch), sink / LOG / f"{batch}.compact")
    return next((place for place in places if place.exists()), None)


def commits(sink: Path) -> Iterator[Commit]:
    """All batches in the log, in order. Every tenth entry also lists what those before it do."""
    known: set[str] = set()
    batch = 0
    while (entry := commit_path(sink, batch)) is not None:
        listed = [json.loads(line)["path"] for line in entry.read_text(encoding="utf-8").splitlines()[1:]]
        files = tuple(Path(unquote(urlsplit(path).path)) for path in listed if path not in known)
        known.update(listed)
        yield Commit(batch, entry.stat().st_mtime_ns // 1_000, files)
        batch += 1
