"""Results of a run: folders of parts, readable by anything that reads parquet or JSON lines."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import CheckpointError, DataError, EnvironmentFault, QueryError, UserError, choices
from tidegate.sources import read_table
from tidegate.sources.files import Files
from tidegate.tables import html_table, json_lines

SUFFIXES = {"parquet": ".parquet", "jsonl": ".json"}
SPARK_LOG = "_spark_metadata"
DRAFT = ".draft-"
"""How the names of parts begin that are being written."""
HTML_ROWS = 10


def format_of(to: Path, asked: str | None) -> str:
    """The format of a result folder: what was asked for, else by the folder's suffix, else parquet.

    >>> format_of(Path("out.jsonl"), None)
    'jsonl'
    """
    if asked is None:
        return "jsonl" if to.suffix in (".jsonl", ".ndjson") else "parquet"
    if asked not in SUFFIXES:
        raise QueryError(f"there is no result format {asked!r}; choose one of {choices(SUFFIXES)}")
    return asked


def local_folder(path: str | Path, what: str) -> Path:
    """An absolute path; addresses of other file systems are refused."""
    if "://" in str(path):
        raise QueryError(
            f"{what} {str(path)!r} is an address, and tg.run works with local or mounted folders; for other file "
            "systems use query.to_spark() with writeStream"
        )
    return Path(path).expanduser().absolute()


def visible_entries(folder: Path) -> list[str]:
    """What a reader of a folder would see: names that begin with neither '_' nor '.'."""
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if entry.name[0] not in "_.")


def result_folder(folder: Path, name: str | None) -> Path:
    """The folder of a result: the one that was given, or one in it for each of several, which have names."""
    return folder if name is None else folder / name


def require_empty(folder: Path, what: str = "results") -> Path:
    """A folder for results, refused if it holds some."""
    if visible_entries(folder):
        raise CheckpointError(f"{folder} is not empty: the {what} of two runs would be mixed. Choose another folder")
    return folder


def require_writable(folder: Path, what: str = "results") -> Path:
    """Create a folder for results and check that a file can be created in it."""
    probe = folder / f".{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise EnvironmentFault(f"{what} cannot be written to {folder}: {error}; choose another folder") from error
    return folder


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did. It counts its own work: a resumed run does not count again what an earlier one did.

    ``finished`` says that all input was read and every window emitted. ``late`` counts tuples that came too late for
    all of their windows, ``malformed`` records that could not be read and went to a stream's ``dead_letters``, ``ahead``
    tuples that lay too far in the future and were set aside, ``unfilled`` windows in number of tuples that were not full
    when input ended, and gave nothing. ``notes`` says what was done in another way than one may expect. ``outputs`` are
    the names of several results, each in a folder of its own in ``to``.
    """

    to: Path | None
    format: str | None
    schema: pa.Schema
    rows: int
    results: int
    late: int
    batches: int
    finished: bool
    seconds: float
    notes: tuple[str, ...] = ()
    malformed: int = 0
    ahead: int = 0
    outputs: tuple[str, ...] = ()
    unfilled: int = 0

    def __str__(self) -> str:
        where = f" written to {self.to}" if self.to is not None else ""
        malformed = f", {self.malformed:,} malformed" if self.malformed else ""
        ahead = f", {self.ahead:,} ahead" if self.ahead else ""
        unfilled = f", {self.unfilled:,} windows unfilled" if self.unfilled else ""
        return (
            f"{self.rows:,} rows read, {self.late:,} late{malformed}{ahead}{unfilled}; {self.results:,} results{where} "
            f"({self.seconds:.1f} s)"
        )

    def __repr__(self) -> str:
        return f"<RunResult: {self}>"

    def _repr_html_(self) -> str:
        """What the run did, and the first rows of each result in the folder, for notebooks."""
        shown = [f"<div>{escape(str(self))}</div>"]
        if self.to is None or self.format is None:
            return shown[0]
        for name in self.outputs or (None,):
            schema = self.schema if name is None else pa.schema(list(self.schema.field(name).type))
            parts = part_files(result_folder(self.to, name), self.format)[:1]
            first = read_table(Files(str(self.to), (str(parts[0]),), self.format, schema), schema) if parts else None
            shown += [] if name is None else [f"<div><b>{escape(name)}</b></div>"]
            shown.append("<div>no rows</div>" if first is None else html_table(first.slice(0, HTML_ROWS)))
        return "".join(shown)

    def read(self, output: str | None = None) -> pa.Table:
        """All results in the folder, those of earlier runs on the same checkpoint too; of several, those of one name."""
        if self.to is None or self.format is None:
            raise UserError(
                "the results went to the screen, a function or a topic; to read them back, run with to='a folder'"
            )
        if output is None and not self.outputs:
            return read_results(self.to, self.format, self.schema)
        if output is None or output not in self.outputs:
            there = f"it has {choices(self.outputs)}" if self.outputs else "it has one result, so leave the name out"
            raise UserError(
                f"which result of the run? read({'' if output is None else repr(output)}) names none; {there}"
            )
        columns = pa.schema(list(self.schema.field(output).type))
        return read_results(result_folder(self.to, output), self.format, columns)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a folder of results: its name, and how many rows and bytes it has."""

    name: str
    rows: int
    bytes: int


@dataclass(slots=True)
class PartWriter:
    """Writes the parts of a folder one after the other; each appears whole, under its final name, or not at all.

    ``label`` makes the names of its parts differ from those of other writers.
    """

    folder: Path
    format: str
    schema: pa.Schema
    rows_per_part: int = 4_000_000
    label: str = ""
    written: list[Part] = field(default_factory=list)
    _draft: Path | None = None
    _file: Any = None
    _rows: int = 0

    def write(self, table: pa.Table) -> None:
        """Add rows to the part that is being written; if that fails, the part is gone."""
        parquet = self.format == "parquet"
        with self._whole_or_gone():
            if self._file is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._draft = draft = self.folder / f"{DRAFT}{uuid.uuid4().hex}"
                self._file = pq.ParquetWriter(draft, self.schema) if parquet else draft.open("w", encoding="utf-8")
            if parquet:
                self._file.write_table(table)
            else:
                self._file.writelines(json_lines(table))
        self._rows += table.num_rows
        if self._rows >= self.rows_per_part:
            self.close()

    def close(self) -> None:
        """Give the part its name."""
        if self._file is None or self._draft is None:
            return
        name = f"part-{self.label}{len(self.written):05}{SUFFIXES[self.format]}"
        with self._whole_or_gone():
            self._file.close()
            size = self._draft.stat().st_size
            self._draft.rename(self.folder / name)
        self.written.append(Part(name, self._rows, size))
        self._file, self._draft, self._rows = None, None, 0

    def discard(self) -> None:
        """Forget the part that is being written; those that have their name stay."""
        if self._file is not None and self._draft is not None:
            # What cannot be written cannot be closed in order either.
            with suppress(OSError, pa.ArrowException):
                self._file.close()
            with suppress(OSError):
                self._draft.unlink(missing_ok=True)
            self._file, self._draft, self._rows = None, None, 0

    @contextmanager
    def _whole_or_gone(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            whole = f"; the {len(self.written)} parts before are whole" if self.written else ""
            raise EnvironmentFault(f"results cannot be written to {self.folder}: {error}{whole}") from error
        except DataError:
            self.discard()
            raise


def write_results(table: pa.Table, to: Path, kind: str) -> None:
    """Write a table as the only part of a folder, whole or not at all."""
    writer = PartWriter(to, kind, table.schema, rows_per_part=table.num_rows + 1)
    try:
        writer.write(table)
        writer.close()
    except BaseException:
        writer.discard()
        raise


def read_results(to: Path, kind: str, schema: pa.Schema) -> pa.Table:
    """All rows of a result folder."""
    parts = tuple(str(part) for part in part_files(to, kind))
    if not parts:
        return schema.empty_table()
    return read_table(Files(str(to), parts, kind, schema), schema)


def part_files(to: Path, kind: str) -> list[Path]:
    """The parts that belong to the results, in name order: where Spark keeps a log of them, those in the log."""
    found = sorted(part for part in to.glob(f"*{SUFFIXES[kind]}") if part.name[0] not in "_." and part.stat().st_size)
    listed = logged_names(to)
    return found if listed is None else [part for part in found if part.name in listed]


def remove_unlisted(to: Path) -> int:
    """Delete parts that attempts left behind without committing them; only while nothing writes to the folder.

    Spark's own readers skip such parts. With them gone, so does everything else that reads the folder.
    """
    listed = logged_names(to)
    if listed is None:
        return 0
    orphans = [part for part in (*to.glob("part-*"), *to.glob(f"{DRAFT}*")) if part.name not in listed]
    for part in orphans:
        part.unlink(missing_ok=True)
        (to / f".{part.name}.crc").unlink(missing_ok=True)
    return len(orphans)


def has_log(to: Path) -> bool:
    """Whether some batch was committed to a folder, with results or without, by the log that Spark's file sink keeps."""
    log = to / SPARK_LOG
    return log.is_dir() and any(entry.name[0] != "." for entry in log.iterdir())


def logged_names(to: Path) -> frozenset[str] | None:
    """The names of the parts in the log that Spark's file sink keeps, None if there is no log."""
    log = to / SPARK_LOG
    if not log.is_dir():
        return None
    names = set()
    for entry in log.iterdir():
        if entry.name[0] != "." and entry.is_file():
            for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
                names.add(json.loads(line)["path"].rsplit("/", 1)[-1])
    return frozenset(names)
