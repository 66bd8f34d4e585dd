"""Files of comma-separated values, in UTF-8: the first line names the columns, every other one is a record.

A value may be quoted, with quotes inside it doubled, but holds no line break. A value of no characters is null, a quoted
one is an empty text. Columns are found by their names, so files may have them in another order, and more of them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv as arrow_csv

from tidegate.errors import DataError, choices
from tidegate.sources import PlacedBatch, Rejects
from tidegate.sources.lines import Block, NotARecord, Parser, blocks_of, check_rows, check_utf8, parse_block, read_lines

if TYPE_CHECKING:
    from tidegate.sources.files import Files

_COLUMN = re.compile(r"In CSV column #(\d+): ")
_ROW = re.compile(r"Row #\d+: ")
_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]


def _split_header(block: Block) -> tuple[bytes, Block]:
    """The first line of a file, and its first block without it."""
    header, rest = block.data.split(b"\n", 1)
    return header, Block(block.file, 2, rest)


def header_of(line: bytes, file: str) -> tuple[str, ...]:
    """The names in the first line of a file."""
    try:
        names = next(csv.reader([line.decode("utf-8")], strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}, line 1: the names of the columns cannot be read: {error}") from error
    if len(set(names)) < len(names):
        raise DataError(f"{file}, line 1: two columns have one name: {choices(names)}")
    return tuple(names)


def first_header(file: str) -> tuple[str, ...]:
    """The names of a file's columns; none if it is empty."""
    for block in blocks_of(file, 4_096):
        return header_of(_split_header(block)[0], file)
    return ()


def csv_parser(header: tuple[str, ...], schema: pa.Schema, time: str | None, file: str) -> Parser:
    """A parser of the columns of a schema, which a header names among others."""
    missing = [name for name in schema.names if name not in header]
    if missing:
        raise DataError(f"{file}, line 1: the column {choices(missing)} is not there; it has {choices(header)}")
    converting = _options({field.name: field.type for field in schema}, schema.names)

    def parse(lines: bytes, count: int) -> pa.Table:
        check_utf8(lines)
        if lines.count(b'"') % 2:
            raise NotARecord("a quote is not closed on its line")
        return check_rows(_read(lines, header, converting).cast(schema), count, time)

    return parse


def read_csv(
    path: str, files: Files, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None
) -> Iterator[PlacedBatch]:
    """The records of one of some files."""
    return read_lines(_parsed(path, files.schema, time), schema.names, rows, rejects)


def _parsed(path: str, schema: pa.Schema, time: str | None) -> Iterator[tuple[Block, Parser]]:
    """The blocks of a file without its header, and what reads them."""
    parse: Parser | None = None
    for block in blocks_of(path):
        if parse is None:
            first, block = _split_header(block)
            parse = csv_parser(header_of(first, path), schema, time, path)
        yield block, parse


def infer_csv(file: str, rejects: Rejects) -> pa.Schema:
    """The columns of a file and the types that all their values have; no columns if it holds no record."""
    header = first_header(file)
    texts = pa.schema([(name, pa.string()) for name in header])
    good: list[bytes] = []

    def keep(lines: bytes, count: int) -> pa.Table:
        found = csv_parser(header, texts, None, file)(lines, count)
        good.append(lines)
        return found

    for block in blocks_of(file):
        parse_block(_split_header(block)[1] if block.first == 1 else block, keep, rejects.add)
    if not header or not any(good):
        return pa.schema([])
    found = _read(b"".join(good), header, _options({}, header)).schema
    # Where nothing is known, or only a time of day, the text is kept.
    kept = [pa.types.is_null(field.type) or pa.types.is_time(field.type) for field in found]
    return pa.schema([(f.name, pa.string() if as_text else f.type) for f, as_text in zip(found, kept, strict=True)])


def _options(types: dict[str, pa.DataType], names: tuple[str, ...] | list[str]) -> arrow_csv.ConvertOptions:
    return arrow_csv.ConvertOptions(
        column_types=types,
        include_columns=list(names),
        null_values=[""],
        true_values=_TRUE,
        false_values=_FALSE,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _read(lines: bytes, header: tuple[str, ...], converting: arrow_csv.ConvertOptions) -> pa.Table:
    reading = arrow_csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=list(header))
    try:
        return arrow_csv.read_csv(pa.BufferReader(lines), reading, convert_options=converting)
    except pa.ArrowException as error:
        named = _COLUMN.sub(lambda found: f"'{header[int(found[1])]}': ", str(error))
        raise NotARecord(_ROW.sub("", named)) from error
