"""Files that a pattern stands for: their order, the schema of their records, and how they are read.

A format is two functions in a file of its own and an entry of `FORMATS`.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

import pyarrow as pa

from tidegate.errors import DataError, QueryError, choices
from tidegate.query.schema import has_map_inside, is_scalar, normal_schema
from tidegate.sources import Malformed, PlacedBatch, Rejects
from tidegate.sources.csv_lines import infer_csv, read_csv
from tidegate.sources.json_lines import infer_json, read_json
from tidegate.sources.parquet import infer_parquet, read_parquet


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files of one format are read.

    ``infer(path, rejects)`` gives the columns of a file, none if it holds no record. ``read(path, files, schema, rows,
    rejects, time)`` gives its records, as `BatchOrigin.batches` does. Records of ``text`` are lines, each of which may be
    malformed by itself. Without ``nesting`` a record holds no lists, structs and maps.
    """

    suffixes: tuple[str, ...]
    infer: Callable[[str, Rejects], pa.Schema]
    read: Callable[[str, Files, pa.Schema, int, Rejects, str | None], Iterator[PlacedBatch]]
    text: bool = True
    nesting: bool = True


FORMATS = {
    "parquet": FileFormat((".parquet",), infer_parquet, read_parquet, text=False),
    "jsonl": FileFormat((".jsonl", ".json", ".ndjson"), infer_json, read_json),
    "csv": FileFormat((".csv",), infer_csv, read_csv, nesting=False),
}
SUFFIXES = {suffix: name for name, each in FORMATS.items() for suffix in each.suffixes}


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
        # None are left to a run that goes on where another one had read them all.
        first = Path(self.paths[0] if self.paths else self.pattern)
        return first.parent.name if len(self.paths) > 1 and first.parent.name else first.stem

    @property
    def is_text(self) -> bool:
        """Whether the records are lines, each of which may be malformed by itself."""
        return FORMATS[self.format].text

    def batches(self, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None = None) -> Iterator[PlacedBatch]:
        """The records of all files; see `BatchOrigin`."""
        for path in self.paths:
            try:
                yield from FORMATS[self.format].read(path, self, schema, rows, rejects, time)
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error}") from error

    def takes(self, path: Path) -> bool:
        """Whether the pattern stands for a path, though there may be no file yet."""
        root = Path(self.pattern)
        if root.is_dir():
            return path.absolute().parent == root.absolute() and path.suffix in SUFFIXES and path.name[0] not in "._"
        return PurePath(path.absolute()).match(str(root.absolute()))


def files_of(pattern: str, schema: pa.Schema | None = None, *, lenient: bool = False, kind: str | None = None) -> Files:
    """The files a path, folder or glob stands for; there must be some, unless their format ``kind`` is known.

    Without a ``schema`` the first file that holds a record gives it, all of whose records are read; a malformed one
    among them is an error, unless the caller is ``lenient`` because it will be set aside when the query runs.
    """
    paths = paths_of(pattern)
    if not paths and kind is None:
        raise QueryError(f"no file matches {pattern!r}; give a file, a folder or a glob of {', '.join(SUFFIXES)} files")
    kinds = {SUFFIXES.get(Path(path).suffix) for path in paths} or {kind}
    if len(kinds) != 1 or None in kinds:
        raise QueryError(f"{pattern!r} must match files of one format, {', '.join(SUFFIXES)}; got {paths[:5]}")
    kind = str(kinds.pop())
    if schema is None:
        found = next((found for found in (_schema(path, kind, lenient) for path in paths) if len(found)), None)
        if found is None:
            raise QueryError(
                f"no file of {pattern!r} holds a record to tell the columns from; declare them: schema=..."
            )
        schema = found
    return Files(pattern, paths, kind, _text_schema(schema, kind, pattern) if FORMATS[kind].text else schema)


def paths_of(pattern: str) -> tuple[str, ...]:
    """The paths that a path, folder or glob stands for now, in the order of their names."""
    root = Path(pattern)
    if root.is_dir():
        paths = sorted(str(path) for path in root.iterdir() if path.suffix in SUFFIXES and path.name[0] not in "._")
    else:
        paths = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())  # noqa: PTH207 - a pattern may be absolute
    return tuple(paths)


def _text_schema(schema: pa.Schema, kind: str, pattern: str) -> pa.Schema:
    """A schema in normal form, of types that the format can hold."""
    found = normal_schema(schema, pattern)
    nested = [field.name for field in found if not FORMATS[kind].nesting and not is_scalar(field.type)]
    if nested:
        raise QueryError(
            f"{pattern!r}: a {kind.upper()} file holds no lists, structs and maps, which {choices(nested)} are said to be"
        )
    deep = [field.name for field in found if has_map_inside(field.type)]
    if deep:
        raise QueryError(
            f"{pattern!r}: a map in a text file is a column of its own; {choices(deep)} have maps inside lists, structs or "
            "maps. Write them as parquet"
        )
    return found


def _schema(path: str, kind: str, lenient: bool) -> pa.Schema:
    rejects = _Lenient(path) if lenient else Rejects(path)
    try:
        return FORMATS[kind].infer(path, rejects)
    except (OSError, pa.ArrowException) as error:
        raise QueryError(f"cannot read the schema of {path}: {error}; declare it: schema=...") from error


class _Lenient(Rejects):
    """Counts malformed records: they are set aside when the query runs."""

    def add(self, found: Malformed) -> None:
        self.count += 1
