"""A Narwhals expression over the columns of a pair becomes a tree, where all of its functions have a place in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from tidegate.query.predicates.trace import Untraceable
from tidegate.query.predicates.tree import (
    FALSE,
    TRUE,
    Absolute,
    Arithmetic,
    Both,
    Column,
    Compare,
    Constant,
    Either,
    IsNull,
    Kind,
    Opposite,
    Tree,
)

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def tree_of(expr: nw.Expr, columns: Mapping[str, Column]) -> Tree:
    """The tree of an expression over columns of the pair, given by their names in it; `Untraceable` if it has none."""
    made: Tree | None = None
    for part in expr._nodes:
        made = _applied(made, part, columns)
    if made is None:
        raise Untraceable("an empty expression")
    return made


def _applied(tree: Tree | None, part: Any, columns: Mapping[str, Column]) -> Tree:
    name = part.name.strip("_")
    if tree is None:
        return _first(part, name, columns)
    arguments = [_argument(each, part, columns) for each in part.exprs]
    if name in _ARITHMETIC:
        return _arithmetic(_ARITHMETIC[name], tree, arguments[0])
    if name.removeprefix("r") in _ARITHMETIC:
        return _arithmetic(_ARITHMETIC[name.removeprefix("r")], arguments[0], tree)
    if name in _COMPARISONS:
        return _compare(_COMPARISONS[name], tree, arguments[0])
    if name in ("and", "rand", "or", "ror"):
        if {tree.kind, arguments[0].kind} != {"bool"}:
            raise Untraceable(f"'{part.name}' of {tree.kind} and {arguments[0].kind}")
        return Both(tree, arguments[0]) if "and" in name else Either(tree, arguments[0])
    if name == "invert" and tree.kind == "bool":
        return Opposite(tree)
    if name == "is_null":
        return IsNull(tree)
    if name == "abs" and tree.kind in ("int", "float"):
        return Absolute(tree, tree.kind)
    if name == "is_between" and part.kwargs.get("closed") == "both":
        return Both(_compare(">=", tree, arguments[0]), _compare("<=", tree, arguments[1]))
    raise Untraceable(f"'{part.name}'")


def _first(part: Any, name: str, columns: Mapping[str, Column]) -> Tree:
    if name == "col" and len(part.kwargs["names"]) == 1 and part.kwargs["names"][0] in columns:
        return columns[part.kwargs["names"][0]]
    if name == "lit":
        return _constant(part.kwargs["value"])
    raise Untraceable(f"'{part.name}'")


def _argument(value: Any, part: Any, columns: Mapping[str, Column]) -> Tree:
    if isinstance(value, nw.Expr):
        return tree_of(value, columns)
    if isinstance(value, str) and not part.str_as_lit:
        raise Untraceable(f"a column by its bare name in '{part.name}'")
    return _constant(value)


def _constant(value: Any) -> Constant:
    match value:
        case bool():
            return TRUE if value else FALSE
        case int() if -(2**63) <= value < 2**63:
            return Constant(value, "int")
        case float():
            return Constant(value, "float")
        case str() | bytes():
            return Constant(value, "text")
        case _:
            raise Untraceable(f"a constant of type {type(value).__name__}")


def _arithmetic(operator: str, left: Tree, right: Tree) -> Arithmetic:
    kinds: set[Kind] = {left.kind, right.kind}
    if not kinds <= {"int", "float"}:
        raise Untraceable(f"'{operator}' of {left.kind} and {right.kind}")
    return Arithmetic(operator, left, right, "float" if operator == "/" or "float" in kinds else "int")


def _compare(operator: str, left: Tree, right: Tree) -> Compare:
    kinds = {left.kind, right.kind}
    if not (kinds <= {"int", "float"} or (operator in ("==", "!=") and len(kinds) == 1)):
        raise Untraceable(f"'{operator}' of {left.kind} and {right.kind}")
    return Compare(operator, left, right)
