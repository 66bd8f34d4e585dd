"""A Python function of two tuples, or a Narwhals expression over a pair, becomes a tree by being applied to symbols.

A symbol notes what is done to it. Where Python asks it for a truth value (``and``, ``or``, ``not``, ``if``, ``a < b < c``,
``in``), the function is called again for the other answer, so all paths through it are found and put together as branches.
Nothing of its source is needed. A function that does anything else to a value, as calling a method of a string, cannot be
traced, and `Untraceable` says what it was.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from types import CodeType, FunctionType
from typing import Any, NoReturn

import narwhals as nw
import numpy as np
import pyarrow as pa

from tidegate.errors import QueryError, choices
from tidegate.query.event_time import in_microseconds
from tidegate.query.expressions import ExpressionCall, calls_of
from tidegate.query.predicates.tree import FALSE, TRUE, Column, ConstantValue, Kind, Operation, Side, Tree, kind_of

MOST_PATHS = 256
UFUNCS = frozenset(
    {"sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "sqrt", "exp", "log", "hypot", "floor", "ceil"}
)
# The operators of expressions that mean the same in Arrow, which divides whole numbers otherwise.
_OPERATORS = frozenset(
    {"__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__invert__"}
    | {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__and__", "__rand__", "__or__", "__ror__"}
)
# What these say of a symbol is not what they would say of a value, and nothing could notice.
_ASK_THE_OBJECT = frozenset({"isinstance", "issubclass", "type", "id", "hasattr", "getattr", "callable"})


class Untraceable(Exception):
    """A function or an expression does something that no tree has; the message names it."""


def trace(function: Callable[[Any, Any], Any], left: pa.Schema, right: pa.Schema, step: str) -> Tree:
    """The tree of a function; `Untraceable` if it has none, `QueryError` for a column that is not there."""
    _check_code(function)
    return _Tracer(function, (left, right), step).explore([])


def trace_expression(expr: nw.Expr, columns: Mapping[str, Column]) -> Tree:
    """The tree of an expression over columns of the pair, given by their names in it; `Untraceable` if it has none."""
    return _expression_symbol(expr, columns).tree


class _Tracer:
    """One function, and the answers given on the present path through it."""

    def __init__(self, function: Callable[[Any, Any], Any], schemas: tuple[pa.Schema, pa.Schema], step: str) -> None:
        self.function = function
        self.rows = _Row(self, 0, schemas[0]), _Row(self, 1, schemas[1])
        self.step = step
        self.answers: list[bool] = []
        self.asked: list[Tree] = []
        self.paths = 0

    def explore(self, before: list[bool]) -> Tree:
        """The tree of what happens after some answers."""
        self.paths += 1
        if self.paths > MOST_PATHS:
            raise Untraceable(f"more than {MOST_PATHS} paths through it")
        self.answers, self.asked = list(before), []
        tree = self._call()
        asked, answers = self.asked, self.answers
        for place in range(len(asked) - 1, len(before) - 1, -1):
            otherwise = self.explore([*answers[:place], False])
            tree = otherwise if tree == otherwise else Operation("if", (asked[place], tree, otherwise))
        return tree

    def ask(self, tree: Tree) -> bool:
        """The truth of a condition on this path."""
        if isinstance(tree, ConstantValue):
            return bool(tree.value)
        if tree in self.asked:
            return self.answers[self.asked.index(tree)]
        self.asked.append(tree)
        if len(self.asked) > len(self.answers):
            self.answers.append(True)
        return self.answers[len(self.asked) - 1]

    def _call(self) -> Tree:
        try:
            result = self.function(*self.rows)
        except (Untraceable, QueryError):
            raise
        except Exception as error:
            raise Untraceable(f"{type(error).__name__}: {error}") from error
        try:
            tree = _operand(result)
        except Untraceable:
            tree = None
        if tree is None or tree.kind != "bool":
            what = f"a {tree.kind}" if tree is not None else type(result).__name__
            raise QueryError(f"step '{self.step}': a predicate is true or false, and this one returns {what}")
        if tree in self.asked:
            return TRUE if self.answers[self.asked.index(tree)] else FALSE
        return tree


class _Row:
    """A tuple of one side; its columns are attributes, or items where a name is no identifier."""

    def __init__(self, tracer: _Tracer, side: Side, schema: pa.Schema) -> None:
        self._tracer, self._side, self._schema = tracer, side, schema

    def __getattr__(self, name: str) -> _Symbol:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> _Symbol:
        if name not in self._schema.names:
            raise QueryError(
                f"step '{self._tracer.step}': the {('left', 'right')[self._side]} tuple has no column {name!r}; it has "
                f"{choices(self._schema.names)}"
            )
        kind = kind_of(self._schema.field(name).type)
        if kind is None:
            raise Untraceable(f"column '{name}' of type {self._schema.field(name).type}")
        return _Symbol(Column(self._side, name, kind), self._tracer)


def _binary(operator: str, *, swapped: bool = False) -> Callable[[_Symbol, Any], Any]:
    """The method for an operator of two values, with the symbol on its left, or on its right if ``swapped``."""
    connects, equality = operator in ("&", "|"), operator in ("==", "!=")
    compares = equality or operator in ("<", "<=", ">", ">=")

    def method(symbol: _Symbol, other: Any) -> _Symbol:
        if other is None and equality:
            missing = Operation("is null", (symbol.tree,))
            return symbol.then(missing if operator == "==" else Operation("~", (missing,)))
        left, right = (_operand(other), symbol.tree) if swapped else (symbol.tree, _operand(other))
        kinds = {left.kind, right.kind}
        fits = kinds == {"bool"} if connects else kinds <= {"int", "float"} or (equality and len(kinds) == 1)
        if not fits:
            raise Untraceable(f"'{operator}' of {left.kind} and {right.kind}")
        if operator in ("//", "%") and kinds != {"int"}:
            raise Untraceable(f"'{operator}' of floats")
        number: Kind = "float" if operator == "/" or "float" in kinds else "int"
        return symbol.then(Operation(operator, (left, right), "bool" if connects or compares else number))

    return method


class _Symbol:
    """A value that is not known yet."""

    __slots__ = ("tracer", "tree")

    def __init__(self, tree: Tree, tracer: _Tracer | None = None) -> None:
        self.tree, self.tracer = tree, tracer

    def then(self, tree: Tree) -> _Symbol:
        """What becomes of this value."""
        return _Symbol(tree, self.tracer)

    def _apply(self, name: str, shown: str, *kinds: Kind) -> _Symbol:
        if self.tree.kind not in kinds:
            raise Untraceable(f"'{shown}' of {self.tree.kind}")
        return self.then(Operation(name, (self.tree,), self.tree.kind))

    __add__, __radd__ = _binary("+"), _binary("+", swapped=True)
    __sub__, __rsub__ = _binary("-"), _binary("-", swapped=True)
    __mul__, __rmul__ = _binary("*"), _binary("*", swapped=True)
    __truediv__, __rtruediv__ = _binary("/"), _binary("/", swapped=True)
    __floordiv__, __rfloordiv__ = _binary("//"), _binary("//", swapped=True)
    __mod__, __rmod__ = _binary("%"), _binary("%", swapped=True)
    __eq__, __ne__ = _binary("=="), _binary("!=")
    __lt__, __le__, __gt__, __ge__ = _binary("<"), _binary("<="), _binary(">"), _binary(">=")
    __and__, __or__ = _binary("&"), _binary("|")
    __rand__, __ror__ = __and__, __or__

    def __pow__(self, power: Any) -> Any:
        if power != 2 or isinstance(power, _Symbol):
            raise Untraceable("'**' other than '** 2'")
        return self * self

    def __neg__(self) -> _Symbol:
        return self._apply("neg", "-", "int", "float")

    def __abs__(self) -> _Symbol:
        return self._apply("abs", "abs", "int", "float")

    def __invert__(self) -> _Symbol:
        return self._apply("~", "~", "bool")

    def __bool__(self) -> bool:
        if self.tree.kind != "bool" or self.tracer is None:
            raise Untraceable(f"the truth of a {self.tree.kind}")
        return self.tracer.ask(self.tree)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> _Symbol:
        name = f"np.{ufunc.__name__}"
        if method != "__call__" or options or ufunc.__name__ not in UFUNCS | {"absolute"}:
            raise Untraceable(name)
        given = [_operand(each) for each in inputs]
        if not {each.kind for each in given} <= {"int", "float"}:
            raise Untraceable(f"{name} of {', '.join(each.kind for each in given)}")
        if ufunc.__name__ == "absolute":
            return abs(self.then(given[0]))
        return self.then(Operation(ufunc.__name__, tuple(given), "float"))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Untraceable(f"'.{name}' of {self.tree}")

    def __float__(self) -> NoReturn:
        raise Untraceable("float() or a function of the module math; NumPy's can be compiled, as in np.sin(l.x)")

    def __int__(self) -> NoReturn:
        raise Untraceable("int()")

    def __hash__(self) -> NoReturn:
        raise Untraceable("a look-up in a set or dict")

    def __str__(self) -> NoReturn:
        raise Untraceable("str()")

    __index__, __round__, __len__, __iter__, __repr__ = __int__, __int__, __int__, __int__, __str__


def _operand(value: Any) -> Tree:
    """A symbol's tree, or a constant's; times are whole numbers."""
    match value:
        case _Symbol():
            return value.tree
        case np.bool_() | np.integer() | np.floating():
            return _constant(value.item())
        case timedelta():
            return _constant(value // timedelta(microseconds=1))
        case datetime():
            return _constant(in_microseconds(value))
        case date():
            return _constant((value - date(1970, 1, 1)).days)
        case _:
            return _constant(value)


def _constant(value: Any) -> ConstantValue:
    """The tree of a value of Python."""
    match value:
        case bool():
            return TRUE if value else FALSE
        case int() if -(2**63) <= value < 2**63:
            return ConstantValue(value, "int")
        case float():
            return ConstantValue(value, "float")
        case str() | bytes():
            return ConstantValue(value, "text")
        case _:
            raise Untraceable(f"a constant of type {type(value).__name__}")


def _expression_symbol(expr: nw.Expr, columns: Mapping[str, Column]) -> _Symbol:
    """A symbol to which all functions of an expression were applied."""
    symbol: _Symbol | None = None
    for call in calls_of(expr):
        match call.name, call.options:
            case "col", {"names": [name]} if name in columns:
                symbol = _Symbol(columns[name])
            case "lit", {"value": value}:
                symbol = _Symbol(_constant(value))
            case name, _ if symbol is not None:
                symbol = _applied(symbol, call, [_argument(each, call, columns) for each in call.arguments])
            case name, _:
                raise Untraceable(f"'{name}'")
    if symbol is None:
        raise Untraceable("an expression that cannot be taken apart")
    return symbol


def _applied(symbol: _Symbol, call: ExpressionCall, arguments: list[_Symbol]) -> _Symbol:
    result: _Symbol
    match call.name:
        case name if name in _OPERATORS:
            result = getattr(symbol, name)(*arguments)
        case "abs":
            result = abs(symbol)
        case "is_null":
            result = symbol.then(Operation("is null", (symbol.tree,)))
        case "is_between" if call.options.get("closed") == "both":
            result = (symbol >= arguments[0]) & (symbol <= arguments[1])
        case name:
            raise Untraceable(f"'{name}'")
    return result


def _argument(value: Any, call: ExpressionCall, columns: Mapping[str, Column]) -> _Symbol:
    if isinstance(value, nw.Expr):
        return _expression_symbol(value, columns)
    if isinstance(value, str) and not call.text_is_literal:
        raise Untraceable(f"a column by its bare name in '{call.name}'")
    return _Symbol(_constant(value))


def _check_code(function: Callable[..., Any]) -> None:
    """Refuse what would pass unnoticed: asking what kind of object a symbol is."""
    seen: set[int] = set()

    def visit(code: CodeType, names: dict[str, Any]) -> None:
        if id(code) in seen:
            return
        seen.add(id(code))
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IS_OP" or "NONE" in instruction.opname:
                raise Untraceable("'is'; for null write l.x == None")
            if instruction.opname == "LOAD_GLOBAL" and instruction.argval in _ASK_THE_OBJECT:
                raise Untraceable(f"{instruction.argval}()")
            called = names.get(instruction.argval) if isinstance(instruction.argval, str) else None
            if isinstance(called, FunctionType):
                visit(called.__code__, _names(called))
        for held in code.co_consts:
            if isinstance(held, CodeType):
                visit(held, names)

    if isinstance(function, FunctionType):
        visit(function.__code__, _names(function))


def _names(function: FunctionType) -> dict[str, Any]:
    """What the free names of a function stand for."""
    cells = function.__closure__ or ()
    held = {}
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
    return {**function.__globals__, **held}
