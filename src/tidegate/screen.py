"""Result rows as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

WIDEST = 40


def show_rows(table: pa.Table) -> str:
    """Rows in aligned columns under their names; numbers end together, long values are cut.

    >>> print(show_rows(pa.table({"who": ["ann", "bo"], "n": [7, 12]})))
    who   n
    ann   7
    bo   12
    """
    cells = [[_text(value) for value in _values(column)] for column in table.columns]
    columns = []
    for name, kind, column in zip(table.column_names, table.schema.types, cells, strict=True):
        width = max(map(len, [name, *column]))
        right = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        columns.append([text.rjust(width) if right else text.ljust(width) for text in (name, *column)])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def show_count(total: int, shown: int) -> str:
    """The line below a table: how many rows there are."""
    rows = f"{total:,} row{'' if total == 1 else 's'}"
    return f"({rows}, {shown:,} shown)" if shown < total else f"({rows})"


def in_order(table: pa.Table, time: str) -> pa.Table:
    """Rows by event time, then by their other columns where these can be compared."""
    plain: Sequence[str] = [
        field.name
        for field in table.schema
        if field.name != time and not (pa.types.is_list(field.type) or pa.types.is_struct(field.type))
    ]
    return table.sort_by([(time, "ascending"), *((name, "ascending") for name in plain)])


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Values as Python has them; bytes in text that are no UTF-8 are escaped."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        if not pa.types.is_string(column.type):
            return ["(not UTF-8)"] * len(column)
        raw = column.cast(pa.binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "backslashreplace") for value in raw]


def _text(value: Any) -> str:
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
