"""Bounded inputs in files: which they are, in which order, and their schema."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import DataError, QueryError

_FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format, in the order of their names."""

    pattern: str
    paths: tuple[str, ...]
    format: str
    schema: pa.Schema

    @property
    def name(self) -> str:
        """What the stream is called: the folder or the file."""
        first = Path(self.paths[0])
        return first.parent.name if len(self.paths) > 1 and first.parent.name else first.stem


def files_of(pattern: str) -> Files:
    """The files a path, folder or glob stands for; the first one gives the schema."""
    root = Path(pattern)
    if root.is_dir():
        paths = sorted(str(path) for path in root.iterdir() if path.suffix in _FORMATS and path.name[0] not in "._")
    else:
        paths = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - a pattern may be absolute
    if not paths:
        raise QueryError(f"no file matches {pattern!r}; give a file, a folder or a glob of {', '.join(_FORMATS)} files")
    kinds = {_FORMATS.get(Path(path).suffix) for path in paths}
    if len(kinds) != 1 or None in kinds:
        raise QueryError(f"{pattern!r} must match files of one format, {', '.join(_FORMATS)}; got {sorted(paths)[:5]}")
    kind = str(kinds.pop())
    return Files(pattern, tuple(paths), kind, _schema(paths[0], kind))


def read_table(files: Files, schema: pa.Schema) -> pa.Table:
    """All rows of the files, in order, in the types of a schema; a malformed file is an error that names it."""
    return pa.concat_tables([_read(path, files.format, schema) for path in files.paths])


def _schema(path: str, kind: str) -> pa.Schema:
    try:
        if kind == "parquet":
            return pq.read_schema(path).remove_metadata()
        return json_table(json_records(path)).schema
    except (OSError, pa.ArrowException) as error:
        raise QueryError(f"cannot read the schema of {path}: {error}") from error


def _read(path: str, kind: str, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(path) if kind == "parquet" else json_table(json_records(path), schema)
        return table.select(schema.names).cast(schema)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path} does not hold rows of ({', '.join(schema.names)}): {error}") from error


def json_records(path: str) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines; a line that is none is an error that names it."""
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{path}, line {number}: not JSON: {error}") from error
            if not isinstance(record, dict):
                raise DataError(f"{path}, line {number}: not a JSON object but {type(record).__name__}")
            yield record


def json_table(records: Iterable[dict[str, Any]], schema: pa.Schema | None = None) -> pa.Table:
    """Records as columns. JSON has no timestamps: text in ISO form is read as UTC."""
    rows = list(records)
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    for position, field in enumerate(table.schema):
        wanted = schema.field(field.name).type if schema is not None and field.name in schema.names else None
        if pa.types.is_string(field.type) and (wanted is None or pa.types.is_timestamp(wanted)):
            try:
                moments = table.column(position).cast(pa.timestamp("us", tz="UTC"))
            except pa.ArrowException:
                continue
            table = table.set_column(position, field.name, moments)
    return table
