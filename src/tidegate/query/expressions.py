"""Narwhals expressions as parts of a query: what they read and compute, how they run on Arrow, and their text.

A stateless step works on one tuple at a time, so its expressions must be element-wise: the result of a row may depend
on that row alone, or the answer would depend on how rows happen to be batched.

Narwhals has no public API to take an expression apart. `calls_of` is the one place that reads its internals. Where they
are not as expected, in another version, an expression counts as opaque: it runs as it is, nothing rewrites it, all columns
count as read, its text is Narwhals' own, and whether it is element-wise is tried on a few rows.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import narwhals as nw
import pyarrow as pa

from tidegate.errors import QueryError, choices
from tidegate.query.schema import is_decimal, show_columns

_NODES = "_nodes"  # the attribute of an expression that holds its functions
_MANY = frozenset({"NTH", "EXCLUDE", "ALL", "SELECTOR"})
_ELEMENTWISE = _MANY | {"LITERAL", "ELEMENTWISE", "COL"}
_OF_SEVERAL_ROWS = frozenset(
    {"AGGREGATION", "ORDERABLE_AGGREGATION", "WINDOW", "ORDERABLE_WINDOW", "FILTRATION", "ORDERABLE_FILTRATION"}
    | {"OVER", "WHEN_THEN", "SERIES"}
)
_ANY_COLUMN = "__tg_any"

# Functions that give a value, or null, for every value of the types they accept. Arithmetic is not among them: Spark
# raises on overflow and on division by zero.
_CANNOT_FAIL = frozenset(
    {"col", "lit", "alias", "coalesce", "fill_null", "when_then", "all_horizontal", "any_horizontal"}
    | {"__and__", "__rand__", "__or__", "__ror__", "__invert__", "is_null", "is_nan", "is_finite"}
    | {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "is_in", "is_between"}
    | {"str.contains", "str.starts_with", "str.ends_with", "str.len_chars"}
)

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "and": "&", "or": "|", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip

Derivation = Callable[[pa.Table, Any], pa.Table]


@dataclass(frozen=True, slots=True)
class ExpressionCall:
    """One function of an expression, applied to the result of the one before it.

    ``kind`` is what it does to rows, as Narwhals names that. A text among ``arguments`` is a column, unless
    ``text_is_literal``.
    """

    name: str
    kind: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    text_is_literal: bool


def calls_of(expr: nw.Expr) -> tuple[ExpressionCall, ...]:
    """The functions of an expression from the innermost out, without their arguments' own; none if it is opaque."""
    try:
        calls = tuple(
            ExpressionCall(node.name, node.kind.name, tuple(node.exprs), node.kwargs, bool(node.str_as_lit))
            for node in getattr(expr, _NODES)
        )
        return calls if all(map(_is_known, calls)) else ()
    except (AttributeError, TypeError):
        return ()


def _is_known(call: ExpressionCall) -> bool:
    if not (isinstance(call.name, str) and isinstance(call.options, Mapping)):
        return False
    needed = {"COL": "names", "LITERAL": "value"}.get(call.kind)
    return call.kind in _ELEMENTWISE | _OF_SEVERAL_ROWS and (needed is None or needed in call.options)


def calls_before(expr: nw.Expr, number: int) -> nw.Expr:
    """What an expression is before one of its functions, counted from the innermost; only for one that is not opaque."""
    return nw.Expr(*getattr(expr, _NODES)[:number])


def all_calls(expr: nw.Expr) -> Iterator[ExpressionCall | None]:
    """The functions of an expression and of its arguments; None for one that is opaque."""
    calls = calls_of(expr)
    if not calls:
        yield None
    for call in calls:
        yield call
        for inner in call.arguments:
            if isinstance(inner, nw.Expr):
                yield from all_calls(inner)


def as_expr(value: Any) -> nw.Expr:
    """An expression from what a user wrote: an expression, a column name, or a constant by keyword."""
    return value if isinstance(value, nw.Expr) else nw.col(value) if isinstance(value, str) else nw.lit(value)


def check_elementwise(expr: nw.Expr, schema: pa.Schema, step: str) -> None:
    """Refuse expressions whose value for a row depends on other rows."""
    for call in all_calls(expr):
        if call is None and not _looks_elementwise(expr, schema):
            _refuse(expr, step, "")
        if call is not None and call.kind not in _ELEMENTWISE:
            _refuse(expr, step, f"uses '{call.name}', which ")


