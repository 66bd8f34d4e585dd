"""A predicate of two tuples as a tree of frozen values.

Numbers are whole ("int": integers of any width, timestamps in microseconds, dates in days) or "float", always of 64 bits.
Strings and bytes ("text") can only be compared for equality. What a tree means is written down in `meaning`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

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
class Constant:
    """A value that does not depend on the tuples."""

    value: int | float | bool | str | bytes
    kind: Kind

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``+ - * / // %`` of two numbers; ``/`` is always a float, and ``// %`` are of whole numbers only."""

    operator: str
    left: Tree
    right: Tree
    kind: Kind

    def __str__(self) -> str:
        return f"{_inner(self.left)} {self.operator} {_inner(self.right)}"


@dataclass(frozen=True, slots=True)
class Negative:
    """A number with its sign changed."""

    of: Tree
    kind: Kind

    def __str__(self) -> str:
        return f"-{_inner(self.of)}"


@dataclass(frozen=True, slots=True)
class Absolute:
    """A number without its sign."""

    of: Tree
    kind: Kind

    def __str__(self) -> str:
        return f"abs({self.of})"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of NumPy from floats to a float, by its name."""

    name: str
    arguments: tuple[Tree, ...]
    kind: Kind = "float"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Compare:
    """``== != < <= > >=`` of two numbers; ``== !=`` of two texts or two truth values."""

    operator: str
    left: Tree
    right: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        return f"{_inner(self.left)} {self.operator} {_inner(self.right)}"


@dataclass(frozen=True, slots=True)
class Both:
    """``&``."""

    left: Tree
    right: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        return f"{_inner(self.left)} & {_inner(self.right)}"


@dataclass(frozen=True, slots=True)
class Either:
    """``|``."""

    left: Tree
    right: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        return f"{_inner(self.left)} | {_inner(self.right)}"


@dataclass(frozen=True, slots=True)
class Opposite:
    """``~``."""

    of: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        return f"~{_inner(self.of)}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is null; never null itself."""

    of: Tree
    kind: Kind = "bool"

    def __str__(self) -> str:
        return f"{_inner(self.of)} is null"


@dataclass(frozen=True, slots=True)
class Branch:
    """``then if condition else otherwise``: what ``and``, ``or``, ``not`` and ``if`` come to."""

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
    Column
    | Constant
    | Arithmetic
    | Negative
    | Absolute
    | Function
    | Compare
    | Both
    | Either
    | Opposite
    | IsNull
    | Branch
)

TRUE = Constant(True, "bool")
FALSE = Constant(False, "bool")


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
        case Column() | Constant():
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
        case Branch(otherwise=Constant(value=False)):
            yield from conjuncts(tree.condition)
            yield from conjuncts(tree.then)
        case _:
            yield tree


def _inner(tree: Tree) -> str:
    simple = isinstance(tree, Column | Constant | Function | Absolute)
    return str(tree) if simple else f"({tree})"
