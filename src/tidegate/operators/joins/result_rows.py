"""From pairs of tuples, and tuples alone, to the rows of a join's result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.columns import Array, expand_ranges
from tidegate.operators.emit_windows import AT_ONCE, runs_of_windows, window_columns
from tidegate.operators.joins.find_pairs import FoundPairs, PairFailed
from tidegate.operators.joins.first_pairs import ResultSpans
from tidegate.query.nodes import CountJoin, Join, JoinColumn
from tidegate.query.overflow import keep_fitting
from tidegate.query.predicates.predicate import failed_on, plain_values
from tidegate.query.predicates.tree import LEFT, RIGHT


class TupleRows(Protocol):
    """The tuples of one side."""

    def rows(self, numbers: Array) -> pa.Table:
        """Some of them by their numbers, in this order."""
        ...


BothSides: TypeAlias = tuple[TupleRows, TupleRows]


def pair_rows(
    node: Join | CountJoin,
    sides: BothSides,
    left: Array,
    right: Array,
    columns: Sequence[JoinColumn] | None = None,
) -> pa.Table:
    """The columns of pairs, or some of them, given by arrival numbers; nulls where there is nobody."""
    wanted = node.columns if columns is None else columns
    numbers = left, right
    used = {column.side for column in wanted} | {RIGHT for column in wanted if column.coalesced}
    rows = {side: sides[side].rows(numbers[side]) for side in used}
    made = {}
    for column in wanted:
        made[column.name] = rows[column.side].column(column.column)
        if column.coalesced:
            either = [rows[side].column(column.column).cast(column.type) for side in (LEFT, RIGHT)]
            made[column.name] = pc.coalesce(*either)
    return pa.table(made)


def _still_fitting(node: Join | CountJoin, sides: BothSides, found: FoundPairs) -> FoundPairs:
    """The pairs that fit a predicate which no loop can evaluate: an expression on whole columns, a function pair by pair."""
    where = node.where
    assert where is not None
    if where.tree is None and isinstance(where.given, nw.Expr):
        pairs = pair_rows(node, sides, found.left, found.right)
        numbered = pairs.append_column("__tg_pair", pa.array(np.arange(len(found.left))))
        return found.take(np.asarray(keep_fitting(numbered, where.given).column("__tg_pair")))
    lefts, rights = plain_values(sides[0].rows(found.left)), plain_values(sides[1].rows(found.right))
    fits = [where.holds(one, other, node.name) for one, other in zip(lefts, rights, strict=True)]
    return found.take(np.flatnonzero(np.array(fits, np.bool_)))


def fitting_pairs(
    node: Join | CountJoin, sides: BothSides, found: Iterable[FoundPairs], decided: bool
) -> list[FoundPairs]:
    """All that loops find; unless they ``decided``, what fits the predicate of it. A pair without a value is an error."""
    try:
        return [each if decided or node.where is None else _still_fitting(node, sides, each) for each in found]
    except PairFailed as failed:
        left, right = (
            plain_values(side.rows(np.array([number])))[0] for side, number in zip(sides, failed.args, strict=True)
        )
        raise failed_on(node.name, left, right, "divides a whole number by zero") from None


def rows_at(node: Join | CountJoin, sides: BothSides, left: Array, right: Array, times: Array) -> pa.Table:
    """Result rows in the order of their times."""
    order = np.argsort(times, kind="stable")
    moments = {node.time: pa.array(times[order]).view(node.schema.field(node.time).type)}
    return _table(node, sides, left[order], right[order], moments)


def rows_of_windows(node: Join, sides: BothSides, spans: ResultSpans) -> Iterator[pa.Table]:
    """Result rows in the order of their windows, `AT_ONCE` at a time: once for each window of theirs."""
    begin, end = spans.begin, spans.end
    for which, low, high in runs_of_windows(begin, end, AT_ONCE):
        lowest = np.maximum(begin[which], low)
        times = np.minimum(end[which], high) - lowest + 1
        take, windows = expand_ranges(lowest, times)
        order = np.argsort(windows, kind="stable")
        take, windows = which[take[order]], windows[order]
        yield _table(node, sides, spans.left[take], spans.right[take], window_columns(node, windows))


def _table(
    node: Join | CountJoin, sides: BothSides, left: Array, right: Array, moments: dict[str, pa.Array]
) -> pa.Table:
    wanted = [column for column in node.columns if column.name in node.schema.names]
    pairs = pair_rows(node, sides, left, right, wanted)
    columns = [moments[name] if name in moments else pairs.column(name) for name in node.schema.names]
    return pa.table(columns, schema=node.schema)
