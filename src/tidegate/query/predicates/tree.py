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
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.query.schema import is_integer

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
class _Binary:
    operator: str
    left: Tree
    right: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        return f"{_inner(self.left)} {self.operator} {_inner(self.right)}"


class Arithmetic(_Binary):
    """``+ - * / // %`` of two numbers; ``/`` is always a float, and ``// %`` are of whole numbers only."""

    __slots__ = ()


class Compare(_Binary):
    """``== != < <= > >=`` of two numbers; ``== !=`` of two texts or two truth values."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Connective:
    sign: ClassVar[str]
    left: Tree
    right: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        return f"{_inner(self.left)} {self.sign} {_inner(self.right)}"


class Both(_Connective):
    """``&``."""

    __slots__ = ()
    sign = "&"


class Either(_Connective):
    """``|``."""

    __slots__ = ()
    sign = "|"


@dataclass(frozen=True, slots=True)
class _Unary:
    text: ClassVar[str]
    of: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        return self.text.format(_inner(self.of))


class Negative(_Unary):
    """A number with its sign changed."""

    __slots__ = ()
    text = "-{}"


class Absolute(_Unary):
    """A number without its sign."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"abs({self.of})"


class Opposite(_Unary):
    """``~``."""

    __slots__ = ()
    text = "~{}"


class IsNull(_Unary):
    """Whether a value is null; never null itself."""

    __slots__ = ()
    text = "{} is null"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of NumPy from floats to a float, by its name."""

    name: str
    arguments: tuple[Tree, ...]
    kind: Kind = "float"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Branch:
    """``then if condition else otherwise``: the tree of ``and``, ``or``, ``not`` and ``if``."""

    condition: Tree
    then: Tree
    otherwise: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        if self.otherwise == FALSE:
            return f"{_inner(self.condition)} and {_inner(self.then)}"
        if self.then == TRUE:
            return f"{_inner(self.condition)} or {_inner(self.otherwise)}"
        if (self.then, self.otherwise) == (FALSE, TRUE):
            return f"not {_inner(self.condition)}"
        return f"{_inner(self.then)} if {_inner(self.condition)} else {_inner(self.otherwise)}"


Tree = (
    Column | ConstantValue | Arithmetic | Negative | Absolute | Function
    | Compare | Both | Either | Opposite | IsNull | Branch
)  # fmt: skip

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
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return "text"
    return None


def parts_of(tree: Tree) -> tuple[Tree, ...]:
    """The trees directly inside one."""
    match tree:
        case Column() | ConstantValue():
            return ()
        case Function():
            return tree.arguments
        case Negative() | Absolute() | Opposite() | IsNull():
            return (tree.of,)
        case Branch():
            return (tree.condition, tree.then, tree.otherwise)
        case _:
            return (tree.left, tree.right)


def walk_tree(tree: Tree) -> Iterator[Tree]:
    """A tree and all trees inside it."""
    yield tree
    for part in parts_of(tree):
        yield from walk_tree(part)


def columns_of(tree: Tree, side: Side) -> tuple[Column, ...]:
    """The columns of one side that a tree reads, each once, by name."""
    found = {part.name: part for part in walk_tree(tree) if isinstance(part, Column) and part.side == side}
    return tuple(found[name] for name in sorted(found))


def can_fail(tree: Tree) -> bool:
    """Whether a tree may have no value for some pair: a whole number divided by zero."""
    return any(isinstance(part, Arithmetic) and part.operator in ("//", "%") for part in walk_tree(tree))


def conjuncts(tree: Tree) -> Iterator[Tree]:
    """The conditions that must all be true for a tree to be true."""
    match tree:
        case Both():
            yield from conjuncts(tree.left)
            yield from conjuncts(tree.right)
        case Branch(otherwise=ConstantValue(value=False)):
            yield from conjuncts(tree.condition)
            yield from conjuncts(tree.then)
        case _:
            yield tree


def _inner(tree: Tree) -> str:
    simple = isinstance(tree, Column | ConstantValue | Function | Absolute)
    return str(tree) if simple else f"({tree})"


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip
_UNARY: Mapping[type[_Unary], Callable[[Any], Any]] = {Negative: operator.neg, Absolute: abs, Opposite: operator.not_}


def evaluate(tree: Tree, left: Mapping[str, Any], right: Mapping[str, Any]) -> Any:
    """The value of a tree for a pair, None for null; times are given as whole numbers."""
    match tree:
        case Column():
            value = (left, right)[tree.side][tree.name]
            return float(value) if tree.kind == "float" and value is not None else value
        case ConstantValue():
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
            return None if value is None else _UNARY[type(tree)](value)
        case Arithmetic() | Compare():
            values = evaluate(tree.left, left, right), evaluate(tree.right, left, right)
            if None in values:
                return None
            if "float" in (tree.left.kind, tree.right.kind):
                values = float(values[0]), float(values[1])
            if isinstance(tree, Compare):
                return bool(_COMPARISONS[tree.operator](*values))
            return divided(*map(float, values)) if tree.operator == "/" else _ARITHMETIC[tree.operator](*values)
        case _:
            raise InternalError(f"{tree!r} cannot be evaluated")


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


def _function(tree: Function, values: list[Any]) -> float | None:
    if None in values:
        return None
    with np.errstate(all="ignore"):
        return float(getattr(np, tree.name)(*map(float, values)))
