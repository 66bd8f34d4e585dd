"""How the method of a user's class uses its dicts: the key is the attribute of the tuple by which all of them are indexed.

The analysis of Gedik et al. (appendix A.2, case 2): an operator is partitioned stateful if all it changes is in maps, and
all uses of these maps go by one index, made of attributes of the tuple.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from tidegate.query.classes.attributes import Attributes
from tidegate.query.classes.source import LIKE, PROCESS, ClassSource, parameters, self_attribute

_BY_KEY = ("get", "pop", "setdefault")
_OVER_ALL = ("items", "keys", "values", "clear", "update", "popitem", "copy")
_FRESH = ("dict", "set")


@dataclass(slots=True)
class Uses:
    """What was found in a method: the columns of the key, and where they were first used as one."""

    source: ClassSource
    attributes: Attributes
    me: str
    arriving: str
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    at: ast.AST | None = None

    def columns(self, index: ast.expr) -> tuple[str, ...] | None:
        """The columns of the tuple that an expression stands for."""
        match index:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(column))) if name == self.arriving:
                return (column,)
            case ast.Name(id=name):
                return self.aliases.get(name)
            case ast.Tuple(elts=parts) if len(parts) > 1:
                found = [self.columns(part) for part in parts]
                return None if any(one is None for one in found) else tuple(name for one in found for name in one or ())
        return None

    def indexed(self, node: ast.AST, name: str, index: ast.expr) -> None:
        """Note that a dict is indexed by an expression, which must be the key."""
        found = self.columns(index)
        if found is None:
            self.source.refuse(
                node,
                f"self.{name} is indexed by {ast.unparse(index)}, which is no attribute of the tuple; index it by "
                f"{self.arriving}['column'], and add a column that has to be computed with .with_columns(...) before",
            )
        if not self.key:
            self.key, self.at = found, node
        elif found != self.key:
            first = getattr(self.at, "lineno", 0)
            self.source.refuse(
                node,
                f"self.{name} is indexed by {self._shown(found)}, and line {first} indexes by {self._shown(self.key)}; an "
                f"operator has one key. Write self.{name}[{self._shown(self.key)}][{self._shown(found)}] for a dict inside "
                "each key, or make two operators",
            )

    def _shown(self, columns: tuple[str, ...]) -> str:
        return ", ".join(f"{self.arriving}['{column}']" for column in columns)


def key_of(source: ClassSource, attributes: Attributes) -> tuple[str, ...]:
    """The columns by which all dicts of a class are indexed; refuses whatever does not go by them."""
    if source.tree.bases or source.tree.keywords or source.tree.decorator_list:
        source.refuse(
            source.tree, "a class that inherits or is decorated may do what is not written here; write it plainly"
        )
    methods = source.methods()
    method = methods[PROCESS]
    me, arriving = parameters(source, method, 2, LIKE)
    uses = Uses(source, attributes, me, arriving)
    bound = _bindings(method)
    if bound[me] > 1 or bound[arriving] > 1:
        source.refuse(method, f"{me} and {arriving} must stay what they are; use other names for other things")
    _find_aliases(uses, method, bound)
    called: set[str] = set()
    for node, above in _walk(method):
        _check_name(source, node, above, me, bound)
        name = self_attribute(node, me)
        if name is None:
            continue
        if name in attributes.dicts:
            _check_dict_use(uses, node, above, name)
        elif name in attributes.constants or name in attributes.of_class:
            if not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
                _refuse_unkeyed(uses, node, name)
        elif name in methods and above and isinstance(above[-1], ast.Call) and above[-1].func is node:
            called.add(name)
        else:
            _refuse_unkeyed(uses, node, name)
    for name in sorted(called):
        _check_other_method(source, attributes, methods[name])
    if not uses.key:
        source.refuse(method, f"it uses none of its dicts, so there is no key; index them by {arriving}['column']")
    return uses.key


def _refuse_unkeyed(uses: Uses, node: ast.AST, name: str) -> None:
    key = f"{uses.arriving}['column']"
    uses.source.refuse(
        node,
        f"self.{name} is no dict that __init__ creates, so it would be one value for all keys; make it one, and write "
        f"self.{name}[{key}]",
    )


def _check_dict_use(uses: Uses, node: ast.AST, above: list[ast.AST], name: str) -> None:
    """A dict is used by its key, or refused."""
    outer = above[-1] if above else None
    beyond = above[-2] if len(above) > 1 else None
    match outer:
        case ast.Subscript(value=value, slice=index) if value is node:
            uses.indexed(node, name, index)
            if isinstance(beyond, ast.Assign) and outer in beyond.targets:
                _check_fresh(uses, name, beyond.value)
            return
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[value]) if value is node:
            uses.indexed(node, name, left)
            return
        case ast.Attribute(attr=function) if isinstance(beyond, ast.Call) and beyond.func is outer:
            if function in _BY_KEY and beyond.args and not beyond.keywords:
                uses.indexed(node, name, beyond.args[0])
                if function == "setdefault" and len(beyond.args) > 1:
                    _check_fresh(uses, name, beyond.args[1])
                return
            if function in _OVER_ALL:
                _refuse_over_all(uses, node, f"self.{name}.{function}()")
    if isinstance(outer, ast.For | ast.comprehension | ast.Starred | ast.YieldFrom):
        _refuse_over_all(uses, node, f"self.{name}")
    if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Name) and hasattr(builtins, outer.func.id):
        _refuse_over_all(uses, node, f"{outer.func.id}(self.{name})")
    uses.source.refuse(
        node,
        f"self.{name} is used as a whole; it may be used by its key alone: self.{name}[{uses.arriving}['column']], "
        f"{uses.arriving}['column'] in self.{name}, and .{', .'.join(_BY_KEY)} of it",
    )


def _refuse_over_all(uses: Uses, node: ast.AST, what: str) -> None:
    uses.source.refuse(
        node,
        f"{what} goes over all keys, and each instance has some of them; keep what you need for each key, or aggregate over "
        "all keys in a step after this one",
    )


def _check_fresh(uses: Uses, name: str, value: ast.expr) -> None:
    """What becomes the dict or set of a key must have no other name, by which it could be changed."""
    if uses.attributes.dicts[name].kind not in ("map", "set"):
        return
    new = isinstance(value, ast.Dict | ast.DictComp | ast.Set | ast.SetComp) or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _FRESH
    )
    if not new:
        uses.source.refuse(
            value,
            f"what self.{name} keeps is a copy of {ast.unparse(value)}, and later changes of that would not be in it; write "
            f"a new dict or set here, as in {{}} or set(...), and change self.{name}[{uses.arriving}['column']]",
        )


def _check_other_method(source: ClassSource, attributes: Attributes, method: ast.FunctionDef) -> None:
    """A method that the method calls may compute, and touches no dict."""
    me = method.args.args[0].arg if method.args.args and not method.decorator_list else ""
    bound = _bindings(method)
    for node, above in _walk(method):
        _check_name(source, node, above, me, bound)
        name = self_attribute(node, me)
        constant = name in attributes.constants or name in attributes.of_class
        if name is not None and not (constant and isinstance(node.ctx, ast.Load)):  # type: ignore[attr-defined]
            source.refuse(node, f"only {PROCESS} may use self.{name}; move this there, and pass the value on")


def _check_name(source: ClassSource, node: ast.AST, above: list[ast.AST], me: str, bound: Counter[str]) -> None:
    """Names are local, or stand for what cannot change; the object itself is passed on to nobody."""
    if isinstance(node, ast.Global | ast.Nonlocal):
        source.refuse(
            node, "a variable outside the class is one for all keys, on every machine another; keep it in a dict"
        )
    if not isinstance(node, ast.Name):
        return
    if node.id == me:
        if not (above and isinstance(above[-1], ast.Attribute)):
            source.refuse(node, f"{me} is passed on, and what happens to it cannot be seen; use its attributes here")
        return
    if bound[node.id] or not isinstance(node.ctx, ast.Load):
        return
    found, value = _outside(source, node.id)
    if found and not _is_fixed_outside(value):
        source.refuse(
            node,
            f"the global {node.id} is {type(value).__name__}, which may change, and is another on every machine; make it a "
            "constant, or keep it in a dict of the class",
        )


def _outside(source: ClassSource, name: str) -> tuple[bool, Any]:
    """What a name stands for outside the class, if anything is known of it."""
    for function in vars(source.given).values():
        if isinstance(function, FunctionType):
            known = inspect.getclosurevars(function)
            for names in (known.nonlocals, function.__globals__):
                if name in names:
                    return True, names[name]
    return False, None


def _is_fixed_outside(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_fixed_outside, value))
    if value is None or isinstance(value, type | ModuleType | FunctionType | BuiltinFunctionType):
        return True
    # Values that can be hashed by what they hold do not change: numbers, text, dates, patterns, frozen dataclasses.
    by_value: Any = type(value).__hash__
    return by_value is not None and by_value is not object.__hash__


def _find_aliases(uses: Uses, method: ast.FunctionDef, bound: Counter[str]) -> None:
    """Local names that stand for attributes of the tuple: assigned once, and never again."""
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = list(zip(target.elts, value.elts, strict=True))
        for name, given in pairs:
            columns = uses.columns(given)
            if isinstance(name, ast.Name) and bound[name.id] == 1 and columns is not None:
                uses.aliases[name.id] = columns


def _bindings(method: ast.FunctionDef) -> Counter[str]:
    """How often each name is bound in a method, its parameters included."""
    found: Counter[str] = Counter()
    for node in ast.walk(method):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name) | ast.alias(name=name, asname=None):
                found[name] += 1
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                found[name] += 1
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                found[name] += 1
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if node is not method:
                found[name] += 1
    return found


def _walk(method: ast.FunctionDef) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """The nodes of a method's body, each with those around it, from outside in."""

    def visit(node: ast.AST, above: list[ast.AST]) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
        yield node, above
        for child in ast.iter_child_nodes(node):
            yield from visit(child, [*above, node])

    for statement in method.body:
        yield from visit(statement, [])
