"""Folders of results whose parts belong to snapshots: a part gets its name when the snapshot that lists it is committed."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.errors import CheckpointError, EnvironmentFault
from tidegate.results import DRAFT, SUFFIXES, PartWriter, require_empty, visible_entries

FOLDERS = "folders"


@dataclass(frozen=True, slots=True)
class DraftedPart:
    """A part that is whole and has not got its name: the result it belongs to, the name of its draft, and its own."""

    output: int
    draft: str
    name: str


@dataclass(slots=True)
class DraftWriter(PartWriter):
    """Writes the parts of one result; those that are whole stay drafts."""

    next_part: int = 0
    drafts: list[tuple[str, str]] = field(default_factory=list)

    def close(self) -> None:
        """End the part that is being written."""
        if self._file is None or self._draft is None:
            return
        with self._whole_or_gone():
            self._file.close()
        self.drafts.append((self._draft.name, self.part_name(self.next_part)))
        self.next_part += 1
        self._file, self._draft, self._rows = None, None, 0

    def part_name(self, number: int) -> str:
        """The name of a part."""
        return f"part-{number:05}{SUFFIXES[self.format]}"


@dataclass(slots=True)
class ToDurableFolders:
    """A folder for each result; the output thread writes and drafts parts, the one that takes snapshots publishes them."""

    folder: Path
    writers: tuple[DraftWriter, ...]
    _drafted: list[DraftedPart] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __str__(self) -> str:
        names = [writer.folder.name for writer in self.writers if writer.folder != self.folder]
        return f"{self.writers[0].format} to {self.folder}" + (f": {', '.join(names)}" if names else "")

    def write(self, table: pa.Table, output: int = 0) -> None:
        self.writers[output].write(table)

    def close(self, complete: bool) -> None:
        for writer in self.writers:
            if not complete:
                writer.discard()
        if complete:
            self.draft()

    def draft(self) -> tuple[DraftedPart, ...]:
        """End the parts that are being written; all parts that no snapshot has published yet."""
        for output, writer in enumerate(self.writers):
            writer.close()
            with self._lock:
                self._drafted += [DraftedPart(output, *names) for names in writer.drafts]
            writer.drafts.clear()
        return self.drafted()

    def drafted(self) -> tuple[DraftedPart, ...]:
        """The parts that no snapshot has published yet."""
        with self._lock:
            return tuple(self._drafted)

    def sync(self, parts: Sequence[DraftedPart]) -> None:
        """Bring parts to the disk."""
        for part in parts:
            _sync(self._path(part.output, part.draft))

    def state(self, parts: Sequence[DraftedPart]) -> dict[str, Any]:
        """What a snapshot that commits these parts has to remember besides them: where they are."""
        return {FOLDERS: [str(writer.folder) for writer in self.writers]}

    def publish(self, number: int, parts: Sequence[DraftedPart]) -> None:
        """Give parts their names; the snapshot of this number, which lists them, is committed."""
        for part in parts:
            self._path(part.output, part.draft).rename(self._path(part.output, part.name))
        for output in {part.output for part in parts}:
            _sync(self.writers[output].folder)
        with self._lock:
            self._drafted = [each for each in self._drafted if each not in parts]

    def recover(
        self, number: int, parts: Sequence[DraftedPart], next_parts: Sequence[int], state: Mapping[str, Any]
    ) -> None:
        """Go on behind a snapshot: give its parts the names they lack, and remove the drafts of no snapshot."""
        left = []
        for part in parts:
            if self._path(part.output, part.draft).is_file():
                left.append(part)
            elif not (path := self._path(part.output, part.name)).is_file():
                raise CheckpointError(
                    f"{path} is gone: it holds results up to where the run goes on. Restore it, or start from a new "
                    "checkpoint, with an empty folder for results"
                )
        self.publish(number, left)
        for writer, following in zip(self.writers, next_parts, strict=True):
            writer.next_part = following
            ours = {writer.part_name(each) for each in range(following)}
            if others := [name for name in visible_entries(writer.folder) if name not in ours]:
                raise CheckpointError(
                    f"{writer.folder} holds {', '.join(others[:5])}, which the run that goes on has not written: the "
                    "results of two runs would be mixed. Remove what does not belong there"
                )
        self._remove_drafts()

    def begin(self) -> None:
        """Begin a run that has no snapshot yet; folders that hold results are refused."""
        for writer in self.writers:
            require_empty(writer.folder)
        self._remove_drafts()

    def _remove_drafts(self) -> None:
        for writer in self.writers:
            for draft in writer.folder.glob(f"{DRAFT}*"):
                draft.unlink()

    def _path(self, output: int, name: str) -> Path:
        return self.writers[output].folder / name


def publish_left(folders: Sequence[Path], parts: Sequence[DraftedPart]) -> None:
    """Give parts of a committed snapshot the names that they lack, as the run was killed before it did."""
    for part in parts:
        draft = folders[part.output] / part.draft
        if draft.is_file():
            draft.rename(folders[part.output] / part.name)
            _sync(folders[part.output])


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise EnvironmentFault(f"results cannot be written to {path}: {error}") from error
