"""Files of JSON lines: one object per line, in UTF-8.

A column that an object lacks is null. Text in ISO form is a timestamp, in UTC where it names no zone, or a date; base64 is
binary; and "NaN", "Infinity" and "-Infinity" are floats, as Spark writes them. A decimal is a number or text, and all of its
digits count. An object is a struct, or a map where that is declared.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from tidegate.query.schema import contiguous
from tidegate.sources import PlacedBatch, Rejects
from tidegate.sources.lines import NotARecord, Parser, blocks_of, check_rows, check_utf8, parse_block, read_lines

if TYPE_CHECKING:
    from tidegate.sources.files import Files

_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_TIME = pa.timestamp("us", tz="UTC")


def json_parser(schema: pa.Schema, time: str | None) -> Parser:
    """A parser of the columns of a schema."""

    def parse(lines: bytes, count: int) -> pa.Table:
        check_utf8(lines)
        if not lines.lstrip().startswith(b"{"):
            # Arrow must not see it: a null that comes before any object makes its parser crash.
            _object(lines.split(b"\n", 1)[0])
        # Objects may not share a line nor spread over several; on a single line their number tells.
        if count > 1 and (lines.count(b"}\n") != count or lines.count(b"\n{") != count - 1):
            raise NotARecord("not one object per line")
        try:
            table = _columns(lines, schema)
        except pa.ArrowException as error:
            if count > 1:
                raise NotARecord(str(error)) from error
            table = _one_record(lines, schema)
        return check_rows(table, count, time)

    return parse


def read_json(
    path: str, files: Files, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None
) -> Iterator[PlacedBatch]:
    """The records of one of some files."""
    parse = json_parser(files.schema, time)
    return read_lines(((block, parse) for block in blocks_of(path)), schema.names, rows, rejects)


def infer_json(file: str, rejects: Rejects) -> pa.Schema:
    """The columns and types of all objects of a file; empty if it holds none."""
    records: list[dict[str, Any]] = []

    def keep(lines: bytes, count: int) -> pa.Table:
        check_utf8(lines)
        found = [_object(line) for line in lines.split(b"\n")[:-1]]
        records.extend(found)
        return pa.table({"": range(count)})

    for block in blocks_of(file):
        parse_block(block, keep, rejects.add)
    try:
        return _table(records).schema
    except OverflowError as error:
        raise pa.ArrowInvalid("a whole number does not fit into 64 bits") from error


def _table(records: Iterable[dict[str, Any]]) -> pa.Table:
    rows = list(records)
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            try:
                moments = table.column(position).cast(_TIME)
            except pa.ArrowException:
                continue
            table = table.set_column(position, field.name, moments)
    return table


def _object(line: bytes, **options: Any) -> dict[str, Any]:
    try:
        record = json.loads(line, **options)
    except json.JSONDecodeError as error:
        raise NotARecord(f"not JSON: {error}") from error
    except ValueError as error:
        raise NotARecord("a number has more digits than can be read") from error
    except RecursionError as error:
        raise NotARecord("brackets nest too deep to be read") from error
    if not isinstance(record, dict):
        raise NotARecord(f"not a JSON object but {type(record).__name__}")
    return record


def _one_record(line: bytes, schema: pa.Schema) -> pa.Table:
    """One line that Arrow does not read: either a column is wrong, or it holds a float without digits."""
    record, digits = _object(line), json.loads(line, parse_float=str)
    columns = []
    for field in schema:
        value = record.get(field.name)
        meant = float(value) if pa.types.is_floating(field.type) and value in _NOT_FINITE else value
        if _counts_digits(field.type):
            meant = digits.get(field.name)
        alone = pa.schema([field])
        try:
            columns.append(_columns(json.dumps({field.name: meant}).encode(), alone).column(0))
        except pa.ArrowException as error:
            raise NotARecord(f"'{field.name}' is {json.dumps(value)}, which is no {field.type}") from error
    return pa.table(columns, schema=schema)


def _columns(lines: bytes, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, maps among them, which Arrow does not read."""
    maps = [field for field in schema if pa.types.is_map(field.type)]
    if not maps:
        return _decoded(_read(lines, schema), schema)
    others = pa.schema([field for field in schema if not pa.types.is_map(field.type)])
    table = _decoded(_read(lines, others), others) if len(others) else None
    found = {}
    for field in maps:
        as_text = {"parse_float": str} if _counts_digits(field.type) else {}
        found[field.name] = _maps([_object(line, **as_text).get(field.name) for line in lines.splitlines()], field)
    columns = [found[name] if table is None or name in found else table.column(name) for name in schema.names]
    return pa.table(columns, schema=schema)


def _counts_digits(kind: pa.DataType) -> bool:
    """Whether numbers of a type are decimals, of which no digit may be lost on the way through a float."""
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return _counts_digits(kind.item_type if pa.types.is_map(kind) else kind.value_type)
    return bool(pa.types.is_decimal(kind))


def _maps(objects: list[Any], field: pa.Field) -> pa.Array:
    """Objects of JSON as maps: their names as keys, their values as Arrow reads them."""
    kind = field.type
    wrong = [each for each in objects if each is not None and not isinstance(each, dict)]
    if wrong:
        raise NotARecord(f"'{field.name}' is {json.dumps(wrong[0])}, which is no {kind}")
    lengths = np.array([0 if each is None else len(each) for each in objects], np.int64)
    offsets = pa.array(
        np.cumsum([0, *lengths]), pa.int32(), mask=np.array([*(each is None for each in objects), False])
    )
    values = [value for each in objects if each is not None for value in each.values()]
    names = pa.array([name for each in objects if each is not None for name in each], pa.string()).cast(kind.key_type)
    alone = pa.schema([("value", kind.item_type)])
    lines = "".join(json.dumps({"value": value}) + "\n" for value in values)
    items = _decoded(_read(lines.encode(), alone), alone).column(0) if values else pa.array([], kind.item_type)
    return pa.MapArray.from_arrays(offsets, names, contiguous(items))


def _read(lines: bytes, schema: pa.Schema) -> pa.Table:
    written = pa.schema([pa.field(field.name, _written(field.type)) for field in schema])
    parsing = arrow_json.ParseOptions(explicit_schema=written, unexpected_field_behavior="ignore")
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    return arrow_json.read_json(pa.BufferReader(lines), reading, parsing)


def _written(kind: pa.DataType) -> pa.DataType:
    """The type as JSON knows it: dates and binary are text."""
    if pa.types.is_date(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_written(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _written(field.type)) for field in kind])
    return kind


def _decoded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        column = table.column(field.name)
        if pa.types.is_binary(field.type):
            try:
                texts = column.to_pylist()
                column = pa.array([None if text is None else base64.b64decode(text, validate=True) for text in texts])
            except ValueError as error:
                raise NotARecord(f"'{field.name}' is not base64: {error}") from error
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, schema=schema)
