"""Which files a pattern stands for, in which order, and the schema of their records."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path, PurePath

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import QueryError, choices
from tidegate.files.csv_lines import infer_csv
from tidegate.files.json_lines import infer_json
from tidegate.files.malformed import Malformed, Rejects
from tidegate.query.schema import is_scalar, normal_schema

FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format, in the order of their names.

    ``schema`` is that of whole records: whether a record is malformed does not depend on the columns that a query reads.
    """

    pattern: str
    paths: tuple[str, ...]
    format: str
    schema: pa.Schema

    @property
    def name(self) -> str:
        """What the stream is called: the folder or the file."""
        first = Path(self.paths[0])
        return first.parent.name if len(self.paths) > 1 and first.parent.name else first.stem

    @property
    def is_text(self) -> bool:
        """Whether the records are lines, each of which may be malformed by itself."""
        return self.format != "parquet"

    def takes(self, path: Path) -> bool:
        """Whether the pattern stands for a path, though there may be no file yet."""
        root = Path(self.pattern)
        if root.is_dir():
            return path.absolute().parent == root.absolute() and path.suffix in FORMATS and path.name[0] not in "._"
        return PurePath(path.absolute()).match(str(root.absolute()))


def files_of(pattern: str, schema: pa.Schema | None = None, *, lenient: bool = False) -> Files:
    """The files a path, folder or glob stands for.

    Without a ``schema`` the first file that holds a record gives it, all of whose records are looked at; a malformed one
    among them is an error, unless the caller is ``lenient`` because it will be set aside when the query runs.
    """
    paths = _paths(pattern)
    kinds = {FORMATS.get(Path(path).suffix) for path in paths}
    if len(kinds) != 1 or None in kinds:
        raise QueryError(f"{pattern!r} must match files of one format, {', '.join(FORMATS)}; got {paths[:5]}")
    kind = str(kinds.pop())
    if schema is None:
        found = next((found for found in (_schema(path, kind, lenient) for path in paths) if len(found)), None)
        if found is None:
            raise QueryError(
                f"no file of {pattern!r} holds a record to tell the columns from; declare them: schema=..."
            )
        schema = found
    return Files(pattern, paths, kind, schema if kind == "parquet" else _text_schema(schema, kind, pattern))


def _paths(pattern: str) -> tuple[str, ...]:
    root = Path(pattern)
    if root.is_dir():
        paths = sorted(str(path) for path in root.iterdir() if path.suffix in FORMATS and path.name[0] not in "._")
    else:
        paths = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207 - a pattern may be absolute
    if not paths:
        raise QueryError(f"no file matches {pattern!r}; give a file, a folder or a glob of {', '.join(FORMATS)} files")
    return tuple(paths)


def _text_schema(schema: pa.Schema, kind: str, pattern: str) -> pa.Schema:
    """A schema in normal form, of types that the format can hold."""
    found = normal_schema(schema, pattern)
    nested = [field.name for field in found if kind == "csv" and not is_scalar(field.type)]
    if nested:
        raise QueryError(f"{pattern!r}: a CSV file holds no lists and structs, which {choices(nested)} are said to be")
    return found


def _schema(path: str, kind: str, lenient: bool) -> pa.Schema:
    rejects = _Passed(path) if lenient else Rejects(path)
    try:
        match kind:
            case "parquet":
                return pq.read_schema(path).remove_metadata()
            case "csv":
                return infer_csv(path, rejects)
            case _:
                return infer_json(path, rejects)
    except (OSError, pa.ArrowException) as error:
        raise QueryError(f"cannot read the schema of {path}: {error}; declare it: schema=...") from error


class _Passed(Rejects):
    """Lets malformed records pass: they are set aside when the query runs."""

    def add(self, found: Malformed) -> None:
        self.count += 1
