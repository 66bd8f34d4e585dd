"""Answers compared as bags: order does not count, multiplicity does; floats agree to one part in 10⁹."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa

from tidegate.query.order import canonical


def same_bag(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables hold the same rows."""
    return difference(left, right) is None


def difference(left: pa.Table, right: pa.Table) -> str | None:
    """None if two tables hold the same rows, else a text that shows how they differ."""
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
