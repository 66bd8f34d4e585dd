"""Results of a run: folders of parts, readable by anything that reads parquet or JSON lines, and rows as text."""

from __future__ import annotations

import base64
import json
import math
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import CheckpointError, DataError, EnvironmentFault, QueryError, UserError, choices
from tidegate.sources import read_table
from tidegate.sources.files import Files

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

SUFFIXES = {"parquet": ".parquet", "jsonl": ".json"}
SPARK_LOG = "_spark_metadata"
DRAFT = ".draft-"
"""How the names of parts begin that are being written."""
WIDEST = 40
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


def rows_table(table: pa.Table) -> Table:
    """Rows under the names of their columns, for `rich`; numbers end together, long values are cut."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        right = any(of(column.type) for of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
        columns.append((name, "right" if right else "left", [_cell(value) for value in _values(column)]))
    return text_table(*columns)


def text_table(*columns: tuple[str, str, list[str]]) -> Table:
    """A table without lines, for `rich`, from the name, the side ('left' or 'right') and the cells of each column."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    for number, (name, side, _) in enumerate(columns, 1):
        # Where the screen is narrow, the last column is wrapped.
        table.add_column(Text(name), justify="right" if side == "right" else "left", no_wrap=number < len(columns))
    for row in zip(*(cells for *_, cells in columns), strict=True):
        table.add_row(*map(Text, row))
    return table


def plain(shown: RenderableType, width: int = 10_000) -> str:
    """What `rich` renders, as plain text of at most this width, without colours and without blanks at the ends of lines."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=width, color_system=None, highlight=False).print(shown)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def show_rows(table: pa.Table) -> str:
    """Rows in aligned columns under their names.

    >>> print(show_rows(pa.table({"who": ["ann", "bo"], "n": [7, 12]})))
    who   n
    ann   7
    bo   12
    """
    return plain(rows_table(table))


def html_table(table: pa.Table) -> str:
    """Rows as an HTML table under the names of their columns.

    >>> html_table(pa.table({"a<b": [1]}))
    '<table><tr><th>a&lt;b</th></tr><tr><td>1</td></tr></table>'
    """
    cells = [[_cell(value) for value in _values(column)] for column in table.columns]
    rows = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in table.column_names)}</tr>"]
    rows += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in zip(*cells, strict=True)]
    return f"<table>{''.join(rows)}</table>"


def show_count(total: int, shown: int) -> str:
    """The line below a table: how many rows there are."""
    rows = f"{total:,} row{'' if total == 1 else 's'}"
    return f"({rows}, {shown:,} shown)" if shown < total else f"({rows})"


def show_first(name: str | None, rows: pa.Table | None, total: int | None = None) -> str:
    """The first rows of a result, below its name if there are several, and how many there are if that is known.

    >>> print(show_first("calls", pa.table({"who": ["ann"]}), 3))
    calls
    who
    ann
    (3 rows, 1 shown)
    """
    title = "" if name is None else f"{name}\n"
    if rows is None or not rows.num_rows:
        return f"{title}(no rows)"
    counted = "" if total is None else f"\n{show_count(total, rows.num_rows)}"
    return f"{title}{show_rows(rows)}{counted}"


def in_order(table: pa.Table, time: str) -> pa.Table:
    """Rows by event time, then by their other columns where these can be compared."""
    others = [field.name for field in table.schema if field.name != time and not pa.types.is_nested(field.type)]
    return table.sort_by([(name, "ascending") for name in (time, *others)])


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Values as Python has them; bytes in text that are not UTF-8 are escaped."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        if not pa.types.is_string(column.type):
            return ["(not UTF-8)"] * len(column)
        raw = column.cast(pa.binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "backslashreplace") for value in raw]


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            text = f"{value:,.6g}"
        case datetime():
            text = f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value.microsecond:06}" if value.microsecond else "")
        case _:
            text = str(value)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def json_lines(table: pa.Table) -> Iterator[str]:
    """Rows as lines of JSON, each with its end."""
    return (json.dumps(row) + "\n" for row in json_rows(table))


def print_json_lines(table: pa.Table) -> None:
    """Write rows to standard output as lines of JSON; they are there when this returns."""
    sys.stdout.writelines(json_lines(table))
    sys.stdout.flush()


def standard_output(on: str, asked: str | None, names: Sequence[str]) -> Callable[[pa.Table], None]:
    """What takes the results of ``to="-"``, if they can go to standard output."""
    if on != "local" or asked not in (None, "jsonl") or names:
        raise QueryError(
            "to='-' writes the rows of one result to standard output, as lines of JSON, with on='local'; name a folder for "
            "other runtimes and formats and for several results. A folder of that name is './-'"
        )
    return print_json_lines


def _objects(value: Any, kind: pa.DataType) -> Any:
    """A value whose maps are dicts; Arrow gives them as pairs."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        found = {_name(name): _objects(item, kind.item_type) for name, item in value}
        if len(found) < len(value):
            raise DataError(f"results: a map has a key twice, {value}, which JSON cannot hold; write format='parquet'")
        return found
    if pa.types.is_struct(kind):
        return {field.name: _objects(value[field.name], field.type) for field in kind}
    return [_objects(part, kind.value_type) for part in value]


def _name(key: Any) -> str:
    """The key of a map as a name in an object of JSON."""
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain)


def json_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as JSON has them; a column of text that is none is named."""
    columns = []
    for name in table.column_names:
        try:
            kind, values = table.schema.field(name).type, table.column(name).to_pylist()
            if pa.types.is_nested(kind):
                values = [_objects(value, kind) for value in values]
            columns.append(values if _is_plain(kind) else list(map(_plain, values)))
        except UnicodeDecodeError as error:
            raise DataError(
                f"results: the column '{name}' has a text that is not UTF-8 ({error.reason}), which JSON cannot hold; write "
                "format='parquet', or cast the column to binary before"
            ) from error
    return (dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True))


def _is_plain(kind: pa.DataType) -> bool:
    """Whether JSON has the values of a type as Python has them."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))


def _plain(value: Any) -> Any:
    """A value as Spark's JSON writer writes it, but for decimals: as text they keep their digits whatever reads them."""
    match value:
        case datetime():
            text = value.strftime("%Y-%m-%dT%H:%M:%S.%f")
            return f"{text}Z" if value.tzinfo is not None else text
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case list():
            return [_plain(part) for part in value]
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case _:
            return value
