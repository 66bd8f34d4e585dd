"""Statements of a user's function as statements of a loop.

Where two branches leave a variable with different kinds, or different rows, what follows them is translated once for each.
So every variable has one kind, as in Python at that place, and rows need no list.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import FunctionType
from typing import Any, TypeVar

import pyarrow as pa

from tidegate.query.translated.calls import Calls
from tidegate.query.translated.expressions import Split
from tidegate.query.translated.values import (
    LEAST,
    MOST,
    NO,
    NONE,
    NOTHING_OF,
    YES,
    Kind,
    Known,
    Listed,
    Mapped,
    Parameter,
    Result,
    Scalar,
    Unsupported,
    kind_of,
)
from tidegate.query.translated.written import Untranslatable

MOST_STATEMENTS = 2_000
"""Statements that are translated, those that follow several branches counted for each."""
MOST_LINES = 500
"""Lines of a loop: more would take many seconds to compile."""
_MOMENTS = -62_000_000_000_000_000, 253_000_000_000_000_000
"""Microseconds that are moments of Python, less a few years at both ends."""
_YIELDED = "<yielded>"
Env = dict[str, Known]
_Node = TypeVar("_Node")


class Statements(Calls):
    """Translates the body of ``update`` or ``output``. ``fields`` are those of the state, ``returns`` those of rows."""

    def __init__(
        self, function: FunctionType, env: Env, fields: pa.Schema, returns: pa.Schema, role: str, unbounded: bool
    ) -> None:
        super().__init__(function)
        self.env = env
        self._fields, self._returns, self._role, self._unbounded = fields, returns, role, unbounded
        self._left = MOST_STATEMENTS
        self._generator = bool(function.__code__.co_flags & 0x20)
        self.most_rows = 0
        if self._generator and role == "update":
            raise Untranslatable("it is a generator")
        if self._generator:
            self.env[_YIELDED] = Listed(())

    def body(self, tree: ast.FunctionDef | ast.Lambda) -> list[str]:
        """The lines of a function; each way ends with ``continue`` or ``break``."""
        if isinstance(tree, ast.Lambda):
            statements: list[ast.stmt] = [ast.copy_location(ast.Return(tree.body), tree)]
        else:
            end = ast.copy_location(ast.Return(ast.copy_location(ast.Constant(None), tree)), tree)
            statements = [*tree.body, end]
        self._block(statements, [])
        if len(self.lines) > MOST_LINES:
            raise Untranslatable("there are too many ways through the function", tree)
        return self.lines

    def _block(self, statements: Sequence[ast.stmt], following: Sequence[ast.stmt]) -> bool:
        """Translate statements; whether what follows them can be reached, and is not translated yet."""
        for place, statement in enumerate(statements):
            self._left -= 1
            if self._left < 0:
                raise Untranslatable("there are too many ways through the function", statement)
            rest = [*statements[place + 1 :], *following]
            mark, known = len(self.lines), set(self.known)
            try:
                goes_on = self._statement(statement, rest)
            except Split as split:
                del self.lines[mark:]
                self.known = known
                cases = (_replaced(statement, split.node, case) for case in (split.then, split.other))
                then, other = ([case] for case in cases)
                goes_on = self._block([ast.copy_location(ast.If(split.test, then, other), statement)], rest)
            if not goes_on:
                return False
        return True

    def _statement(self, statement: ast.stmt, rest: Sequence[ast.stmt]) -> bool:
        match statement:
            case ast.Return(value):
                self._return(statement, value)
                return False
            case ast.If():
                return self._if(statement, rest)
            case ast.Assign(targets, value):
                for target in targets if len(targets) == 1 else self._refuse(statement, "several targets"):
                    self._assign(target, value)
            case ast.AnnAssign(target, _, ast.expr() as value, _):
                self._assign(target, value)
            case ast.AugAssign(target, operator, value):
                read = ast.copy_location(ast.BinOp(_read(target), operator, value), statement)
                self._assign(target, read)
            case ast.Expr(ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(ast.Yield(ast.expr() as value)) if self._generator:
                self._append(_YIELDED, value)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(id=name), "append"), [value], [])) if name in self.env:
                self._append(name, value)
            case _:
                self._refuse(statement, f"`{ast.unparse(statement).split()[0]}`")
        return True

    def _refuse(self, node: ast.stmt, what: str) -> Any:
        raise Untranslatable(f"{what} is not compiled", node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                self.env[name] = self._kept(self.fresh(value))
            case ast.Tuple(names) if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
                values = [self._kept(self.fresh(each)) for each in value.elts]
                for each, known in zip(names, values, strict=True):
                    if not isinstance(each, ast.Name):
                        raise Untranslatable("only names are assigned like this", target)
                    self.env[each.id] = known
            case ast.Subscript(ast.Name(id=name), index):
                changed, at = self.env.get(name), self.value(index)
                if not isinstance(changed, Mapped) or not changed.changes:
                    raise Untranslatable("only a dict of the function's own can be changed", target)
                if not isinstance(at, Scalar) or not isinstance(at.constant, str):
                    raise Untranslatable("only constant names are compiled", target)
                self.env[name] = Mapped({**changed.values, at.constant: self._kept(self.fresh(value))})
            case _:
                raise Untranslatable("this target is not compiled", target)

    def _kept(self, known: Known) -> Known:
        """A value in a variable of its own, so that it is computed once."""
        if isinstance(known, Result):
            raise Untranslatable("what tg.updated gives is compiled where it is returned at once")
        if isinstance(known, Scalar) and known.constant is None and known.kind != "none":
            there = known.there if known.there.isidentifier() else self.keep(known.there)
            return Scalar(known.kind, self.keep(known.source), there)
        return known

    def _append(self, name: str, value: ast.expr) -> None:
        rows = self.env[name]
        if not isinstance(rows, Listed) or not rows.changes:
            raise Untranslatable(f"'{name}' is no list of the function's own", value)
        self.env[name] = Listed((*rows.items, self.fresh(value)))

    def _if(self, statement: ast.If, rest: Sequence[ast.stmt]) -> bool:
        test = self.condition(statement.test)
        if test in (YES, NO):
            return self._block(statement.body if test == YES else statement.orelse, rest)
        then, env = self._branch(statement.body, rest)
        other, other_env = self._branch(statement.orelse, rest)
        if env is not None and other_env is not None:
            merged = self._merge(env, other_env, then, other, rest)
            if merged is None:
                then, _ = self._branch([*statement.body, *rest], [])
                other, _ = self._branch([*statement.orelse, *rest], [])
            env = other_env = merged
        self.branches(test, then, other)
        if env is None and other_env is None:
            return False
        self.env = env if env is not None else other_env  # type: ignore[assignment]
        return True

    def _branch(self, statements: Sequence[ast.stmt], rest: Sequence[ast.stmt]) -> tuple[list[str], Env | None]:
        before, self.env = self.env, dict(self.env)
        try:
            with self.aside() as lines:
                goes_on = self._block(statements, rest)
            return lines, self.env if goes_on else None
        finally:
            self.env = before

    def _merge(
        self, one: Env, two: Env, after_one: list[str], after_two: list[str], rest: Sequence[ast.stmt]
    ) -> Env | None:
        """What is known after two branches; None if what follows must be translated for each of them."""
        used = {node.id for each in rest for node in ast.walk(each) if isinstance(node, ast.Name)} | {_YIELDED}
        merged: Env = {}
        for name in one.keys() & two.keys() & used:
            known = self._merged_known(one[name], two[name], after_one, after_two)
            if known is None:
                return None
            merged[name] = known
        return merged

    def _merged_known(self, one: Known, two: Known, after_one: list[str], after_two: list[str]) -> Known | None:
        if one is two or one == two:
            return one
        if isinstance(one, Scalar) and isinstance(two, Scalar):
            return self.merged(one, two, after_one, after_two)
        if isinstance(one, Mapped) and isinstance(two, Mapped) and one.values.keys() == two.values.keys():
            values = {}
            for name, value in one.values.items():
                values[name] = self._merged_known(value, two.values[name], after_one, after_two)
                if values[name] is None:
                    return None
            return Mapped(values, one.changes or two.changes)
        return None

    # Where a function returns.

    def _return(self, statement: ast.stmt, value: ast.expr | None) -> None:
        if isinstance(value, ast.IfExp):
            raise Split(value, value.test, value.body, value.orelse)
        known = NONE if value is None else self.value(value)
        if self._role == "output":
            self._emit(self._rows(self.env[_YIELDED] if self._generator else known, statement))
        elif known is NONE or (isinstance(known, Scalar) and known.kind == "none"):
            self._commit(None, NO)
        elif isinstance(known, Result):
            state = self._state(known.states, statement)
            rows, retire = self._rows(known.rows, statement), self._retire(known.retire, statement)
            self._commit(state, retire)
            self._emit(rows)
        else:
            raise Untranslatable("it returns neither tg.updated(...) nor None", statement)
        self.lines += ["i += 1", "continue"]

    def _state(self, given: Sequence[Any], node: ast.stmt) -> dict[str, Scalar] | None:
        """The fields of the new state; None if it stays as it is."""
        if not given:
            return None
        if len(given) > 1:
            raise Untranslatable("there is one input, and one state", node)
        if isinstance(given[0], Scalar) and given[0].kind == "none":
            return {field.name: Scalar("none", f"I{at}[0]", f"I{at}_there[0]") for at, field in enumerate(self._fields)}
        return self._fitted(given[0], self._fields, node, "state")

    def _rows(self, given: Any, node: ast.stmt) -> list[dict[str, Scalar]]:
        if isinstance(given, Scalar) and given.kind == "none":
            return []
        rows = given.items if isinstance(given, Listed) else (given,)
        self.most_rows = max(self.most_rows, len(rows))
        return [self._fitted(row, self._returns, node, "row") for row in rows]

    def _retire(self, given: Any, node: ast.stmt) -> str:
        if not isinstance(given, Scalar) or given.kind != "bool" or given.there != YES:
            raise Untranslatable("retire is neither True nor False", node)
        if not self._unbounded:
            self.guard(given.source)
            return NO
        return given.source

    def _fitted(self, given: Any, schema: pa.Schema, node: ast.stmt, what: str) -> dict[str, Scalar]:
        """The values of a dict as declared columns."""
        if isinstance(given, Parameter) and given.items is not None:
            given = given.items
        if not isinstance(given, Mapped):
            raise Untranslatable(f"the {what} is no dict with constant names", node)
        if given.values.keys() != set(schema.names):
            raise Untranslatable(f"the {what} does not have the declared names", node)
        return {field.name: self._fit(given.values[field.name], field, node) for field in schema}

    def _fit(self, given: Any, field: pa.Field, node: ast.stmt) -> Scalar:
        """A value in the kind of a column; what Python would refuse is left to it."""
        kind, bits = kind_of(field.type), getattr(field.type, "bit_width", 64) if field.type != pa.string() else 64
        if isinstance(given, Unsupported):
            raise Untranslatable(given.what, node)
        if kind is None or field.type in (pa.float32(), pa.float16()):
            raise Untranslatable(f"'{field.name}' is {field.type}, which is not compiled", node)
        if not isinstance(given, Scalar):
            raise Untranslatable(f"'{field.name}' is no number, text, moment or None", node)
        if given.kind == "none":
            return Scalar(kind, NOTHING_OF[kind], NO)
        source = self.source(given)
        if (given.kind, kind) == ("int", "float"):
            return Scalar("float", f"np.float64({source})", given.there)
        if (given.kind, kind) == ("int", "moment"):
            self._within(source, given.there, *_MOMENTS)
            return Scalar("moment", source, given.there)
        if given.kind != kind:
            raise Untranslatable(f"'{field.name}' is {field.type}, and gets a {given.kind}", node)
        if kind == "int" and bits < 64:
            self._within(source, given.there, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        return Scalar(kind, source, given.there)

    def _within(self, source: str, there: str, low: int, high: int) -> None:
        assert LEAST <= low <= high <= MOST
        outside = f"({source} < {low} or {source} > {high})"
        self.guard(outside if there == YES else f"{there} and {outside}")

    def _commit(self, state: dict[str, Scalar] | None, retire: str) -> None:
        """Write the new state; nothing can fail from here on."""
        kept = [f"alive[slot] = {YES}"] if self._unbounded else []
        for at, field in enumerate(self._fields):
            if state is not None:
                value = state[field.name]
                kept += self._stored(f"S{at}", "slot", value, f"s{at}")
        forgotten = [line for at in range(len(self._fields)) for line in self._initial(at)]
        forgotten.append(f"alive[slot] = {NO}")
        if retire == NO:
            self.lines += kept
        elif retire == YES:
            self.lines += forgotten
        else:
            self.branches(retire, forgotten, kept)

    def _initial(self, at: int) -> list[str]:
        return [f"S{at}[slot] = I{at}[0]", f"S{at}_there[slot] = I{at}_there[0]"]

    def _stored(self, array: str, place: str, value: Scalar, unchanged: str = "") -> list[str]:
        if value.source == unchanged:
            return []
        return [f"{array}[{place}] = {value.source}", f"{array}_there[{place}] = {value.there}"]

    def _emit(self, rows: Sequence[dict[str, Scalar]]) -> None:
        for row in rows:
            for at, field in enumerate(self._returns):
                self.lines += self._stored(f"O{at}", "n", row[field.name])
            self.lines += ["of[n] = i", "n += 1"]


def _read(target: ast.expr) -> ast.expr:
    """A target as an expression."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    raise Untranslatable("this target is not compiled", target)


def _replaced(node: _Node, old: ast.expr, new: ast.expr) -> _Node:
    """A tree in which one node is another."""
    if node is old:
        return new  # type: ignore[return-value]
    if isinstance(node, list):
        return [_replaced(each, old, new) for each in node]  # type: ignore[return-value]
    if not isinstance(node, ast.AST):
        return node
    parts = {name: _replaced(part, old, new) for name, part in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**parts), node)


def scalar_of(field: pa.Field, name: str, what: str) -> Scalar | Unsupported:
    """A column or field that is in a variable."""
    kind: Kind | None = kind_of(field.type)
    if kind is None:
        return Unsupported(f"{what} '{field.name}' is {field.type}, which is not compiled")
    return Scalar(kind, name, f"{name}_there")
