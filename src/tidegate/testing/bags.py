"""Answers compared as bags: order does not count, multiplicity does; floats agree to one part in 10⁹."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from tidegate.errors import InternalError, QueryError
from tidegate.query.schema import canonical
from tidegate.reference import Answer

TableOrRows: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]


def same_bag(left: TableOrRows, right: TableOrRows) -> bool:
    """Whether two tables hold the same rows; one of them may be given as a list of dicts."""
    return difference(left, right) is None


def difference(left: TableOrRows, right: TableOrRows) -> str | None:
    """None if two tables hold the same rows, else a text that shows how they differ.

    One of them may be given as a list of dicts, with a value for each column.

    >>> difference(pa.table({"k": ["a"], "n": [1]}), [{"k": "a", "n": 2}]).splitlines()[1:]
    ["only left:  ('a', 1)", "only right: ('a', 2)"]
    """
    for given in (left, right):
        _check(given)
    if not isinstance(left, pa.Table):
        if not isinstance(right, pa.Table):
            raise QueryError("difference: at least one side is a table, which gives the types of the other's values")
        text = difference(right, left)
        swap = {"only left: ": "only right:", "only right:": "only left: "}
        return None if text is None else re.sub("only left: |only right:", lambda found: swap[found[0]], text)
    if not isinstance(right, pa.Table):
        names = list(dict.fromkeys(name for row in right for name in row))
        if right and sorted(names) != sorted(left.column_names):
            return f"columns differ: {left.column_names} and {names}"
        try:
            right = pa.Table.from_pylist(list(right), schema=left.schema)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise QueryError(f"difference: {_misfit(right, left.schema)}") from error
    if left.schema.names != right.schema.names:
        return f"columns differ: {left.schema.names} and {right.schema.names}"
    ours, theirs = _rows(left), _rows(right)
    if len(ours) == len(theirs) and all(_close(a, b) for a, b in zip(ours, theirs, strict=True)):
        return None
    only_left, only_right = _bag(ours) - _bag(theirs), _bag(theirs) - _bag(ours)
    shown = [f"only left:  {row}" for row in list(only_left)[:5]] + [
        f"only right: {row}" for row in list(only_right)[:5]
    ]
    return f"{len(ours)} rows and {len(theirs)} rows\n" + "\n".join(shown)


def last_revisions(table: pa.Table, keys: list[str]) -> pa.Table:
    """The last refinement of each key and window, without its number."""
    if "revision" not in table.schema.names:
        return table
    last: dict[Any, dict[str, Any]] = {}
    for row in table.to_pylist():
        place = (tuple(canonical(row[key]) for key in keys), row["window_start"])
        if place not in last or row["revision"] >= last[place]["revision"]:
            last[place] = row
    return pa.Table.from_pylist(list(last.values()), schema=table.schema).drop_columns(["revision"])


def _check(given: Any) -> None:
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    if isinstance(given, pa.Table) or (listed and all(isinstance(row, Mapping) for row in given)):
        return
    meant = "; did you mean answer(...).rows?" if isinstance(given, Answer) else ""
    raise QueryError(f"difference compares tables or lists of dicts; got {type(given).__name__}{meant}")


def _misfit(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> str:
    """The first value that is not of its column's type."""
    for field in schema:
        for row in rows:
            try:
                pa.array([row.get(field.name)], field.type)
            except (pa.ArrowException, TypeError, ValueError):
                return f"'{field.name}' is {field.type}, and {row.get(field.name)!r} is not"
    raise InternalError("rows do not fit, and none of their values is at fault")


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    rows = [tuple(row.values()) for row in table.to_pylist()]
    # Floats sort last, so that rows that differ by rounding alone still meet.
    return sorted(rows, key=lambda row: (canonical([0.0 if isinstance(c, float) else c for c in row]), canonical(row)))


def _bag(rows: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(map(repr, rows))


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(_close(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or one == other or math.isclose(one, other, rel_tol=1e-9)
    return bool(canonical(one) == canonical(other))