def _refuse(expr: nw.Expr, step: str, what: str) -> None:
    raise QueryError(
        f"step '{step}': {expr!r} {what}looks at other rows of the batch; a stateless step sees one tuple at a time. Use "
        "key_by(...).window(...).aggregate(...) to combine tuples"
    )


def _looks_elementwise(expr: nw.Expr, schema: pa.Schema) -> bool:
    """Whether an opaque expression gives the same for a few rows together as for each alone."""
    columns = [_samples(field.type, number) for number, field in enumerate(schema)]
    rows = pa.table(columns, schema=schema)
    try:
        together = with_columns(rows, (expr,))
        alone = [with_columns(rows.slice(row, 1), (expr,)) for row in range(rows.num_rows)]
    except Exception:
        # Its types fit; what it cannot do with these values says nothing.
        return True
    return bool(together.equals(pa.concat_tables(alone)))


def _samples(kind: pa.DataType, column: int) -> pa.Array:
    """Eight values of a type with repetitions and a null, distributed otherwise in each column."""
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array(range(9), pa.int32()), _samples(kind.value_type, column)).cast(kind)
    if pa.types.is_map(kind):
        return pa.nulls(8, kind)
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_samples(field.type, column) for field in kind], fields=list(kind))
    bits = [None if row == 3 + column % 5 else row >> column % 3 & 1 for row in range(8)]
    if is_decimal(kind):
        return pa.array([None if bit is None else Decimal(bit).scaleb(-kind.scale) for bit in bits], kind)
    numbers = pa.array(bits, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    return numbers.cast(pa.string()).cast(kind) if pa.types.is_binary(kind) else numbers.cast(kind)


def columns_read(exprs: Sequence[nw.Expr], schema: pa.Schema) -> frozenset[str]:
    """The columns that some expressions need, with those that a function takes by bare name.

    >>> sorted(columns_read([nw.coalesce("a", "b")], pa.schema([("a", pa.int64()), ("b", pa.int64())])))
    ['a', 'b']
    """
    names: set[str] = set()
    for call in (call for expr in exprs for call in all_calls(expr)):
        if call is None or call.kind in _MANY:
            return frozenset(schema.names)
        names.update(call.options["names"] if call.kind == "COL" else ())
        names.update(bare for bare in call.arguments if isinstance(bare, str) and not call.text_is_literal)
    return frozenset(names)


def columns_made(exprs: tuple[nw.Expr, ...], schema: pa.Schema, step: str) -> tuple[str, ...]:
    """The columns that some expressions compute, in order."""
    return tuple(derive(step, schema, select, exprs).names)


def columns_passed(expr: nw.Expr, schema: pa.Schema) -> tuple[str, ...] | None:
    """The columns an expression passes on under their own names and unchanged; None if it does anything else.

    >>> schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    >>> columns_passed(nw.col("b"), schema), columns_passed(nw.all(), schema), columns_passed(nw.col("b") + 1, schema)
    (('b',), ('a', 'b'), None)
    """
    match calls_of(expr):
        case (ExpressionCall(kind="COL") as only,):
            return tuple(only.options["names"])
        case (ExpressionCall(kind="ALL"),):
            return tuple(schema.names)
        case _:
            return None


def is_passed_on(expr: nw.Expr) -> bool:
    """Whether an expression passes columns on unchanged, under whatever names."""
    return all(call is not None and (call.kind in _MANY | {"COL"} or call.name == "alias") for call in all_calls(expr))


def names_its_columns(expr: nw.Expr) -> bool:
    """Whether an expression means the same over any stream with the columns it names: no ``all()``, no ``nth()``."""
    return _ANY_COLUMN not in columns_read([expr], pa.schema([(_ANY_COLUMN, pa.null())]))


def cannot_fail(expr: nw.Expr) -> bool:
    """Whether an expression has a value for every row, so that showing it more rows raises nothing.

    >>> cannot_fail(nw.col("x") > 3), cannot_fail(nw.col("text").cast(nw.Int64) > 3)
    (True, False)
    """
    return all(call is not None and call.name in _CANNOT_FAIL for call in all_calls(expr))


def with_columns(table: pa.Table, exprs: Sequence[nw.Expr]) -> pa.Table:
    """Add or replace columns of an Arrow table."""
    result: pa.Table = nw.from_native(table, eager_only=True).with_columns(*exprs).to_native()
    return result


def select(table: pa.Table, exprs: Sequence[nw.Expr]) -> pa.Table:
    """Keep only the columns that some expressions compute."""
    result: pa.Table = nw.from_native(table, eager_only=True).select(*exprs).to_native()
    return result


def keep(table: pa.Table, predicate: nw.Expr) -> pa.Table:
    """Keep the rows for which a predicate is true; null is not true."""
    result: pa.Table = nw.from_native(table, eager_only=True).filter(predicate).to_native()
    return result


def derive(step: str, schema: pa.Schema, function: Derivation, exprs: tuple[nw.Expr, ...]) -> pa.Schema:
    """The schema that a stateless function returns, found by running it on no rows; mistakes become `QueryError`."""
    try:
        return function(schema.empty_table(), exprs).schema
    except nw.exceptions.ColumnNotFoundError as error:
        unknown = sorted(columns_read(exprs, schema) - set(schema.names))
        what = choices(unknown) if unknown else f"in {exprs!r}"
        raise QueryError(f"step '{step}': unknown column {what}; the stream has {choices(schema.names)}") from error
    except (pa.ArrowException, nw.exceptions.NarwhalsError, TypeError, ValueError, AttributeError) as error:
        types = show_columns(schema)
        raise QueryError(f"step '{step}': {exprs!r} does not fit the stream's types ({types}): {error}") from error


def derive_condition(step: str, schema: pa.Schema, what: str, expr: nw.Expr) -> None:
    """Refuse an expression that is not true or false for each row by itself; ``what`` is what the step calls it."""
    check_elementwise(expr, schema, step)
    kinds = derive(step, schema, select, (expr,)).types
    if kinds != [pa.bool_()]:
        raise QueryError(f"step '{step}': {what} is true or false, and {expr!r} is {kinds[0]}")


def show_expression(expr: nw.Expr) -> str:
    """An expression as text that reads like the code a user wrote; what it is renamed to stands before it.

    >>> show_expression(((nw.col("end_s") - nw.col("start_s")) / 60).alias("minutes"))
    'minutes = (end_s - start_s) / 60'
    >>> show_expression(nw.col("text").str.split(" "))
    "text.str.split(by=' ')"
    """
    return _show(expr)[0]


def _show(expr: nw.Expr) -> tuple[str, bool]:
    """An expression as text, and whether it needs brackets as an operand."""
    text, loose, name = "", False, ""
    for call in calls_of(expr):
        if call.name == "alias":
            name = call.options["name"]
        else:
            text, loose = _show_call(_bracketed(text, loose), call)
    if name and name != text:
        return f"{name} = {text}", True
    return text or repr(expr), loose


def _show_call(text: str, call: ExpressionCall) -> tuple[str, bool]:
    """A function applied to the text of what it is called on; functions that begin an expression have none."""
    if call.name == "col":
        names = call.options["names"]
        return ", ".join(names), len(names) > 1
    if call.name == "lit":
        return repr(call.options["value"]), False
    if call.name == "__invert__":
        return f"~{text}", False
    arguments = [_show_argument(argument, call) for argument in call.arguments]
    operator = call.name.strip("_")
    if operator in _INFIX:
        return f"{text} {_INFIX[operator]} {_bracketed(*arguments[0])}", True
    if call.name.startswith("__r") and operator.removeprefix("r") in _INFIX:
        return f"{_bracketed(*arguments[0])} {_INFIX[operator.removeprefix('r')]} {text}", True
    shown = [argument for argument, _ in arguments]
    shown += [
        f"{key}={reprlib.repr(value)}"
        for key, value in call.options.items()
        if value is not None and value is not False
    ]
    called = f"{call.name}({', '.join(shown)})"
    return f"{text}.{called}" if text else called, False


def _show_argument(value: Any, call: ExpressionCall) -> tuple[str, bool]:
    if isinstance(value, nw.Expr):
        return _show(value)
    return (value if isinstance(value, str) and not call.text_is_literal else repr(value)), False


def _bracketed(text: str, loose: bool) -> str:
    return f"({text})" if loose else text
