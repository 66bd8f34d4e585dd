"""From pairs to result rows."""

from __future__ import annotations

from collections.abc import Iterator

import narwhals as nw
import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, expand_ranges
from tidegate.operators.emit_windows import AT_ONCE, runs_of_windows, window_columns
from tidegate.operators.joins.find_pairs import FoundPairs
from tidegate.operators.joins.join_side import SideSnapshot
from tidegate.operators.joins.near import InSameWindow
from tidegate.query import expressions
from tidegate.query.nodes import Join
from tidegate.query.predicates.predicate import plain_values

BothSides = tuple[SideSnapshot, SideSnapshot]


def pair_rows(node: Join, sides: BothSides, left: Array, right: Array) -> pa.Table:
    """The columns of pairs, given by arrival numbers."""
    rows = sides[0].rows(left), sides[1].rows(right)
    return pa.table({column.name: rows[column.side].column(column.column) for column in node.columns})


def still_fitting(node: Join, sides: BothSides, found: FoundPairs) -> FoundPairs:
    """The pairs that fit a predicate which no loop can evaluate: an expression on whole columns, a function pair by pair."""
    where = node.where
    assert where is not None
    if where.tree is None and isinstance(where.given, nw.Expr):
        pairs = pair_rows(node, sides, found.left, found.right)
        numbered = pairs.append_column("__tg_pair", pa.array(np.arange(len(found.left))))
        return found.take(np.asarray(expressions.keep(numbered, where.given).column("__tg_pair")))
    lefts, rights = plain_values(sides[0].rows(found.left)), plain_values(sides[1].rows(found.right))
    fits = [where.holds(one, other, node.name) for one, other in zip(lefts, rights, strict=True)]
    return found.take(np.flatnonzero(np.array(fits, np.bool_)))


def rows_at_the_later(node: Join, sides: BothSides, found: FoundPairs) -> pa.Table:
    """Result rows in the order of their times, the later one of each pair."""
    times = np.maximum(found.left_times, found.right_times)
    order = np.argsort(times, kind="stable")
    pairs = pair_rows(node, sides, found.left[order], found.right[order])
    moment = node.schema.field(node.time).type
    return _table(node, pairs, {node.time: pa.array(times[order]).view(moment)})


def rows_of_windows(
    node: Join, near: InSameWindow, sides: BothSides, found: FoundPairs, first: int, last: int
) -> Iterator[pa.Table]:
    """Result rows in the order of their windows, `AT_ONCE` at a time: a pair once for each it shares in a range."""
    begin, _ = near.windows(np.maximum(found.left_times, found.right_times), first, last)
    _, end = near.windows(np.minimum(found.left_times, found.right_times), first, last)
    for which, low, high in runs_of_windows(begin, end, AT_ONCE):
        lowest = np.maximum(begin[which], low)
        times = np.minimum(end[which], high) - lowest + 1
        take, windows = expand_ranges(lowest, times)
        order = np.argsort(windows, kind="stable")
        take, windows = which[take[order]], windows[order]
        pairs = pair_rows(node, sides, found.left[take], found.right[take])
        yield _table(node, pairs, window_columns(node, windows))


def _table(node: Join, pairs: pa.Table, moments: dict[str, pa.Array]) -> pa.Table:
    columns = [moments[name] if name in moments else pairs.column(name) for name in node.schema.names]
    return pa.table(columns, schema=node.schema)
