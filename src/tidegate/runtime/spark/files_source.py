"""Files and tables as streams of Spark.

Spark watches a folder and reads its files in the order of their modification times. Each source gets a folder of links
in the checkpoint: whatever glob chose the files, Spark sees them and no others, under names that stay the same when the
run is resumed.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import DataError, QueryError, UnsupportedError, choices
from tidegate.query.nodes import Source
from tidegate.runtime.spark.types import spark_schema
from tidegate.sources import BatchOrigin, Rejects, read_table
from tidegate.sources.csv_lines import first_header
from tidegate.sources.files import Files, files_of
from tidegate.sources.in_memory import TableOrigin
from tidegate.sources.parquet import check_columns

# Batches are made about this many, unless they would exceed the size.
BATCHES = 20
MOST_BATCH_BYTES = 128_000_000
# Spark forgets files older than a week before the newest it knows; nothing may be forgotten here.
SUFFIXES = {"parquet": ".parquet", "jsonl": ".json", "csv": ".csv"}
MAX_FILE_AGE = "100000d"


@dataclass(frozen=True, slots=True)
class Pace:
    """How many files a batch takes, None for all that are there; ``why`` says so where it may surprise."""

    files_per_batch: int | None
    why: str | None = None


def choose_pace(
    name: str, sizes: Sequence[int], modified_ms: Sequence[int], files_per_batch: int | None = None
) -> Pace:
    """The pace for files given in the order in which they are to be read.

    Batches in that order are possible only if the files were written in it. If not, a later batch could hold earlier
    tuples, which would then be late, so all files make one batch.

    >>> choose_pace("calls", [10, 10], [1, 2])
    Pace(files_per_batch=1, why=None)
    """
    if len(sizes) <= 1:
        return Pace(files_per_batch)
    if any(later <= earlier for earlier, later in pairwise(modified_ms)):
        return Pace(
            None,
            f"stream '{name}': the files were not written in the order of their names, so Spark would read them in "
            "another order and tuples would be late; all of them are read as one batch",
        )
    if files_per_batch is not None:
        return Pace(files_per_batch)
    by_size = MOST_BATCH_BYTES * len(sizes) // max(sum(sizes), 1)
    return Pace(max(1, min(-(-len(sizes) // BATCHES), by_size)))


def stage(source: Source, folder: Path, files_per_batch: int | None) -> Pace:
    """Put what a source reads where Spark will look for it; what is there from an earlier run stays."""
    folder.mkdir(parents=True, exist_ok=True)
    match source.origin:
        case Files() as files:
            _check_readable(source, files)
            link(files, folder)
            stats = [Path(path).stat() for path in files.paths]
            sizes, modified_ms = [s.st_size for s in stats], [s.st_mtime_ns // 1_000_000 for s in stats]
            return choose_pace(source.name, sizes, modified_ms, files_per_batch)
        case BatchOrigin() as origin:
            part = folder / "table.parquet"
            if not part.exists():
                draft = folder / f".{uuid.uuid4().hex}"
                pq.write_table(read_table(origin, source.schema, Rejects(source.name), source.time), draft)
                draft.rename(part)
            return Pace(None)
        case origin if origin is not None:
            raise UnsupportedError(
                f"stream '{source.name}' reads a {type(origin).__name__}, which lives in this process; run it on='local', "
                "or make it with tg.stream(...) from files, an Arrow table or a streaming DataFrame"
            )
        case _:
            raise UnsupportedError(
                f"stream '{source.name}' is only a schema, so there is nothing to read; make it with tg.stream(...) from "
                "files, an Arrow table or a streaming DataFrame"
            )


def stage_new(source: Source, folder: Path) -> None:
    """Put files that appeared since where Spark will look for them."""
    if isinstance(source.origin, Files):
        with suppress(QueryError):  # for now no file may match
            link(files_of(source.origin.pattern, source.origin.schema), folder)


def link(files: Files, folder: Path) -> None:
    """Link files into a folder, each under a name made from its path; links to files that are gone go too.

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
                check_columns(path, _parquet_schema(path), files)
            name.symlink_to(target)


def _parquet_schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def read_stream(spark: SparkSession, source: Source, folder: Path, pace: Pace) -> DataFrame:
    """The streaming DataFrame over what was staged."""
    kind = source.origin.format if isinstance(source.origin, Files) else "parquet"
    columns = _csv_columns(source, source.origin) if kind == "csv" else source.schema
    reader = spark.readStream.schema(spark_schema(columns)).option("maxFileAge", MAX_FILE_AGE)
    if pace.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", pace.files_per_batch)
    if kind == "parquet":
        return reader.parquet(str(folder))
    if kind == "csv":
        # Spark takes columns by their position; told not to trust that, it holds each header against the schema.
        reader = reader.option("header", "true").option("enforceSchema", "false").option("mode", "FAILFAST")
        # With nothing for null, as by default, Spark would take a quoted text of no characters for null as well.
        reader = reader.option("escape", '"').option("nullValue", "\0")
        return reader.csv(str(folder)).select(*source.schema.names)
    return reader.option("mode", "FAILFAST").json(str(folder))


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
    place = next((place for place in range(footer.num_columns) if footer.schema.column(place).path == column), None)
    if place is None:
        return None
    groups = [footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups)]
    if not all(group is not None and group.has_min_max for group in groups):
        return None
    return max((int(pa.scalar(group.max).cast(kind).value) for group in groups), default=None)


def _csv_columns(source: Source, files: Files) -> pa.Schema:
    """All columns of CSV files in the order of their headers; those that the stream does not have are text."""
    header = next(iter(_headers(files).values()), tuple(source.schema.names))
    kinds = {field.name: field.type for field in source.schema}
    return pa.schema([(name, kinds.get(name, pa.string())) for name in header])


def _headers(files: Files) -> dict[str, tuple[str, ...]]:
    """The names of the columns in each CSV file that is not empty."""
    return {path: header for path in files.paths if (header := first_header(path))}


def _check_headers(source: Source, headers: dict[str, tuple[str, ...]]) -> None:
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


def _check_readable(source: Source, files: Files) -> None:
    if files.format == "csv":
        _check_headers(source, _headers(files))
    for field in files.schema:
        if files.format == "parquet" and pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            raise UnsupportedError(
                f"stream '{source.name}': column '{field.name}' of {files.pattern} is in nanoseconds, which Spark does "
                "not read; write it in microseconds (with pandas: df.to_parquet(..., coerce_timestamps='us', "
                "allow_truncated_timestamps=True))"
            )
