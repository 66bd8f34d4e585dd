"""Expressions of a user's function as statements of a loop, which stops where Python might answer otherwise.

Whole numbers are checked for overflow, what may be None is checked before it is used, and so on: a *guard* is a line that
leaves the loop, and the contribution is then handed to the function itself. So a guard may always be too strict, never too
lax, and expressions may be evaluated that Python would not reach.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

from tidegate.query.translated.lines import LineWriter, negated
from tidegate.query.translated.names import Found, as_known, look_up
from tidegate.query.translated.values import (
    LEAST,
    NO,
    YES,
    Known,
    Listed,
    Mapped,
    Object,
    Parameter,
    Scalar,
    Unsupported,
    number,
)
from tidegate.query.translated.written import Untranslatable

EXACT = 2**53
"""Whole numbers up to here are floats without rounding."""
_ORDER = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_BITS = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}


class Split(Exception):
    """An expression that is of different kinds in two cases, so that the statement around it is translated twice."""

    def __init__(self, node: ast.expr, test: ast.expr, then: ast.expr, other: ast.expr) -> None:
        super().__init__("different kinds")
        self.node, self.test, self.then, self.other = node, test, then, other


class Expressions(LineWriter):
    """Translates expressions; ``lines`` takes the statements that they need first."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__()
        self.function = function
        self.env: dict[str, Known] = {}
        self.found: dict[tuple[str, ...], Found] = {}
        code = function.__code__
        self._locals = {*code.co_varnames, *code.co_cellvars}

    # Expressions.

    def scalar(self, node: ast.expr) -> Scalar:
        """An expression that is a number, text, moment or None."""
        found = self.value(node)
        if isinstance(found, Unsupported):
            raise Untranslatable(found.what, node)
        if not isinstance(found, Scalar):
            raise Untranslatable("a number, text or None is expected here", node)
        return found

    def present(self, node: ast.expr) -> Scalar:
        """An expression that is not None."""
        return self.guarded(self.scalar(node), node)

    def guarded(self, found: Scalar, node: ast.expr) -> Scalar:
        """A value that is not None behind a guard."""
        if found.kind == "none":
            raise Untranslatable("it is None here", node)
        if found.there != YES and found.there not in self.known:
            self.guard(f"not {found.there}")
            self.known.add(found.there)
        return Scalar(found.kind, self.source(found), constant=found.constant)

    def number(self, node: ast.expr) -> Scalar:
        """An expression that is a number; True is 1."""
        return self.as_number(self.present(node), node)

    def as_number(self, found: Scalar, node: ast.expr) -> Scalar:
        if found.kind == "bool":
            return Scalar("int", self.keep(f"np.int64({found.source})"))
        if found.kind not in ("int", "float"):
            raise Untranslatable(f"a {found.kind} is no number", node)
        return found

    def as_float(self, found: Scalar) -> str:
        return found.source if found.kind == "float" else f"np.float64({found.source})"

    def exact(self, found: Scalar) -> str:
        """A number as a float, which it must be without rounding."""
        if found.kind == "int" and not (found.constant is not None and abs(found.constant) <= EXACT):
            self.guard(f"{found.source} > {EXACT} or {found.source} < -{EXACT}")
        return self.as_float(found)

    def condition(self, node: ast.expr) -> str:
        """Whether an expression is true."""
        match node:
            case ast.UnaryOp(ast.Not(), operand):
                return negated(self.condition(operand))
            case ast.BoolOp(operator, values):
                return self._lazily(isinstance(operator, ast.And), values)
            case _:
                return self.truth(self.scalar(node))

    def truth(self, value: Scalar) -> str:
        match value.kind:
            case "none":
                return NO
            case "bool":
                true = value.source
            case "int" | "float":
                true = f"({value.source} != 0)" if value.constant is None else str(bool(value.constant))
            case "text":
                true = f"({value.source} != {self.text('')})" if value.constant is None else str(bool(value.constant))
            case "moment":
                true = YES
        return true if value.there == YES else value.there if true == YES else f"({value.there} and {true})"

    def _lazily(self, all_: bool, values: Sequence[ast.expr]) -> str:
        """Whether all of some expressions are true, or any; those behind the first may not be evaluated."""
        first, *rest = values
        known = self.condition(first)
        if not rest or known == (NO if all_ else YES):
            return known
        if known == (YES if all_ else NO):
            return self._lazily(all_, rest)
        with self.aside() as lines:
            then = self._lazily(all_, rest)
        if not lines:
            return f"({known} {'and' if all_ else 'or'} {then})"
        name = self.keep(NO if all_ else YES)
        self.branches(known if all_ else negated(known), [*lines, f"{name} = {then}"], [])
        return name

    def value(self, node: ast.expr) -> Known:
        """An expression."""
        match node:
            case ast.Constant(value=constant):
                if constant is Ellipsis or isinstance(constant, bytes | complex):
                    raise Untranslatable(f"{constant!r} is not compiled", node)
                return self._told(node, lambda: as_known(constant, repr(constant)))
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Attribute(value=of, attr=attribute):
                return self._attribute(node, of, attribute)
            case ast.Subscript(value=of, slice=index):
                return self._item(node, self.value(of), self.value(index))
            case ast.BinOp(left, operator, right):
                return self.operation(node, operator, left, right)
            case ast.UnaryOp(operator, operand):
                return self._unary(operator, operand, node)
            case ast.Compare(left, operators, others):
                return self._comparison(node, left, operators, others)
            case ast.BoolOp(operator, values):
                first, *rest = values
                then = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(operator, rest), node)
                cases = (then, first) if isinstance(operator, ast.And) else (first, then)
                return self._either(node, first, *cases)
            case ast.IfExp(test, then, other):
                return self._either(node, test, then, other)
            case ast.Call():
                return self.call(node)
            case ast.Dict(names, values):
                return self._dict(node, names, values)
            case ast.List(items) | ast.Tuple(items):
                return Listed(tuple(self.fresh(item) for item in items), isinstance(node, ast.List))
            case _:
                raise Untranslatable(f"{called(node)} is not compiled", node)

    def call(self, node: ast.Call) -> Known:
        """A call of a function."""
        raise Untranslatable(f"{called(node)} is not compiled", node)

    def fresh(self, node: ast.expr) -> Known:
        """An expression whose value no other name stands for, if it may change."""
        found = self.value(node)
        made_here = isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Call)
        if isinstance(found, Mapped | Listed) and found.changes and not made_here:
            raise Untranslatable(
                f"'{ast.unparse(node)}' would be known under two names; write it out, or copy it", node
            )
        return found

    def _told(self, node: ast.AST, look: Callable[[], Known]) -> Known:
        """What a function gives, whose refusal names a line."""
        try:
            return look()
        except Untranslatable as obstacle:
            raise Untranslatable(obstacle.why, node) from None

    def _name(self, node: ast.expr, name: str) -> Known:
        if name in self.env:
            return self.env[name]
        if name in self._locals:
            raise Untranslatable(f"'{name}' is not assigned on every way to here", node)
        return self._outside(node, (name,))

    def _outside(self, node: ast.expr, path: tuple[str, ...]) -> Known:
        value = look_up(self.function, path)
        self.found[path] = Found(path, value)
        return self._told(node, lambda: as_known(value, ".".join(path)))

    def _attribute(self, node: ast.expr, of: ast.expr, attribute: str) -> Known:
        known = self.value(of)
        if isinstance(known, Parameter):
            if attribute in known.attributes:
                found: Known = known.attributes[attribute]
                return found
            raise Untranslatable(f".{attribute} of the {known.what} is not compiled", node)
        if isinstance(known, Object) and isinstance(known.given, ModuleType) and isinstance(of, ast.Name):
            return self._outside(node, (of.id, attribute))
        raise Untranslatable(f".{attribute} is not compiled", node)

    def _item(self, node: ast.expr, of: Known, index: Known) -> Known:
        if isinstance(of, Parameter) and of.items is not None:
            of = of.items
        if isinstance(index, Scalar) and index.constant is not None and index.there == YES:
            at = index.constant
            if isinstance(of, Mapped) and isinstance(at, str):
                if at not in of.values:
                    raise Untranslatable(f"there is no {at!r}", node)
                found: Known = of.values[at]
                return found
            if isinstance(of, Listed) and type(at) is int and -len(of.items) <= at < len(of.items):
                item: Known = of.items[at]
                return item
        raise Untranslatable("only constant names, of the tuple, the state or a dict, are compiled", node)

    # Arithmetic.

    def operation(self, node: ast.expr, operator: ast.operator, left: ast.expr, right: ast.expr) -> Scalar:
        """An operator on two numbers."""
        one, two = self.present(left), self.present(right)
        if type(operator) in _BITS and one.kind == two.kind and one.kind in ("bool", "int"):
            return Scalar(one.kind, self.keep(f"{one.source} {_BITS[type(operator)]} {two.source}"))
        one, two = self.as_number(one, left), self.as_number(two, right)
        if type(operator) in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[type(operator)], one, two)
        whole = one.kind == two.kind == "int"
        if isinstance(operator, ast.Div):
            if not two.constant:
                self.guard(f"{two.source} == 0")
            if whole:
                # Two whole numbers are divided as they are: their floats must be exact for that.
                return Scalar("float", self.keep(f"{self.exact(one)} / {self.exact(two)}"))
            return Scalar("float", self.keep(f"{self.as_float(one)} / {self.as_float(two)}"))
        if isinstance(operator, ast.FloorDiv | ast.Mod) and whole:
            if two.constant in (None, 0, -1):
                self.guard(f"{two.source} == 0 or {two.source} == -1")
            return Scalar(
                "int", self.keep(f"{one.source} {'//' if isinstance(operator, ast.FloorDiv) else '%'} {two.source}")
            )
        raise Untranslatable(f"this operator on {one.kind} and {two.kind} is not compiled", node)

    def _arithmetic(self, operator: str, one: Scalar, two: Scalar) -> Scalar:
        if "float" in (one.kind, two.kind):
            return Scalar("float", self.keep(f"{self.as_float(one)} {operator} {self.as_float(two)}"))
        left, right = one.source, two.source
        if operator == "*":
            self.guard(f"product_overflows({left}, {right})")
            return Scalar("int", self.keep(f"{left} * {right}"))
        name = self.keep(f"{left} {operator} {right}")
        # The sign of a sum differs from both of its parts, or of a difference as it cannot.
        signs = (
            f"({left} ^ {name}) & ({right} ^ {name})" if operator == "+" else f"({left} ^ {right}) & ({left} ^ {name})"
        )
        self.guard(f"({signs}) < 0")
        return Scalar("int", name)

    def _unary(self, operator: ast.unaryop, operand: ast.expr, node: ast.expr) -> Scalar:
        if isinstance(operator, ast.Not):
            return Scalar("bool", negated(self.condition(operand)))
        if isinstance(operator, ast.USub) and isinstance(operand, ast.Constant) and type(operand.value) in (int, float):
            constant: Any = operand.value
            known = self._told(node, lambda: as_known(-constant, "it"))
            assert isinstance(known, Scalar)
            return known
        found = self.number(operand)
        if isinstance(operator, ast.UAdd):
            return found
        if isinstance(operator, ast.USub):
            if found.kind == "int":
                self.guard(f"{found.source} == {number(LEAST)}")
            return Scalar(found.kind, self.keep(f"-{found.source}"))
        raise Untranslatable("this operator is not compiled", node)

    # Comparisons.

    def _comparison(
        self, node: ast.expr, left: ast.expr, operators: Sequence[ast.cmpop], others: Sequence[ast.expr]
    ) -> Scalar:
        one, all_ = self.scalar(left), []
        for operator, other in zip(operators, others, strict=True):
            if isinstance(operator, ast.In | ast.NotIn):
                among = self._among(node, one, other)
                all_.append(among if isinstance(operator, ast.In) else negated(among))
            else:
                two = self.scalar(other)
                all_.append(self._compare(node, operator, one, two))
                one = two
        if len(all_) > 1 and any(isinstance(operator, ast.In | ast.NotIn) for operator in operators):
            raise Untranslatable("`in` among other comparisons is not compiled", node)
        return Scalar("bool", all_[0] if len(all_) == 1 else f"({' and '.join(all_)})")

    def _compare(self, node: ast.expr, operator: ast.cmpop, one: Scalar, two: Scalar) -> str:
        equality = isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot)
        if equality and "none" in (one.kind, two.kind):
            there = two.there if one.kind == "none" else one.there
            return negated(there) if isinstance(operator, ast.Eq | ast.Is) else there
        if isinstance(operator, ast.Eq | ast.NotEq):
            same = self._equal(node, one, two)
            return same if isinstance(operator, ast.Eq) else negated(same)
        if type(operator) not in _ORDER:
            raise Untranslatable("`is` is compiled for None only", node)
        one, two = self.guarded(one, node), self.guarded(two, node)
        if {one.kind, two.kind} == {"moment"}:
            return f"({one.source} {_ORDER[type(operator)]} {two.source})"
        return self._ordered(_ORDER[type(operator)], self.as_number(one, node), self.as_number(two, node))

    def _ordered(self, operator: str, one: Scalar, two: Scalar) -> str:
        if one.kind == two.kind:
            return f"({one.source} {operator} {two.source})"
        return f"({self.exact(one)} {operator} {self.exact(two)})"

    def _equal(self, node: ast.expr, one: Scalar, two: Scalar) -> str:
        """Whether two values are equal; None equals None."""
        numbers = {one.kind, two.kind} <= {"bool", "int", "float"}
        if one.kind != two.kind and not numbers:
            raise Untranslatable(f"a {one.kind} compared with a {two.kind} is not compiled", node)
        if one.kind != two.kind:
            one, two = self.guarded(one, node), self.guarded(two, node)
            return self._ordered("==", self.as_number(one, node), self.as_number(two, node))
        sources = self.source(one), self.source(two)
        same = f"({sources[0]} == {sources[1]})"
        if one.there == two.there == YES:
            return same
        both = f"({one.there} and {two.there} and {same})"
        return both if YES in (one.there, two.there) else f"({both} or not ({one.there} or {two.there}))"

    def _among(self, node: ast.expr, value: Scalar, among: ast.expr) -> str:
        """Whether a value is one of some others."""
        if not isinstance(among, ast.Tuple | ast.List | ast.Set) or not among.elts:
            raise Untranslatable("`in` is compiled for (a, b, c) only", node)
        items = [self.scalar(item) for item in among.elts]
        if "float" in {value.kind, *(item.kind for item in items)}:
            raise Untranslatable("`in` is not compiled for floats, as NaN is in what holds the same one", node)
        return f"({' or '.join(self._compare(node, ast.Eq(), value, item) for item in items)})"

    # Choices.

    def _either(self, node: ast.expr, test: ast.expr, then: ast.expr, other: ast.expr) -> Known:
        known = self.condition(test)
        if known in (YES, NO):
            return self.value(then if known == YES else other)
        with self.aside() as lines:
            one = self.value(then)
        with self.aside() as others:
            two = self.value(other)
        both = isinstance(one, Scalar) and isinstance(two, Scalar)
        merged = self.merged(one, two, lines, others) if both else None  # type: ignore[arg-type]
        if merged is None:
            raise Split(node, test, then, other)
        self.branches(known, lines, others)
        return merged

    # Dicts.

    def mapping(self, known: Known, node: ast.expr) -> dict[str, Any]:
        """The parts of a dict."""
        if isinstance(known, Parameter) and known.items is not None:
            known = known.items
        if not isinstance(known, Mapped):
            raise Untranslatable("only a dict with constant names is compiled here", node)
        return known.values

    def _dict(self, node: ast.expr, names: Sequence[ast.expr | None], values: Sequence[ast.expr]) -> Mapped:
        made: dict[str, Any] = {}
        for name, value in zip(names, values, strict=True):
            if name is None:
                made |= self.mapping(self.value(value), value)
                continue
            key = self.value(name)
            if not isinstance(key, Scalar) or not isinstance(key.constant, str):
                raise Untranslatable("only constant names are compiled", node)
            made[key.constant] = self.fresh(value)
        return Mapped(made)


def called(node: ast.AST) -> str:
    """What a construct is called."""
    known = {"JoinedStr": "an f-string", "ListComp": "a comprehension", "Lambda": "a lambda", "Call": "this call"}
    return known.get(type(node).__name__, type(node).__name__.lower())
