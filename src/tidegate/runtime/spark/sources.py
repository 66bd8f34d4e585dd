"""Files and tables as streams of Spark, and the removal of tuples from the future.

Spark polls a folder and reads its files in the order of their modification times. Each source gets a folder of links
in the checkpoint: whatever glob chose the files, Spark sees them and no others, under names that stay the same when the
run is resumed.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from tidegate.errors import DataError, QueryError, UnsupportedError, choices
from tidegate.query.event_time import format_duration
from tidegate.query.nodes import Source
from tidegate.runtime.spark.types import spark_schema
from tidegate.sources import BatchOrigin, Rejects, read_table
from tidegate.sources.csv_lines import first_header
from tidegate.sources.files import Files, files_of
from tidegate.sources.in_memory import TableOrigin
from tidegate.sources.parquet import check_columns

# A run has about this many batches, unless they would exceed the size.
BATCHES = 20
MOST_BATCH_BYTES = 128_000_000
# Spark forgets files older than a week before the newest it knows; nothing may be forgotten here.
MAX_FILE_AGE = "100000d"
SUFFIXES = {"parquet": ".parquet", "jsonl": ".json", "csv": ".csv"}
AHEAD = "tidegate_ahead/"


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
class StagedSource:
    """A source whose files are in a folder that Spark reads, at most so many in a batch."""

    source: Source
    folder: Path
    limit: ReadLimit

    @classmethod
    def of(cls, source: Source, folder: Path, files_per_batch: int | None) -> StagedSource:
        """Puts what a source reads into the folder; what is there from an earlier run stays."""
        folder.mkdir(parents=True, exist_ok=True)
        match source.origin:
            case Files() as files:
                _check_readable(source, files)
                link(files, folder)
                stats = [Path(path).stat() for path in files.paths]
                sizes, modified_ms = [s.st_size for s in stats], [s.st_mtime_ns // 1_000_000 for s in stats]
                return cls(source, folder, choose_limit(source.name, sizes, modified_ms, files_per_batch))
            case BatchOrigin() as origin:
                part = folder / "table.parquet"
                if not part.exists():
                    draft = folder / f".{uuid.uuid4().hex}"
                    pq.write_table(read_table(origin, source.schema, Rejects(source.name), source.time), draft)
                    draft.rename(part)
                return cls(source, folder, ReadLimit(None))
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
        if isinstance(self.source.origin, Files):
            with suppress(QueryError):  # for now no file may match
                link(files_of(self.source.origin.pattern, self.source.origin.schema), self.folder)

    def streamed(self, spark: SparkSession, reader: Source, bounded: bool) -> Source:
        """The source as a plan reads it, over a streaming DataFrame.

        A bounded replay that is known to lie in the past need not be compared with the clock tuple by tuple.
        """
        newest = newest_time(self.source) if bounded else None
        past = newest is not None and newest <= time.time_ns() // 1000
        return replace(reader, origin=self._dataframe(spark), ahead_us=None if past else reader.ahead_us)

    def _dataframe(self, spark: SparkSession) -> DataFrame:
        origin, schema = self.source.origin, self.source.schema
        kind = origin.format if isinstance(origin, Files) else "parquet"
        columns = _csv_columns(self.source, origin) if kind == "csv" else schema
        reader = spark.readStream.schema(spark_schema(columns)).option("maxFileAge", MAX_FILE_AGE)
        if self.limit.files is not None:
            reader = reader.option("maxFilesPerTrigger", self.limit.files)
        if kind == "parquet":
            return reader.parquet(str(self.folder))
        if kind == "csv":
            # Spark takes columns by their position; with enforceSchema off it compares each header with the schema.
            reader = reader.option("header", "true").option("enforceSchema", "false").option("mode", "FAILFAST")
            # With nothing for null, as by default, Spark would take a quoted text of no characters for null as well.
            reader = reader.option("escape", '"').option("nullValue", "\0")
            return reader.csv(str(self.folder)).select(*schema.names)
        return reader.option("mode", "FAILFAST").json(str(self.folder))


def link(files: Files, folder: Path) -> None:
    """Links files into a folder, each under a name derived from its path; links to files that are gone go too.

    A parquet file whose columns are not those of the others is refused: Spark would cast them, or give nulls.
    """
    for old in folder.iterdir():
        if not old.exists():
            old.unlink()
    suffix = SUFFIXES[files.format]
    for path in files.paths:
        target = Path(path).absolute()
        name = folder / (hashlib.sha256(os.fsencode(target)).hexdigest()[:24] + suffix)
        if not name.is_symlink():
            if files.format == "parquet":
                try:
                    found = pq.read_schema(path)
                except (OSError, pa.ArrowException) as error:
                    raise DataError(f"{path} cannot be read: {error}") from error
                check_columns(path, found, files)
            name.symlink_to(target)


def newest_time(source: Source) -> int | None:
    """The latest event time of all that a source holds, where that is known without reading it; in microseconds."""
    kind = source.schema.field(source.time).type
    match source.origin:
        case TableOrigin(table):
            found = pc.max(table.column(source.time))
            return None if found.as_py() is None else int(found.cast(kind).value)
        case Files(format="parquet") as files:
            times = [_newest_in(path, source.time, kind) for path in files.paths]
            return max((time for time in times if time is not None), default=None) if None not in times else None
        case _:
            return None


def _newest_in(path: str, column: str, kind: pa.DataType) -> int | None:
    """The latest time in a parquet file, by its statistics; None if they do not say."""
    footer = pq.read_metadata(path)
    names = [footer.schema.column(place).path for place in range(footer.num_columns)]
    if column not in names:
        return None
    groups = [footer.row_group(number).column(names.index(column)) for number in range(footer.num_row_groups)]
    if not all(group.is_stats_set and group.statistics.has_min_max for group in groups):
        return None
    return max((int(pa.scalar(group.statistics.max).cast(kind).value) for group in groups), default=None)


def _csv_columns(source: Source, files: Files) -> pa.Schema:
    """All columns of CSV files in the order of their headers; those that the stream does not have are text."""
    header = next(iter(_headers(files).values()), source.schema.names)
    kinds = {field.name: field.type for field in source.schema}
    return pa.schema([(name, kinds.get(name, pa.string())) for name in header])


def _headers(files: Files) -> dict[str, tuple[str, ...]]:
    """The names of the columns in each CSV file that is not empty."""
    return {path: header for path in files.paths if (header := first_header(path))}


def _check_readable(source: Source, files: Files) -> None:
    headers = _headers(files) if files.format == "csv" else {}
    first = next(iter(headers), "")
    for path, header in headers.items():
        missing = [name for name in source.schema.names if name not in header]
        if missing:
            raise DataError(f"{path}, line 1: the column {choices(missing)} is not there; it has {choices(header)}")
        if header != headers[first]:
            raise UnsupportedError(
                f"stream '{source.name}': {path} has the columns {choices(header)}, and {first} has "
                f"{choices(headers[first])}; Spark takes columns of CSV files by their position. Give them one order, or "
                "run it on='local'"
            )
    for field in files.schema:
        if files.format == "parquet" and pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            raise UnsupportedError(
                f"stream '{source.name}': column '{field.name}' of {files.pattern} is in nanoseconds, which Spark does "
                "not read; write it in microseconds (with pandas: df.to_parquet(..., coerce_timestamps='us', "
                "allow_truncated_timestamps=True))"
            )


def without_future(source: Source, df: DataFrame, read: Counter[str]) -> DataFrame:
    """Removes the tuples of a source more than ``ahead`` after the clock, which is the batch's timestamp.

    Their number is observed: once each time that the query reads the source, which ``read`` counts.
    """
    if source.ahead_us is None:
        return df
    read[source.name] += 1
    now = F.current_timestamp()
    if isinstance(df.schema[source.time].dataType, TimestampNTZType):
        now = F.convert_timezone(None, F.lit("UTC"), F.localtimestamp())
    ahead = F.coalesce(F.col(source.time) > now + F.lit(timedelta(microseconds=source.ahead_us)), F.lit(False))
    observed = df.observe(f"{AHEAD}{read[source.name]}:{source.name}", F.count_if(ahead).alias("tuples"))
    return observed.where(~ahead)


def set_aside(observed: Mapping[str, Any]) -> dict[str, int]:
    """How many tuples of each source a batch set aside, if any; one that is read several times counts once."""
    found: dict[str, int] = {}
    for name, row in observed.items():
        if name.startswith(AHEAD) and row is not None and row["tuples"]:
            source = name.removeprefix(AHEAD).split(":", 1)[1]
            found[source] = max(found.get(source, 0), int(row["tuples"]))
    return found


def ahead_note(source: Source, tuples: int) -> str:
    """The warning about the tuples of a source that were set aside."""
    lie = "1 tuple lies" if tuples == 1 else f"{tuples:,} tuples lie"
    return (
        f"stream '{source.name}': {lie} more than {format_duration(source.ahead_us or 0)} after the clock; set aside and "
        "counted, such tuples move no watermark. If they are meant, allow more, as in tg.stream(..., ahead='2 days'), or "
        "all with ahead=None"
    )
