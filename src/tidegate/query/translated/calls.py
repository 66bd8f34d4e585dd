"""Calls that are compiled: of `tg.updated`, and of a few functions of Python."""

from __future__ import annotations

import ast
import math

from tidegate.query.forms import updated
from tidegate.query.translated.expressions import Expressions, Split, called
from tidegate.query.translated.values import LEAST, NO, Known, Listed, Mapped, Object, Result, Scalar, number
from tidegate.query.translated.written import Untranslatable


class Calls(Expressions):
    """Translates expressions with calls."""

    def call(self, node: ast.Call) -> Known:
        function = self.value(node.func)
        if not isinstance(function, Object):
            raise Untranslatable(f"{called(node)} is not compiled", node)
        if function.given is updated:
            return self._updated(node)
        if function.given is dict:
            return self._copied(node)
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise self._no_call(node)
        arguments = node.args
        match function.given, len(arguments):
            case (given, many) if (given is min or given is max) and many > 1:
                return self._extreme(node, given is max)
            case (given, 1) if given is abs:
                return self._absolute(self.number(arguments[0]))
            case (given, 1) if given is bool:
                return Scalar("bool", self.condition(arguments[0]))
            case (given, 1) if given is float:
                return Scalar("float", self.as_float(self.number(arguments[0])))
            case (given, 1) if given is int:
                return self._whole(self.number(arguments[0]))
            case (given, 1) if given is math.isnan:
                return Scalar("bool", f"np.isnan({self.as_float(self.number(arguments[0]))})")
            case (given, 1) if given is math.sqrt:
                found = self.keep(self.as_float(self.number(arguments[0])))
                self.guard(f"not {found} >= 0")
                return Scalar("float", self.keep(f"np.sqrt({found})"))
        raise self._no_call(node)

    def _no_call(self, node: ast.Call) -> Untranslatable:
        return Untranslatable(f"calling {ast.unparse(node.func)} like this is not compiled", node)

    def _absolute(self, found: Scalar) -> Scalar:
        if found.kind == "int":
            self.guard(f"{found.source} == {number(LEAST)}")
        return Scalar(found.kind, self.keep(f"abs({found.source})"))

    def _whole(self, found: Scalar) -> Scalar:
        if found.kind == "int":
            return found
        self.guard(f"not (-9.2e18 < {found.source} < 9.2e18)")
        return Scalar("int", self.keep(f"np.int64({found.source})"))

    def _extreme(self, node: ast.Call, greatest: bool) -> Known:
        """min and max: the first one that no other is less, or greater, than."""
        first, second, *rest = node.args
        one, two = self.present(first), self.present(second)
        if one.kind != two.kind:
            # Which of them it is decides what it is: one of the two, as it is.
            test = ast.Compare(second, [ast.Gt() if greatest else ast.Lt()], [first])
            pair = ast.copy_location(ast.Call(node.func, [first, second], []), node) if rest else node
            if rest:
                again: ast.expr = ast.copy_location(ast.Call(node.func, [pair, *rest], []), node)
                return self.value(again)
            raise Split(node, ast.copy_location(test, node), second, first)
        if one.kind not in ("int", "float", "bool", "moment"):
            raise Untranslatable(f"the order of {one.kind} is not compiled", node)
        found = one
        for place, each in enumerate(node.args[1:]):
            other = two if place == 0 else self.present(each)
            if other.kind != found.kind:
                raise Untranslatable("numbers of different kinds; write min(a, min(b, c))", node)
            kept, next_ = self.keep(found.source), self.keep(other.source)
            found = Scalar(found.kind, self.keep(f"{next_} if {next_} {'>' if greatest else '<'} {kept} else {kept}"))
        return found

    def _copied(self, node: ast.Call) -> Mapped:
        """dict(mapping, name=value)."""
        if len(node.args) > 1:
            raise self._no_call(node)
        made = dict(self.mapping(self.value(node.args[0]), node.args[0])) if node.args else {}
        for keyword in node.keywords:
            made |= (
                self.mapping(self.value(keyword.value), node)
                if keyword.arg is None
                else {keyword.arg: self.fresh(keyword.value)}
            )
        return Mapped(made)

    def _updated(self, node: ast.Call) -> Result:
        given: dict[str, Known] = {"rows": Listed(()), "retire": Scalar("bool", NO, constant=False)}
        for keyword in node.keywords:
            if keyword.arg not in given:
                raise Untranslatable(f"{keyword.arg or '**'} is not compiled here", node)
            given[keyword.arg] = self.value(keyword.value)
        if any(isinstance(each, ast.Starred) for each in node.args):
            raise self._no_call(node)
        return Result(tuple(self.value(each) for each in node.args), given["rows"], given["retire"])
