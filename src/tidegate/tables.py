"""Rows as people and programs read them: text, HTML, and JSON lines."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.errors import DataError, QueryError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WIDEST = 40


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
