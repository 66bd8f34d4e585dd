"""Files and tables as streams of names: Spark keeps their order, offsets and rate, and workers read them with Arrow.

Spark polls a folder and gives its files in the order of their modification times. Each source gets a folder of links in the
checkpoint: whatever glob chose the files, Spark sees them and no others, under names that stay the same when the run is
resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import UnsupportedError
from tidegate.query.event_time import format_duration
from tidegate.query.nodes import Source
from tidegate.runtime.spark.continued import unread
from tidegate.sources import BatchOrigin, Rejects, read_table
from tidegate.sources.files import Files, files_of
from tidegate.sources.growing import GrowingFiles, changed_error, version_of
from tidegate.sources.kafka import KAFKA_ON_SPARK, TopicOrigin
from tidegate.sources.positions import ReadPosition
from tidegate.sources.standard_input import StandardInput

# A run has about this many batches, unless they would exceed the size.
BATCHES = 20
MOST_BATCH_BYTES = 128_000_000
# Spark forgets files older than a week before the newest it knows; nothing may be forgotten here.
MAX_FILE_AGE = "100000d"
BINARY_FILES = "path string, modificationTime timestamp, length long, content binary"
SUFFIXES = {"parquet": ".parquet", "jsonl": ".json", "csv": ".csv"}


@dataclass(frozen=True, slots=True)
class FileNames:
    """The origin of a source that workers read: a stream of names in a column ``path``, and how the files are read."""

    names: DataFrame
    files: Files
    begun: ReadPosition | None = None
    """Where another run was in a file that it had not read to its end."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """How many files a batch takes, None for all that are there; ``note`` says why where it may surprise."""

    files: int | None
    note: str | None = None


def choose_limit(
    name: str, sizes: Sequence[int], modified_ms: Sequence[int], files_per_batch: int | None = None
) -> ReadLimit:
    """Chooses the limit for files given in the order in which they are to be read.

    Batches in that order are possible only if the files were written in it. If not, a later batch could hold earlier
    tuples, which would then be late, so all files make one batch.

    >>> choose_limit("calls", [10, 10], [1, 2])
    ReadLimit(files=1, note=None)
    """
    if len(sizes) <= 1:
        return ReadLimit(files_per_batch)
    if any(later <= earlier for earlier, later in pairwise(modified_ms)):
        return ReadLimit(
            None,
            f"stream '{name}': the files were not written in the order of their names, so Spark would read them in "
            "another order and tuples would be late; all of them are read as one batch",
        )
    if files_per_batch is not None:
        return ReadLimit(files_per_batch)
    by_size = MOST_BATCH_BYTES * len(sizes) // max(sum(sizes), 1)
    return ReadLimit(max(1, min(-(-len(sizes) // BATCHES), by_size)))


@dataclass(frozen=True, slots=True)
class FileVersions:
    """What the files of a folder that grows were when they were found, in this run or one before: they must not change.

    Spark reads a file once, by its name, and would pass over what is written into it later.
    """

    log: Path
    known: dict[str, tuple[int, int]]

    @staticmethod
    def of(folder: Path) -> FileVersions:
        """The versions that are noted beside the links of a source, in a file that Spark does not see."""
        log, known = folder / ".versions", {}
        for line in log.read_text().splitlines() if log.exists() else ():
            with suppress(ValueError):  # the last one may be cut short, by a kill
                path, size, modified = json.loads(line)
                known[path] = size, modified
        return FileVersions(log, known)

    def version(self, path: str) -> tuple[int, int]:
        """What a file was when it was found; as it is now, if that was not noted yet."""
        return self.known.get(os.path.abspath(path)) or version_of(path)  # noqa: PTH100 - as `check` does

    def check(self, paths: Sequence[str]) -> None:
        """Refuses files that have changed, and notes new ones."""
        new = []
        for path in map(os.path.abspath, paths):
            with suppress(FileNotFoundError):
                version = version_of(path)
                if path not in self.known:
                    new.append(json.dumps([path, *version]) + "\n")
                if self.known.setdefault(path, version) != version:
                    raise changed_error(path)
        if new:
            with self.log.open("a") as log:
                log.write("".join(["\n", *new]))


@dataclass(frozen=True, slots=True)
class StagedSource:
    """A source whose files are in a folder that Spark reads, at most so many in a batch; ``versions`` of one that grows.

    ``before`` is how far it was read by a run that this one goes on from.
    """

    source: Source
    folder: Path
    limit: ReadLimit
    versions: FileVersions | None = None
    before: ReadPosition | None = None

    @classmethod
    def of(
        cls, source: Source, folder: Path, files_per_batch: int | None, before: ReadPosition | None = None
    ) -> StagedSource:
        """Puts what a source reads into the folder; what is there from an earlier run stays."""
        folder.mkdir(parents=True, exist_ok=True)
        match source.origin:
            case Files() | GrowingFiles() as origin:
                files = origin if isinstance(origin, Files) else origin.files
                files = files if before is None else unread(files, before)
                link(files, folder)
                versions = FileVersions.of(folder) if isinstance(origin, GrowingFiles) else None
                if versions is not None and before is not None and not versions.known:
                    versions.check(before.done)
                stats = [Path(path).stat() for path in files.paths]
                sizes, modified_ms = [s.st_size for s in stats], [s.st_mtime_ns // 1_000_000 for s in stats]
                limit = choose_limit(source.name, sizes, modified_ms, files_per_batch)
                return cls(source, folder, limit, versions, before)
            case BatchOrigin() as origin:
                part = folder / "table.parquet"
                if not part.exists():
                    draft = folder / f".{uuid.uuid4().hex}"
                    rows = read_table(origin, source.read_schema, Rejects(source.name), source.read_time)
                    pq.write_table(rows if before is None else rows.slice(before.last + 1), draft)
                    draft.rename(part)
                return cls(source, folder, ReadLimit(None))
            case TopicOrigin() as origin:
                raise UnsupportedError(f"stream '{source.name}' reads {origin.topic} in process; {KAFKA_ON_SPARK}")
            case StandardInput():
                raise UnsupportedError(
                    f"stream '{source.name}' reads standard input, which Spark could not read again after a failure; run it "
                    "on='local', or write the lines to files and name these"
                )
            case origin if origin is not None:
                raise UnsupportedError(
                    f"stream '{source.name}' reads a {type(origin).__name__}, which lives in this process; run it "
                    "on='local', or make it with tg.stream(...) from files, an Arrow table or a streaming DataFrame"
                )
            case _:
                raise UnsupportedError(
                    f"stream '{source.name}' is only a schema, so there is nothing to read; make it with tg.stream(...) "
                    "from files, an Arrow table or a streaming DataFrame"
                )

    def add_new_files(self) -> None:
        """Links files that have appeared since."""
        origin = self.source.origin
        if isinstance(origin, Files | GrowingFiles):
            files = origin if isinstance(origin, Files) else origin.files
            found = files_of(files.pattern, files.schema, kind=files.format)
            link(found if self.before is None else unread(found, self.before), self.folder)
            if self.versions is not None:
                self.versions.check(found.paths)

    def streamed(self, spark: SparkSession, reader: Source) -> Source:
        """The source as a plan reads it: by the names of its files."""
        origin = self.source.origin
        files = Files("", ("table.parquet",), "parquet", self.source.read_schema)
        if isinstance(origin, Files | GrowingFiles):
            files = origin if isinstance(origin, Files) else origin.files
        names = spark.readStream.schema(BINARY_FILES).format("binaryFile").option("maxFileAge", MAX_FILE_AGE)
        if self.limit.files is not None:
            names = names.option("maxFilesPerTrigger", self.limit.files)
        # Of a binary file that only its path is read of, the contents are never loaded.
        begun = None if self.before is None or self.before.file is None else self.before
        return replace(reader, origin=FileNames(names.load(str(self.folder)).select("path"), files, begun))


def link_name(path: str | Path, suffix: str) -> str:
    """The name under which a file is linked."""
    return hashlib.sha256(os.fsencode(Path(path).absolute())).hexdigest()[:24] + suffix


def link(files: Files, folder: Path) -> None:
    """Links files into a folder, each under a name derived from its path; links to files that are gone go too."""
    for old in folder.iterdir():
        if not old.exists():
            old.unlink()
    suffix = SUFFIXES[files.format]
    for path in files.paths:
        name = folder / link_name(path, suffix)
        if not name.is_symlink():
            name.symlink_to(Path(path).absolute())


def ahead_note(source: Source, tuples: int) -> str:
    """The warning about the tuples of a source that were set aside."""
    lie = "1 tuple lies" if tuples == 1 else f"{tuples:,} tuples lie"
    return (
        f"stream '{source.name}': {lie} more than {format_duration(source.ahead_us or 0)} after the clock; set aside and "
        "counted, such tuples move no watermark. If they are meant, allow more, as in tg.stream(..., ahead='2 days'), or "
        "all with ahead=None"
    )
