"""A predicate of two tuples as a tree of frozen values, and what a tree means for one pair of tuples.

Numbers are whole ("int": integers of any width, timestamps in microseconds, dates in days) or "float", always of 64 bits.
Strings and bytes ("text") can only be compared for equality. `evaluate` is the definition that every compiled form must
agree with:

- Null: an operation on null is null, except that ``&`` with false is false and ``|`` with true is true (SQL's and Arrow's
  logic of three values). A branch on null is null unless both branches give the same. A pair matches only if the result is
  true.
- Whole numbers are exact. Where one meets a float it becomes a float of 64 bits first, in comparisons too.
- Floats follow IEEE 754: a float divided by zero is infinite or NaN, and no comparison with NaN is true but ``!=``.
- ``//`` and ``%`` of whole numbers round down as Python's do; by zero they raise `ZeroDivisionError`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tidegate.query.schema import is_integer, is_text

Kind = Literal["int", "float", "bool", "text"]
Side = Literal[0, 1]

LEFT: Side = 0
RIGHT: Side = 1
SIDE_NAMES = ("l", "r")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the left (0) or right (1) tuple."""

    side: Side
    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{SIDE_NAMES[self.side]}.{self.name}"


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """A value that does not depend on the tuples."""

    value: int | float | bool | str | bytes
    kind: Kind

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator or function, by its name, applied to trees.

    - ``+ - * / // %`` of two numbers, ``neg abs`` of one; ``/`` is always a float, and ``// %`` are of whole numbers only.
    - ``== != < <= > >=`` of two numbers; ``== !=`` of two texts or two truth values.
    - ``& | ~`` of truth values; ``is null``, which is never null itself.
    - ``if`` of a condition, a value if it is true and another: the tree of ``and``, ``or``, ``not`` and ``if``.
    - A function of NumPy from floats to a float.
    """

    name: str
    arguments: tuple[Tree, ...]
    kind: Kind = "bool"

    @property
    def is_call(self) -> bool:
        """Whether it is written as a call."""
        return self.name.isidentifier() and self.name not in ("neg", "if")

    def __str__(self) -> str:
        if self.is_call:
            return f"{self.name}({', '.join(map(str, self.arguments))})"
        shown = [
            str(each) if isinstance(each, Column | ConstantValue) or each.is_call else f"({each})"
            for each in self.arguments
        ]
        match self.name, self.arguments:
            case (("neg" | "~"), _):
                return f"{'-' if self.name == 'neg' else '~'}{shown[0]}"
            case "is null", _:
                return f"{shown[0]} is null"
            case "if", (_, then, otherwise):
                if otherwise == FALSE:
                    return f"{shown[0]} and {shown[1]}"
                if then == TRUE:
                    return f"{shown[0]} or {shown[2]}"
                if (then, otherwise) == (FALSE, TRUE):
                    return f"not {shown[0]}"
                return f"{shown[1]} if {shown[0]} else {shown[2]}"
            case _:
                return f"{shown[0]} {self.name} {shown[1]}"


Tree = Column | ConstantValue | Operation

TRUE = ConstantValue(True, "bool")
FALSE = ConstantValue(False, "bool")


def kind_of(type_: pa.DataType) -> Kind | None:
    """What a column of an Arrow type is in a tree; None if it cannot be in one."""
    if is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date32(type_):
        return "int"
    if pa.types.is_floating(type_):
        return "float"
    if pa.types.is_boolean(type_):
        return "bool"
    if is_text(type_):
        return "text"
    return None


def walk_tree(tree: Tree) -> Iterator[Tree]:
    """A tree and all trees inside it."""
    yield tree
    if isinstance(tree, Operation):
        for part in tree.arguments:
            yield from walk_tree(part)


def columns_of(tree: Tree, side: Side) -> tuple[Column, ...]:
    """The columns of one side that a tree reads, each once, by name."""
    found = {part.name: part for part in walk_tree(tree) if isinstance(part, Column) and part.side == side}
    return tuple(found[name] for name in sorted(found))


def can_fail(tree: Tree) -> bool:
    """Whether a tree may have no value for some pair: a whole number divided by zero."""
    return any(isinstance(part, Operation) and part.name in ("//", "%") for part in walk_tree(tree))


def conjuncts(tree: Tree) -> Iterator[Tree]:
    """The conditions that must all be true for a tree to be true."""
    match tree:
        case Operation("&", (left, right)) | Operation("if", (left, right, ConstantValue(value=False))):
            yield from conjuncts(left)
            yield from conjuncts(right)
        case _:
            yield tree


_PYTHON: Mapping[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "neg": operator.neg, "abs": abs, "&": operator.and_, "|": operator.or_, "~": operator.not_,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def evaluate(tree: Tree, left: Mapping[str, Any], right: Mapping[str, Any]) -> Any:
    """The value of a tree for a pair, None for null; times are given as whole numbers."""
    match tree:
        case Column():
            value = (left, right)[tree.side][tree.name]
            return float(value) if tree.kind == "float" and value is not None else value
        case ConstantValue():
            return tree.value
        case Operation("if", (condition, then, otherwise)):
            truth = evaluate(condition, left, right)
            if truth is not None:
                return evaluate(then if truth else otherwise, left, right)
            one, other = evaluate(then, left, right), evaluate(otherwise, left, right)
            return one if one == other else None
    values = [evaluate(argument, left, right) for argument in tree.arguments]
    if tree.name == "is null":
        return values[0] is None
    if tree.name in ("&", "|") and (decides := tree.name == "|") in values:
        return decides
    if None in values:
        return None
    if tree.name == "/":
        return divided(*map(float, values))
    if tree.name not in _PYTHON:
        with np.errstate(all="ignore"):
            return float(getattr(np, tree.name)(*map(float, values)))
    wide = any(argument.kind == "float" for argument in tree.arguments)
    return _PYTHON[tree.name](*(map(float, values) if wide else values))


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
