"""Whole numbers in expressions: a result that does not fit its type is an error, where Arrow's functions wrap silently.

The values of an expression are Narwhals' own. What is done here is to look, before they are computed, at each sum,
difference, product and power of whole numbers in it. The least and greatest value of the columns nearly always show that
all of them fit; where they do not, Arrow's checked functions are run on the rows that the expression is computed for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DataError
from tidegate.query.expressions import (
    ExpressionCall,
    all_calls,
    as_expr,
    calls_before,
    calls_of,
    keep,
    select,
    show_expression,
)

_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "__add__": pc.add_checked,
    "__radd__": pc.add_checked,
    "__sub__": pc.subtract_checked,
    "__rsub__": lambda left, right: pc.subtract_checked(right, left),
    "__mul__": pc.multiply_checked,
    "__rmul__": pc.multiply_checked,
    "__pow__": pc.power_checked,
    "__rpow__": lambda left, right: pc.power_checked(right, left),
}
_OF_ONE = {"__neg__": pc.negate_checked, "abs": pc.abs_checked}
_ARITHMETIC = frozenset(_OF_TWO) | frozenset(_OF_ONE) | {"sum_horizontal"}


def check_overflow(table: pa.Table, exprs: Sequence[nw.Expr]) -> None:
    """Raise `DataError` if arithmetic on whole numbers leaves their range in some row of a table.

    >>> rows = pa.table({"n": [1, 2**62]})
    >>> check_overflow(rows, [nw.col("n") * 2])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidegate.errors.DataError: n * 2 is beyond the whole numbers of its type, for example for 4611686018427387904 and 2; ...
    >>> check_overflow(rows, [nw.when(nw.col("n") < 10).then(nw.col("n") * 2)])
    """
    for expr in exprs:
        if any(call is not None and call.name in _ARITHMETIC for call in all_calls(expr)) and not _bounds(table, expr):
            _check(table, expr)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Between which whole numbers the values of an expression lie, and in how many bits; no bits: they are none."""

    least: int
    greatest: int
    bits: int

    @property
    def fit(self) -> bool:
        return not self.bits or (-(1 << self.bits - 1) <= self.least and self.greatest < 1 << self.bits - 1)


_NO_WHOLE_NUMBERS = _Bounds(0, 0, 0)
_OF_OTHERS = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__truediv__", "__rtruediv__"})
"""Functions of numbers whose results are truth values or floats."""


def _bounds(table: pa.Table, expr: nw.Expr) -> _Bounds | None:
    """The bounds of an expression, if they are known and so are those of all that it is computed from; None if not."""
    found: _Bounds | None = None
    for call in calls_of(expr):
        if call.name == "alias":
            continue
        if call.kind == "LITERAL":
            found = _bounds_of_literal(call.options["value"])
        elif call.kind == "COL":
            names = call.options["names"]
            found = _bounds_of_column(table.column(names[0])) if len(names) == 1 else None
        else:
            arguments = (_bounds(table, _as_operand(each, call)) for each in call.arguments)
            found = _bounds_of_call(call, [found, *arguments])
        if found is None or not found.fit:
            return None
    return found


def _bounds_of_literal(value: Any) -> _Bounds | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    return _Bounds(value, value, 64) if isinstance(value, int) else _NO_WHOLE_NUMBERS


def _bounds_of_column(values: pa.ChunkedArray) -> _Bounds | None:
    if pa.types.is_signed_integer(values.type):
        found = pc.min_max(values).as_py()
        return _Bounds(found["min"] or 0, found["max"] or 0, values.type.bit_width)
    others = pa.types.is_floating(values.type) or pa.types.is_temporal(values.type) or pa.types.is_string(values.type)
    return _NO_WHOLE_NUMBERS if others else None


