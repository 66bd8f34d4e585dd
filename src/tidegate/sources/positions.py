"""How far a source was read, and how it is read on from there.

Records have places that do not change: the row of a parquet file or a table, the line of a text file, the number of a row
among the items of a list, the offset in a partition of Kafka. A position is the place of the last record that was taken, in
each partition of a topic; reading on leaves out all records up to it. Files are read in the order in which they were known
before, those that are new after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.errors import CheckpointError
from tidegate.sources import PlacedBatch, RowPlace
from tidegate.sources.files import Files
from tidegate.sources.in_memory import Heartbeat
from tidegate.sources.kafka import PartitionEnd, PartitionPosition, TopicOrigin, moved
from tidegate.sources.kafka_records import RecordPlace
from tidegate.watermark import START

NOTHING = -1
"""Less than the number of any record."""


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The number of the ``last`` record that was taken, in ``file`` if there are files, of which ``files`` are all in order.

    ``size`` is that of the file in bytes. ``done`` are files that another run has read, so that they are not read at all.
    ``partitions`` are those of a topic. Of a folder that grows, ``files`` are those
    that are yet to be read to their end, and ``known`` has a digest of each that was found and is still there. ``newest``
    and ``heartbeat`` are how far event time had come, ``ended`` says that nothing more is read.
    """

    newest: int
    heartbeat: int
    last: int = NOTHING
    file: str | None = None
    size: int = 0
    files: tuple[str, ...] = ()
    known: str = ""
    ended: bool = False
    partitions: tuple[PartitionPosition, ...] = ()
    done: tuple[str, ...] = ()

    def after(self, place: RowPlace, row: int, newest: int = START) -> ReadPosition:
        """The position behind a row of a batch; ``newest`` is the latest event time that was taken with it."""
        newest_of_all = max(self.newest, newest)
        if isinstance(place, RecordPlace):
            partitions = moved(self.partitions, str(place.file), place.number(row), int(place.stamps[row]), newest)
            return replace(self, partitions=partitions, newest=newest_of_all)
        return replace(self, last=place.number(row), file=place.file, newest=newest_of_all)

    def behind(self, end: PartitionEnd) -> ReadPosition:
        """The position when a partition was read to its end."""
        ended = (
            replace(each, next=each.end) if each.name == end.name and each.end is not None else each
            for each in self.partitions
        )
        return replace(self, partitions=tuple(ended))

    def measured(self) -> ReadPosition:
        """The position, with the size of the file; of one that is gone there is no size, and no run can go on with it."""
        try:
            return self if self.file is None else replace(self, size=Path(self.file).stat().st_size)
        except OSError:
            return replace(self, size=NOTHING)


def first_position(origin: Any) -> ReadPosition:
    """Where a source is before anything was taken from it."""
    match origin:
        case Files():
            return ReadPosition(START, START, files=origin.paths)
        case TopicOrigin():
            return ReadPosition(START, START, partitions=origin.partitions)
        case _:
            return ReadPosition(START, START)


def position_from(fields: dict[str, Any]) -> ReadPosition:
    """The position that `dataclasses.asdict` took apart."""
    partitions = tuple(PartitionPosition(**each) for each in fields.get("partitions", ()))
    files, done = tuple(fields["files"]), tuple(fields.get("done", ()))
    return ReadPosition(**{**fields, "files": files, "done": done, "partitions": partitions})


def absolute_paths(files: Files) -> Files:
    """The files by paths that hold from wherever a run is started."""
    return replace(files, paths=tuple(str(Path(path).absolute()) for path in files.paths))


def files_from(files: Files, position: ReadPosition, stream: str) -> Files:
    """The files in the order of a position, beginning with the one that was read last; refused if that is not as it was."""
    if position.known:
        raise CheckpointError(
            f"stream '{stream}' took files as they appeared when the checkpoint was written, and is made without follow "
            "now; go on with follow=True, or start from a new checkpoint"
        )
    known = position.files
    if position.file is not None:
        known = known[known.index(position.file) :]
        for path in known:
            if not Path(path).is_file():
                raise CheckpointError(
                    f"stream '{stream}': {path} was being read, or was to be read next, and is gone; restore it, or start "
                    "from a new checkpoint"
                )
        size = Path(position.file).stat().st_size
        if size != position.size:
            raise CheckpointError(
                f"stream '{stream}': {position.file} has {size:,} bytes and had {position.size:,} when it was read, so "
                "which of its records were taken is not known; restore it and write what is new into files of its own, or "
                "start from a new checkpoint"
            )
    before = {*position.files, *position.done}
    return replace(files, paths=(*known, *(path for path in files.paths if path not in before)))


def records_after(
    arriving: Iterable[PlacedBatch | Heartbeat], position: ReadPosition, stream: str
) -> Iterator[PlacedBatch | Heartbeat]:
    """Batches without the records up to a position, and heartbeats; refused if there are fewer records than were taken."""
    reached, found = position.last, NOTHING
    for each in arriving:
        if isinstance(each, Heartbeat):
            yield each
            continue
        if not each.batch.num_rows:
            continue
        if each.place.file != position.file:
            reached = NOTHING
        found = max(found, each.place.number(each.batch.num_rows - 1))
        if found > reached:
            yield _behind(each, reached)
            reached = NOTHING
    if found < reached:
        raise CheckpointError(
            f"stream '{stream}' gives fewer records than the {reached + 1:,} that were taken from it before, so it is "
            "another one; restore it, or start from a new checkpoint"
        )


def _behind(placed: PlacedBatch, last: int) -> PlacedBatch:
    """A batch without the records up to a number."""
    place = placed.place
    done = last + 1 - place.first if place.numbers is None else int(np.searchsorted(place.numbers, last, "right"))
    return placed if done <= 0 else PlacedBatch(placed.batch.slice(done), place.after(done))
