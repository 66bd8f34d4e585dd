"""What the compiler must know about a Narwhals expression before it may move it.

Narwhals has no public way to take an expression apart; its version is pinned for this.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa

from tidegate.query import expressions

_ANY_COLUMN = "__tg_any"

# Functions that give a value, or null, for every value of the types they accept. Arithmetic is not among them: Spark
# raises on overflow and on division by zero.
_CANNOT_FAIL = frozenset(
    {"col", "lit", "alias", "coalesce", "fill_null", "when_then", "all_horizontal", "any_horizontal"}
    | {"__and__", "__rand__", "__or__", "__ror__", "__invert__", "is_null", "is_nan", "is_finite"}
    | {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "is_in", "is_between"}
    | {"str.contains", "str.starts_with", "str.ends_with", "str.len_chars"}
)


def parts(expr: nw.Expr) -> tuple[Any, ...]:
    """The functions of an expression from the innermost out, without their arguments' own."""
    return tuple(expr._nodes)


def columns_made(exprs: tuple[nw.Expr, ...], schema: pa.Schema, step: str) -> tuple[str, ...]:
    """The columns that some expressions make, in order."""
    return tuple(expressions.derive(step, schema, expressions.select, exprs).names)


def columns_passed(expr: nw.Expr, schema: pa.Schema) -> tuple[str, ...] | None:
    """The columns an expression hands on under their own names and unchanged; None if it does anything else.

    >>> schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    >>> columns_passed(nw.col("b"), schema), columns_passed(nw.all(), schema), columns_passed(nw.col("b") + 1, schema)
    (('b',), ('a', 'b'), None)
    """
    match parts(expr):
        case (only,) if only.kind.name == "COL":
            return tuple(only.kwargs["names"])
        case (only,) if only.kind.name == "ALL":
            return tuple(schema.names)
        case _:
            return None


def names_its_columns(expr: nw.Expr) -> bool:
    """Whether an expression means the same over any stream with the columns it names: no ``all()``, no ``nth()``."""
    return _ANY_COLUMN not in expressions.columns_read([expr], pa.schema([(_ANY_COLUMN, pa.null())]))


def cannot_fail(expr: nw.Expr) -> bool:
    """Whether an expression has a value for every row, so that showing it more rows raises nothing.

    >>> cannot_fail(nw.col("x") > 3), cannot_fail(nw.col("text").cast(nw.Int64) > 3)
    (True, False)
    """
    return all(part.name in _CANNOT_FAIL for part in expressions.walk_expression(expr))