def _bounds_of_call(call: ExpressionCall, operands: list[_Bounds | None]) -> _Bounds | None:
    if None in operands or len(operands) > 2:
        return None
    known = [each for each in operands if each is not None]
    if call.name in _OF_OTHERS or (call.name in _ARITHMETIC and not all(each.bits for each in known)):
        return _NO_WHOLE_NUMBERS
    one, *more = known
    match call.name.replace("__r", "__"), more:
        case "__add__", [two]:
            ends = [one.least + two.least, one.greatest + two.greatest]
        case "__sub__", [two]:
            two, one = (one, two) if call.name == "__rsub__" else (two, one)
            ends = [one.least - two.greatest, one.greatest - two.least]
        case "__mul__", [two]:
            ends = [a * b for a in (one.least, one.greatest) for b in (two.least, two.greatest)]
        case "__neg__", []:
            ends = [-one.least, -one.greatest]
        case _:
            return None
    return _Bounds(min(ends), max(ends), max(each.bits for each in known))


def keep_fitting(pairs: pa.Table, predicate: nw.Expr) -> pa.Table:
    """The rows for which a predicate of a join is true, with its arithmetic checked."""
    check_overflow(pairs, (predicate,))
    return keep(pairs, predicate)


def _check(table: pa.Table, expr: nw.Expr) -> None:
    for number, call in enumerate(calls_of(expr)):
        arguments = [_as_operand(each, call) for each in call.arguments]
        if call.name == "when_then":
            _check_choice(table, *arguments)
            continue
        for each in arguments:
            _check(table, each)
        if call.name == "sum_horizontal":
            operands = [pc.fill_null(values, 0) for each in arguments for values in _whole_numbers(table, each)]
            for right in range(1, len(operands)):
                operands[right] = _computed(pc.add_checked, expr, operands[right - 1], operands[right])
        elif call.name in _OF_ONE or call.name in _OF_TWO:
            function, made = {**_OF_ONE, **_OF_TWO}[call.name], calls_before(expr, number + 1)
            sides = [_whole_numbers(table, each) for each in arguments]
            for values in _whole_numbers(table, calls_before(expr, number)):
                if all(sides):
                    _computed(function, made, values, *(side[0] for side in sides))


def _check_choice(table: pa.Table, condition: nw.Expr, then: nw.Expr, otherwise: nw.Expr | None = None) -> None:
    """Each branch on the rows that take it: a condition may be there to keep numbers small."""
    _check(table, condition)
    _check(keep(table, condition), then)
    if otherwise is not None:
        _check(keep(table, ~condition.fill_null(False)), otherwise)


def _as_operand(value: Any, call: ExpressionCall) -> nw.Expr:
    return nw.lit(value) if isinstance(value, str) and call.text_is_literal else as_expr(value)


def _whole_numbers(table: pa.Table, expr: nw.Expr) -> list[Any]:
    """The values of an expression, a column or a constant each, where they are whole numbers."""
    values = select(table, (expr,))
    constant = values.num_rows == 1 != table.num_rows
    return [each[0] if constant else each for each in values.columns if pa.types.is_integer(each.type)]


def _computed(function: Callable[..., Any], expr: nw.Expr, *operands: Any) -> Any:
    try:
        return function(*operands)
    except pa.ArrowInvalid as error:
        row = _first_beyond(function, operands)
        values = " and ".join(
            str(_rows(each, row, 1)[0] if isinstance(each, pa.ChunkedArray) else each) for each in operands
        )
        raise DataError(
            f"{show_expression(expr)} is beyond the whole numbers of its type, for example for {values}; "
            "give the column wider numbers (int64, decimals) or floats, or leave such tuples out before"
        ) from error


def _first_beyond(function: Callable[..., Any], operands: Sequence[Any]) -> int:
    """The first row for which a function raises, found by halves."""
    first, end = 0, max(len(each) for each in operands if isinstance(each, pa.ChunkedArray))
    while end - first > 1:
        middle = (first + end) // 2
        try:
            function(*(_rows(each, first, middle - first) for each in operands))
            first = middle
        except pa.ArrowInvalid:
            end = middle
    return first


def _rows(operand: Any, first: int, count: int) -> Any:
    return operand.slice(first, count) if isinstance(operand, pa.ChunkedArray) else operand
