"""The records of files as batches, each of which can say where a row of it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import DataError, choices
from tidegate.files.csv_lines import csv_parser, header_of, without_header
from tidegate.files.json_lines import json_parser
from tidegate.files.lines import Block, Numbers, Parser, blocks_of, parse_block
from tidegate.files.listing import Files
from tidegate.files.malformed import Rejects
from tidegate.query.schema import fitting, normal_type


@dataclass(frozen=True, slots=True)
class Place:
    """Where the rows of a batch come from: the ``first`` one and those after it, unless ``numbers`` has them all.

    Lines of files are counted from 1, rows of parquet files, tables and iterables from 0.

    >>> Place("calls.csv", "line", 17).of(2)
    'calls.csv, line 19'
    """

    file: str | None
    unit: str
    first: int
    numbers: Numbers | None = None

    def of(self, row: int) -> str:
        """The place of one row of the batch, counted from 0."""
        number = self.number(row)
        return f"{self.unit} {number}" if self.file is None else f"{self.file}, {self.unit} {number}"

    def number(self, row: int) -> int:
        """The number of one row of the batch among all lines or rows."""
        return self.first + row if self.numbers is None else int(self.numbers[row])

    def only(self, rows: Numbers) -> Place:
        """The place of the batch that holds only some of its rows."""
        return Place(
            self.file, self.unit, self.first, self.first + rows if self.numbers is None else self.numbers[rows]
        )

    def after(self, rows: int) -> Place:
        """The place of the batch without its first rows."""
        left = None if self.numbers is None else self.numbers[rows:]
        return Place(self.file, self.unit, self.first + rows, left)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some records in a row, and where they come from."""

    batch: pa.RecordBatch
    place: Place


def pieces_of(files: Files, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None = None) -> Iterator[Piece]:
    """The records of files in their order: some or all of their columns, in batches of at most ``rows``.

    A malformed record is handed to ``rejects``; so is one without event time, if its column is named.
    """
    for path in files.paths:
        try:
            match files.format:
                case "parquet":
                    yield from _parquet(path, files, schema, rows)
                case _:
                    yield from _text(path, files, schema, rows, rejects, time)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error}") from error


def read_table(files: Files, schema: pa.Schema, rejects: Rejects | None = None, time: str | None = None) -> pa.Table:
    """All records of files, in their order, in the types of a schema."""
    pieces = pieces_of(files, schema, 1 << 20, rejects or Rejects(files.name), time)
    return pa.Table.from_batches([piece.batch for piece in pieces], schema=schema)


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


def _parquet(path: str, files: Files, schema: pa.Schema, rows: int) -> Iterator[Piece]:
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            check_columns(path, file.schema_arrow, files)
            for batch in file.iter_batches(rows, columns=schema.names):
                found = fitting(pa.Table.from_batches([batch]), schema, path).combine_chunks().to_batches()
                for part in found:
                    yield Piece(part, Place(path, "row", row))
                    row += part.num_rows
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path} does not hold rows of ({', '.join(schema.names)}): {error}") from error


def _text(path: str, files: Files, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None) -> Iterator[Piece]:
    for block, parse in _parsed(path, files, time):
        tables, numbers = parse_block(block, parse, rejects.add)
        if tables:
            place = Place(path, "line", block.first, numbers)
            whole = pa.concat_tables(tables).select(schema.names).combine_chunks()
            for batch in whole.to_batches(max_chunksize=rows):
                yield Piece(batch, place)
                place = place.after(batch.num_rows)


def _parsed(path: str, files: Files, time: str | None) -> Iterator[tuple[Block, Parser]]:
    """The blocks of a file, and what reads them."""
    parse = json_parser(files.schema, time) if files.format == "jsonl" else None
    for block in blocks_of(path):
        if parse is None:
            header = header_of(block.data.split(b"\n", 1)[0], path)
            parse = csv_parser(header, files.schema, time, path)
            yield without_header(block), parse
        else:
            yield block, parse
