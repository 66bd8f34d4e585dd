"""What a predicate means, for one pair of tuples: the definition that every compiled form must agree with.

- Null: an operation on null is null, except that ``&`` with false is false and ``|`` with true is true (SQL's and Arrow's
  logic of three values). A branch on null is null unless both ways give the same. A pair matches only if the result is true.
- Whole numbers are exact. Where one meets a float it becomes a float of 64 bits first, in comparisons too.
- Floats follow IEEE 754: a float divided by zero is infinite or NaN, and no comparison with NaN is true but ``!=``.
- ``//`` and ``%`` of whole numbers round down as Python's do; by zero they raise `ZeroDivisionError`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tidegate.errors import InternalError
from tidegate.query.predicates.tree import (
    Absolute,
    Arithmetic,
    Both,
    Branch,
    Column,
    Compare,
    Constant,
    Either,
    Function,
    IsNull,
    Negative,
    Opposite,
    Tree,
)

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


def evaluate(tree: Tree, left: Mapping[str, Any], right: Mapping[str, Any]) -> Any:
    """The value of a tree for a pair, None for null; times are given as whole numbers."""
    match tree:
        case Column():
            return _number((left, right)[tree.side][tree.name], tree.kind)
        case Constant():
            return tree.value
        case Branch():
            return _branch(tree, left, right)
        case Both() | Either():
            return _logic(tree, evaluate(tree.left, left, right), evaluate(tree.right, left, right))
        case IsNull():
            return evaluate(tree.of, left, right) is None
        case Function():
            return _function(tree, [evaluate(argument, left, right) for argument in tree.arguments])
        case Negative() | Absolute() | Opposite():
            value = evaluate(tree.of, left, right)
            return None if value is None else _unary(tree, value)
        case Arithmetic() | Compare():
            values = evaluate(tree.left, left, right), evaluate(tree.right, left, right)
            if None in values:
                return None
            if "float" in (tree.left.kind, tree.right.kind):
                values = float(values[0]), float(values[1])
            if isinstance(tree, Compare):
                return bool(COMPARISONS[tree.operator](*values))
            return divided(*map(float, values)) if tree.operator == "/" else _ARITHMETIC[tree.operator](*values)
        case _:
            raise InternalError(f"no meaning is given for {tree!r}")


def divided(dividend: float, divisor: float) -> float:
    """A quotient of floats as IEEE 754 has it.

    >>> divided(-1.0, 0.0), divided(0.0, 0.0)
    (-inf, nan)
    """
    if divisor != 0:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def _number(value: Any, kind: str) -> Any:
    return float(value) if kind == "float" and value is not None else value


def _branch(tree: Branch, left: Mapping[str, Any], right: Mapping[str, Any]) -> Any:
    condition = evaluate(tree.condition, left, right)
    if condition is not None:
        return evaluate(tree.then if condition else tree.otherwise, left, right)
    then, otherwise = evaluate(tree.then, left, right), evaluate(tree.otherwise, left, right)
    return then if then == otherwise else None


def _logic(tree: Both | Either, one: Any, other: Any) -> Any:
    decides = isinstance(tree, Either)
    if decides in (one, other):
        return decides
    return None if None in (one, other) else not decides


def _unary(tree: Negative | Absolute | Opposite, value: Any) -> Any:
    match tree:
        case Negative():
            return -value
        case Absolute():
            return abs(value)
        case _:
            return not value


def _function(tree: Function, values: list[Any]) -> float | None:
    if None in values:
        return None
    with np.errstate(all="ignore"):
        return float(getattr(np, tree.name)(*map(float, values)))
