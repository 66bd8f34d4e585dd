"""From pairs to result rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from tidegate.operators.emit_windows import AT_ONCE, runs_of_windows
from tidegate.operators.joins.near import Sharing
from tidegate.operators.joins.row_store import Rows
from tidegate.query import expressions
from tidegate.query.nodes import Join
from tidegate.query.predicates.predicate import plain_values

Array = np.ndarray[Any, Any]
Stores = tuple[Rows, Rows]


def pair_rows(node: Join, stores: Stores, left: Array, right: Array) -> pa.Table:
    """The columns of pairs, given by arrival numbers."""
    rows = stores[0].take(left), stores[1].take(right)
    return pa.table({made.name: rows[made.side].column(made.column) for made in node.columns})


def still_fitting(node: Join, stores: Stores, left: Array, right: Array) -> Array:
    """Which pairs fit a predicate that no loop can ask: an expression on whole columns, a function pair by pair."""
    where = node.where
    assert where is not None
    if where.tree is None and isinstance(where.given, nw.Expr):
        pairs = pair_rows(node, stores, left, right)
        numbered = pairs.append_column("__tg_pair", pa.array(np.arange(len(left))))
        return np.asarray(expressions.keep(numbered, where.given).column("__tg_pair"))
    lefts, rights = (plain_values(store.take(side)) for store, side in zip(stores, (left, right), strict=True))
    fits = [where.holds(one, other, node.name) for one, other in zip(lefts, rights, strict=True)]
    return np.flatnonzero(np.array(fits, np.bool_))


def pairs_at_the_later(node: Join, stores: Stores, left: Array, right: Array, times: Array) -> pa.Table:
    """Result rows in the order of their times."""
    order = np.argsort(times, kind="stable")
    pairs = pair_rows(node, stores, left[order], right[order])
    moment = node.schema.field(node.time).type
    return _table(node, pairs, {node.time: pa.array(times[order]).view(moment)})


def pairs_of_windows(
    node: Join, near: Sharing, stores: Stores, left: Array, right: Array, begin: Array, end: Array
) -> Iterator[pa.Table]:
    """Result rows in the order of their windows, `AT_ONCE` at a time: a pair once for each from ``begin`` to ``end``."""
    moment = node.schema.field(node.time).type
    for which, low, high in runs_of_windows(begin, end, AT_ONCE):
        first = np.maximum(begin[which], low)
        times = np.minimum(end[which], high) - first + 1
        take = np.repeat(np.arange(len(times)), times)
        windows = first[take] + np.arange(len(take)) - np.repeat(np.cumsum(times) - times, times)
        order = np.argsort(windows, kind="stable")
        take, windows = which[take[order]], windows[order]
        starts = windows * near.window.every
        made = {
            node.time: pa.array(starts + near.window.size - 1).view(moment),
            "window_start": pa.array(starts).view(moment),
            "window_end": pa.array(starts + near.window.size).view(moment),
        }
        yield _table(node, pair_rows(node, stores, left[take], right[take]), made)


def _table(node: Join, pairs: pa.Table, moments: dict[str, pa.Array]) -> pa.Table:
    columns = [moments[name] if name in moments else pairs.column(name) for name in node.schema.names]
    return pa.table(columns, schema=node.schema)
