"""The predicate of a join: what the user gave, and its tree if it has one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from tidegate.errors import DataError, QueryError, SlowWarning
from tidegate.query import expressions
from tidegate.query.predicates.trace import Untraceable, trace, trace_expression
from tidegate.query.predicates.tree import Column, Tree, evaluate, kind_of

Given = Callable[[Any, Any], Any] | nw.Expr


@dataclass(frozen=True, slots=True, eq=False)
class Predicate:
    """A function of two tuples, or an expression over the columns of a pair.

    ``tree`` is its meaning as a tree; without one ``obstacle`` names what cannot be traced, and the function
    is called, or the expression applied, for every pair.
    """

    given: Given
    tree: Tree | None
    obstacle: str = ""

    def holds(self, left: Mapping[str, Any], right: Mapping[str, Any], step: str) -> bool:
        """Whether a pair fits, asked of the tree or the function; a failure names the pair."""
        assert self.tree is not None or not isinstance(self.given, nw.Expr)
        try:
            result = self.given(Row(left), Row(right)) if self.tree is None else evaluate(self.tree, left, right)  # type: ignore[operator]
        except Exception as error:
            raise failed_on(step, left, right, f"raised {type(error).__name__}: {error}") from error
        if result is not None and not isinstance(result, bool | np.bool_):
            raise failed_on(step, left, right, f"returned {result!r}, which is neither true nor false,")
        return bool(result)

    def __str__(self) -> str:
        if self.tree is not None:
            return str(self.tree)
        return repr(self.given) if isinstance(self.given, nw.Expr) else f"{_name(self.given)}(l, r)"


@dataclass(frozen=True, slots=True)
class Row:
    """A tuple as a predicate that is not compiled sees it: columns are attributes or items, null is None.

    Times are whole numbers of microseconds, dates of days.
    """

    values: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"the tuple has no column '{name}'; it has {', '.join(self.values)}") from None

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def failed_on(step: str, left: Mapping[str, Any], right: Mapping[str, Any], what: str) -> DataError:
    """The error of a predicate that cannot be asked of some pair."""
    return DataError(
        f"step '{step}': the predicate {what} on the pair l = {dict(left)}, r = {dict(right)}; make it answer for such "
        "pairs too, or filter the tuples out before the join"
    )


def plain_values(rows: pa.Table) -> list[dict[str, Any]]:
    """Tuples as predicates see them: times as microseconds, dates as days."""
    columns = []
    for column in rows.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        elif pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        columns.append(column.to_pylist())
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def predicate_of(
    given: Any, left: pa.Schema, right: pa.Schema, pair: pa.Schema, columns: Mapping[str, Column], step: str
) -> Predicate:
    """Check what a user gave; warns if it cannot be compiled.

    ``pair`` is what an expression sees of two tuples, ``columns`` where each of its columns comes from.
    """
    if isinstance(given, nw.Expr):
        return _of_expression(given, pair, columns, step)
    if not callable(given):
        raise QueryError(
            f"step '{step}': where is a function of two tuples, as in lambda l, r: l.x < r.y, or a Narwhals expression over "
            f"the columns of a pair; got {given!r}"
        )
    try:
        return Predicate(given, trace(given, left, right, step))
    except Untraceable as error:
        warnings.warn(
            f"step '{step}': the predicate is interpreted, pair by pair, because it cannot be compiled: {error}",
            SlowWarning,
            stacklevel=4,
        )
        return Predicate(given, None, str(error))


def _of_expression(expr: nw.Expr, pair: pa.Schema, columns: Mapping[str, Column], step: str) -> Predicate:
    expressions.derive_condition(step, pair, "a predicate", expr)
    narrow = [
        name
        for name in expressions.columns_read((expr,), pair)
        if kind_of(pair.field(name).type) is None or _is_narrow(pair.field(name).type)
    ]
    try:
        if narrow:
            raise Untraceable(f"column '{narrow[0]}' of type {pair.field(narrow[0]).type}")
        return Predicate(expr, trace_expression(expr, columns))
    except Untraceable as error:
        return Predicate(expr, None, str(error))


def _is_narrow(kind: pa.DataType) -> bool:
    """Types that Arrow computes in otherwise than a tree does: numbers of less than 64 bits, and moments."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool((numbers and kind.bit_width < 64) or pa.types.is_temporal(kind))


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
