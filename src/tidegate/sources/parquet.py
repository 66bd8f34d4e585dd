"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import DataError, choices
from tidegate.query.schema import fitting, normal_type
from tidegate.sources import PlacedBatch, Rejects, RowPlace

if TYPE_CHECKING:
    from tidegate.sources.files import Files


def infer_parquet(path: str, rejects: Rejects) -> pa.Schema:
    """The columns of a file."""
    return pq.read_schema(path).remove_metadata()


def read_parquet(
    path: str, files: Files, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None
) -> Iterator[PlacedBatch]:
    """The records of one of some files."""
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            check_columns(path, file.schema_arrow, files)
            for batch in file.iter_batches(rows, columns=schema.names):
                for part in fitting(pa.Table.from_batches([batch]), schema, path).combine_chunks().to_batches():
                    yield PlacedBatch(part, RowPlace(path, "row", row))
                    row += part.num_rows
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path} does not hold rows of ({', '.join(schema.names)}): {error}") from error


def check_columns(path: str, found: pa.Schema, files: Files) -> None:
    """Refuse a parquet file whose columns are not those of the others, whichever of them a query reads.

    Only how a type is kept may differ: dictionaries, large strings, the unit of a timestamp, the name of its zone.
    """
    for field in files.schema:
        if field.name not in found.names:
            raise DataError(f"{path}: the column '{field.name}' is not there; it has {choices(found.names)}")
        kind, wanted = normal_type(found.field(field.name).type), normal_type(field.type)
        if kind != wanted:
            where = f"in {files.paths[0]}" if path != files.paths[0] else "as declared"
            raise DataError(
                f"{path}: the column '{field.name}' is {kind}, and {wanted} {where}; values are not cast: what is lost "
                "would not show. Write the file again, or make it a stream of its own with tg.stream(...), cast it with "
                "with_columns and unite the two"
            )
