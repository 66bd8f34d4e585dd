"""A Python function of two tuples becomes a tree by being called with symbols.

A symbol notes what is done to it. Where Python asks it for a truth value (``and``, ``or``, ``not``, ``if``, ``a < b < c``,
``in``), the function is called again for the other answer, so all ways through it are found and put together as branches.
Nothing of its source is needed. A function that does anything else to a value, as calling a method of a string, cannot be
traced, and `Untraceable` says what it was.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from types import CodeType, FunctionType
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tidegate.errors import QueryError, choices
from tidegate.query.predicates.tree import (
    FALSE,
    TRUE,
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
    Kind,
    Negative,
    Opposite,
    Side,
    Tree,
    kind_of,
)

MOST_WAYS = 256
UFUNCS = frozenset(
    {"sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "sqrt", "exp", "log", "hypot", "floor", "ceil"}
)
# What these say of a symbol is not what they would say of a value, and nothing could notice.
_ASK_THE_OBJECT = frozenset({"isinstance", "issubclass", "type", "id", "hasattr", "getattr", "callable"})


class Untraceable(Exception):
    """A function does something that no tree has; the message names it."""


def trace(function: Callable[[Any, Any], Any], left: pa.Schema, right: pa.Schema, step: str) -> Tree:
    """The tree of a function; `Untraceable` if it has none, `QueryError` for a column that is not there."""
    _check_code(function)
    return _Tracer(function, (left, right), step).explore([])


class _Tracer:
    """One function, and the answers given on the present way through it."""

    def __init__(self, function: Callable[[Any, Any], Any], schemas: tuple[pa.Schema, pa.Schema], step: str) -> None:
        self.function = function
        self.rows = _Row(self, 0, schemas[0]), _Row(self, 1, schemas[1])
        self.step = step
        self.answers: list[bool] = []
        self.asked: list[Tree] = []
        self.ways = 0

    def explore(self, before: list[bool]) -> Tree:
        """The tree of what happens after some answers."""
        self.ways += 1
        if self.ways > MOST_WAYS:
            raise Untraceable(f"more than {MOST_WAYS} ways through it")
        self.answers, self.asked = list(before), []
        made = self._call()
        asked, answers = self.asked, self.answers
        for place in range(len(asked) - 1, len(before) - 1, -1):
            otherwise = self.explore([*answers[:place], False])
            made = otherwise if made == otherwise else Branch(asked[place], made, otherwise)
        return made

    def ask(self, tree: Tree) -> bool:
        """The truth of a condition on this way."""
        if isinstance(tree, Constant):
            return bool(tree.value)
        if tree in self.asked:
            return self.answers[self.asked.index(tree)]
        self.asked.append(tree)
        if len(self.asked) > len(self.answers):
            self.answers.append(True)
        return self.answers[len(self.asked) - 1]

    def _call(self) -> Tree:
        try:
            made = self.function(*self.rows)
        except (Untraceable, QueryError):
            raise
        except Exception as error:
            raise Untraceable(f"{type(error).__name__}: {error}") from error
        tree = _tree(made)
        if tree is None or tree.kind != "bool":
            what = f"a {tree.kind}" if tree is not None else type(made).__name__
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
        return _Symbol(self._tracer, Column(self._side, name, kind))


class _Symbol:
    """A value that is not known yet."""

    __slots__ = ("tracer", "tree")

    def __init__(self, tracer: _Tracer, tree: Tree) -> None:
        self.tracer, self.tree = tracer, tree

    def _make(self, tree: Tree) -> _Symbol:
        return _Symbol(self.tracer, tree)

    def _arithmetic(self, operator: str, other: Any, swapped: bool = False) -> _Symbol:
        given = _operand(other)
        kinds: set[Kind] = {self.tree.kind, given.kind}
        if not kinds <= {"int", "float"}:
            raise Untraceable(f"'{operator}' of {self.tree.kind} and {given.kind}")
        if operator in ("//", "%") and kinds != {"int"}:
            raise Untraceable(f"'{operator}' of floats")
        kind: Kind = "float" if operator == "/" or "float" in kinds else "int"
        pair = (given, self.tree) if swapped else (self.tree, given)
        return self._make(Arithmetic(operator, *pair, kind))

    def _compare(self, operator: str, other: Any) -> Any:
        if other is None and operator in ("==", "!="):
            missing = IsNull(self.tree)
            return self._make(missing if operator == "==" else Opposite(missing))
        given = _operand(other)
        kinds = {self.tree.kind, given.kind}
        equality = operator in ("==", "!=")
        if not (kinds <= {"int", "float"} or (equality and len(kinds) == 1)):
            raise Untraceable(f"'{operator}' of {self.tree.kind} and {given.kind}")
        return self._make(Compare(operator, self.tree, given))

    def _logic(self, node: type[Both] | type[Either], other: Any, sign: str) -> _Symbol:
        given = _operand(other)
        if (self.tree.kind, given.kind) != ("bool", "bool"):
            raise Untraceable(f"'{sign}' of {self.tree.kind} and {given.kind}")
        return self._make(node(self.tree, given))

    def __add__(self, other: Any) -> _Symbol:
        return self._arithmetic("+", other)

    def __radd__(self, other: Any) -> _Symbol:
        return self._arithmetic("+", other, swapped=True)

    def __sub__(self, other: Any) -> _Symbol:
        return self._arithmetic("-", other)

    def __rsub__(self, other: Any) -> _Symbol:
        return self._arithmetic("-", other, swapped=True)

    def __mul__(self, other: Any) -> _Symbol:
        return self._arithmetic("*", other)

    def __rmul__(self, other: Any) -> _Symbol:
        return self._arithmetic("*", other, swapped=True)

    def __truediv__(self, other: Any) -> _Symbol:
        return self._arithmetic("/", other)

    def __rtruediv__(self, other: Any) -> _Symbol:
        return self._arithmetic("/", other, swapped=True)

    def __floordiv__(self, other: Any) -> _Symbol:
        return self._arithmetic("//", other)

    def __rfloordiv__(self, other: Any) -> _Symbol:
        return self._arithmetic("//", other, swapped=True)

    def __mod__(self, other: Any) -> _Symbol:
        return self._arithmetic("%", other)

    def __rmod__(self, other: Any) -> _Symbol:
        return self._arithmetic("%", other, swapped=True)

    def __pow__(self, power: Any) -> _Symbol:
        if power != 2 or isinstance(power, _Symbol):
            raise Untraceable("'**' other than '** 2'")
        return self._arithmetic("*", self)

    def __neg__(self) -> _Symbol:
        return self._make(Negative(self._number("-"), self.tree.kind))

    def __abs__(self) -> _Symbol:
        return self._make(Absolute(self._number("abs"), self.tree.kind))

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(">=", other)

    def __and__(self, other: Any) -> _Symbol:
        return self._logic(Both, other, "&")

    def __or__(self, other: Any) -> _Symbol:
        return self._logic(Either, other, "|")

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> _Symbol:
        if self.tree.kind != "bool":
            raise Untraceable(f"'~' of {self.tree.kind}")
        return self._make(Opposite(self.tree))

    def __bool__(self) -> bool:
        if self.tree.kind != "bool":
            raise Untraceable(f"the truth of a {self.tree.kind}")
        return self.tracer.ask(self.tree)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> _Symbol:
        if method != "__call__" or options or ufunc.__name__ not in UFUNCS | {"absolute"}:
            raise Untraceable(f"np.{ufunc.__name__}")
        given = [_operand(each) for each in inputs]
        if not {each.kind for each in given} <= {"int", "float"}:
            raise Untraceable(f"np.{ufunc.__name__} of {', '.join(each.kind for each in given)}")
        if ufunc.__name__ == "absolute":
            return self._make(Absolute(given[0], given[0].kind))
        return self._make(Function(ufunc.__name__, tuple(given)))

    def _number(self, what: str) -> Tree:
        if self.tree.kind not in ("int", "float"):
            raise Untraceable(f"'{what}' of {self.tree.kind}")
        return self.tree

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
    tree = _tree(value)
    if tree is None:
        raise Untraceable(f"a constant of type {type(value).__name__}")
    return tree


def _tree(value: Any) -> Tree | None:
    """A symbol's tree, or a constant; None for what can be neither."""
    match value:
        case _Symbol():
            return value.tree
        case bool() | np.bool_():
            return TRUE if value else FALSE
        case int() | np.integer() if -(2**63) <= int(value) < 2**63:
            return Constant(int(value), "int")
        case float() | np.floating():
            return Constant(float(value), "float")
        case str() | bytes():
            return Constant(value, "text")
        case timedelta():
            return Constant(value // timedelta(microseconds=1), "int")
        case datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return Constant((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), "int")
        case date():
            return Constant((value - date(1970, 1, 1)).days, "int")
        case _:
            return None


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
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                visit(constant, names)

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
