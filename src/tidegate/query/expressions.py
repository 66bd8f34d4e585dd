"""Narwhals expressions as parts of a query: what they read, what they make, and how they run on Arrow.

A stateless step works on one tuple at a time, so its expressions must be element-wise: the result of a row may depend
on that row alone, or the answer would depend on how rows happen to be batched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa

from tidegate.errors import QueryError, choices

_ELEMENTWISE = frozenset({"LITERAL", "ELEMENTWISE", "COL", "NTH", "EXCLUDE", "ALL", "SELECTOR"})
_MANY = frozenset({"NTH", "EXCLUDE", "ALL", "SELECTOR"})


def as_expr(value: Any) -> nw.Expr:
    """An expression from what a user wrote: an expression, a column name, or a constant by keyword."""
    return value if isinstance(value, nw.Expr) else nw.col(value) if isinstance(value, str) else nw.lit(value)


def check_elementwise(expr: nw.Expr, step: str) -> None:
    """Refuse expressions whose value for a row depends on other rows."""
    for node in walk_expression(expr):
        if node.kind.name not in _ELEMENTWISE:
            raise QueryError(
                f"step '{step}': {expr!r} uses '{node.name}', which looks at other rows of the batch; a stateless step "
                "sees one tuple at a time. Use key_by(...).window(...).aggregate(...) to combine tuples"
            )


def columns_read(exprs: Sequence[nw.Expr], schema: pa.Schema) -> frozenset[str]:
    """The columns that some expressions need, with those that a function takes by bare name.

    >>> sorted(columns_read([nw.coalesce("a", "b")], pa.schema([("a", pa.int64()), ("b", pa.int64())])))
    ['a', 'b']
    """
    names: set[str] = set()
    for expr in exprs:
        for node in walk_expression(expr):
            if node.kind.name in _MANY:
                return frozenset(schema.names)
            names.update(node.kwargs.get("names", ()) if node.kind.name == "COL" else ())
            names.update(bare for bare in node.exprs if isinstance(bare, str) and not node.str_as_lit)
    return frozenset(names)


def with_columns(table: pa.Table, exprs: Sequence[nw.Expr]) -> pa.Table:
    """Add or replace columns of an Arrow table."""
    result: pa.Table = nw.from_native(table, eager_only=True).with_columns(*exprs).to_native()
    return result


def select(table: pa.Table, exprs: Sequence[nw.Expr]) -> pa.Table:
    """Keep only the columns that some expressions make."""
    result: pa.Table = nw.from_native(table, eager_only=True).select(*exprs).to_native()
    return result


def keep(table: pa.Table, predicate: nw.Expr) -> pa.Table:
    """Keep the rows for which a predicate is true; null is not true."""
    result: pa.Table = nw.from_native(table, eager_only=True).filter(predicate).to_native()
    return result


def derive(step: str, schema: pa.Schema, function: Any, exprs: Any) -> pa.Schema:
    """The schema a stateless function makes, found by running it on no rows; mistakes become `QueryError`."""
    try:
        made: pa.Schema = function(schema.empty_table(), exprs).schema
    except nw.exceptions.ColumnNotFoundError as error:
        unknown = sorted(columns_read(exprs if isinstance(exprs, tuple) else (exprs,), schema) - set(schema.names))
        raise QueryError(
            f"step '{step}': unknown column {choices(unknown)}; the stream has {choices(schema.names)}"
        ) from error
    except (pa.ArrowException, nw.exceptions.NarwhalsError, TypeError, ValueError, AttributeError) as error:
        types = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise QueryError(f"step '{step}': {exprs!r} does not fit the stream's types ({types}): {error}") from error
    return made


def walk_expression(expr: nw.Expr) -> Iterator[Any]:
    """The functions of an expression and of its arguments."""
    # Narwhals has no public way to ask what an expression reads; its version is pinned for this.
    for node in expr._nodes:
        yield node
        for inner in node.exprs:
            if isinstance(inner, nw.Expr):
                yield from walk_expression(inner)
