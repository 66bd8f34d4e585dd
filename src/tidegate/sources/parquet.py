"""Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import DataError, choices
from tidegate.query.schema import TIME, fitting, normal_type
from tidegate.sources import PlacedBatch, Rejects, RowPlace

if TYPE_CHECKING:
    from tidegate.sources.files import Files

_MAGIC = b"PAR1"
"""What a parquet file begins and ends with."""


def infer_parquet(path: str, rejects: Rejects) -> pa.Schema:
    """The columns of a file."""
    with _opened(path) as file:
        return columns_of(file)


def read_parquet(
    path: str, files: Files, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None
) -> Iterator[PlacedBatch]:
    """The records of one of some files."""
    row = 0
    try:
        with _opened(path) as file:
            check_columns(path, columns_of(file), files)
            for batch in file.iter_batches(rows, columns=schema.names):
                for part in fitting(pa.Table.from_batches([batch]), schema, path).combine_chunks().to_batches():
                    yield PlacedBatch(part, RowPlace(path, "row", row))
                    row += part.num_rows
    except (OSError, KeyError, pa.ArrowException) as error:
        if not _is_whole(path):
            raise DataError(
                f"{path} is no whole parquet file: it does not end as one does. A file is complete when it appears under "
                "its name: write it under another one, such as one that begins with '.', and rename it then"
            ) from error
        raise DataError(f"{path} does not hold rows of ({', '.join(schema.names)}): {error}") from error


def _is_whole(path: str) -> bool:
    """Whether a file ends as parquet does; one that is gone says nothing."""
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - len(_MAGIC), 0))
            return size > 2 * len(_MAGIC) and file.read() == _MAGIC
    except OSError:
        return True


def _opened(path: str) -> pq.ParquetFile:
    # Spark keeps times as INT96 unless told otherwise; in nanoseconds, as Arrow takes them, years end at 2262.
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def columns_of(file: pq.ParquetFile) -> pa.Schema:
    """The columns of a file. Its INT96 are moments, which Arrow takes for times without zone."""
    moments = {leaf.path.split(".")[0] for leaf in file.schema if leaf.physical_type == "INT96"}
    fields = [
        field.with_type(_with_zone(field.type)) if field.name in moments else field for field in file.schema_arrow
    ]
    return pa.schema(fields)


def _with_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return TIME
    if pa.types.is_list(kind):
        return pa.list_(_with_zone(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_with_zone(kind.key_type), _with_zone(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_zone(field.type)) for field in kind])
    return kind


def check_columns(path: str, found: pa.Schema, files: Files) -> None:
    """Refuse a parquet file whose columns are not those of the others, whichever of them a query reads.

    Only how a type is kept may differ: dictionaries, large strings, the unit of a timestamp, the name of its zone.
    """
    for field in files.schema:
        if field.name not in found.names:
            raise DataError(f"{path}: the column '{field.name}' is not there; it has {choices(found.names)}")
        kind, wanted = normal_type(found.field(field.name).type), normal_type(field.type)
        if kind != wanted:
            where = "as declared" if files.paths[:1] in ((), (path,)) else f"in {files.paths[0]}"
            raise DataError(
                f"{path}: the column '{field.name}' is {kind}, and {wanted} {where}; values are not cast: what is lost "
                "would not show. Write the file again, or make it a stream of its own with tg.stream(...), cast it with "
                "with_columns and unite the two"
            )
