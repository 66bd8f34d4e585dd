"""Which expressions mean the same in Spark as in Arrow: a step of others runs on Arrow, so that there is one answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import narwhals as nw
import pyarrow as pa

from tidegate.query.expressions import ExpressionCall, all_calls, columns_read, is_passed_on

# What differs elsewhere: NaN is the greatest of Spark's floats and equal to itself, and 1 / -0.0 is positive there; whole
# numbers that overflow may wrap in Spark, by a setting of its session, and are an error here; regular expressions, capital
# letters, fractions of seconds before 1970, the text of floats, and the last digit of logarithms and sines are those of
# Java; some functions Spark has not.
FUNCTIONS = frozenset(
    {"col", "lit", "alias", "coalesce", "fill_null", "when_then", "all_horizontal", "any_horizontal"}
    | {"__and__", "__rand__", "__or__", "__ror__", "__invert__", "is_null"}
    | {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "is_in", "is_between"}
    | {"str.starts_with", "str.ends_with", "str.len_chars"}
)
"""The functions that mean the same for every value of the `TYPES`; `tests/integration/test_native_steps.py` tries them."""
TYPES = (
    pa.types.is_signed_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_timestamp,
    pa.types.is_date32,
)
CONSTANTS = (int, str, type(None))


def is_same_in_spark(expr: nw.Expr, schema: pa.Schema) -> bool:
    """Whether Spark computes for every row what Arrow does, whatever its settings are.

    >>> schema = pa.schema([("n", pa.int64()), ("x", pa.float64())])
    >>> [is_same_in_spark(expr, schema) for expr in (nw.col("n") > 3, nw.col("x") > 3, nw.col("n") + 3, nw.col("x"))]
    [True, False, False, True]
    """
    if is_passed_on(expr):
        return True
    types = [schema.field(name).type for name in columns_read([expr], schema)]
    return all(any(is_one(kind) for is_one in TYPES) for kind in types) and all(map(_is_same, all_calls(expr)))


def _is_same(call: ExpressionCall | None) -> bool:
    return call is not None and call.name in FUNCTIONS and all(isinstance(each, CONSTANTS) for each in _constants(call))


def _constants(call: ExpressionCall) -> Iterator[Any]:
    """The constants among the arguments and options of a function."""
    for value in (*call.arguments, *call.options.values()):
        if not isinstance(value, nw.Expr):
            yield from value if isinstance(value, list | tuple) else (value,)
