"""The source of a user's class as a tree, and refusals that name the line which prevents something."""

from __future__ import annotations

import ast
import inspect
import linecache
from dataclasses import dataclass
from types import FunctionType
from typing import NoReturn

from tidegate.errors import QueryError

PROCESS = "process"
"""The method that takes a tuple."""
LIKE = f"def {PROCESS}(self, t), which returns or yields rows"


@dataclass(frozen=True, slots=True)
class ClassSource:
    """A class as it is written: its tree, and its file."""

    given: type
    tree: ast.ClassDef
    file: str

    @classmethod
    def of(cls, given: type) -> ClassSource:
        """The source of a class; refuses one that has none."""
        if not inspect.isclass(given):
            raise QueryError(f"operator: takes a class, as in tg.operator(MyClass, returns=...); got {given!r}")
        method = vars(given).get(PROCESS)
        if not isinstance(method, FunctionType):
            raise QueryError(f"operator '{given.__name__}': it has no method {PROCESS}; write {LIKE}")
        # Code knows its file also where no module does: in a script that was run by another, in a notebook.
        file, line = method.__code__.co_filename, method.__code__.co_firstlineno
        lines = "".join(linecache.getlines(file, method.__globals__))
        around = [
            node
            for node in ast.walk(ast.parse(lines))
            if isinstance(node, ast.ClassDef)
            and node.name == given.__name__
            and node.lineno <= line <= (node.end_lineno or 0)
        ]
        if not around:
            raise QueryError(
                f"operator '{given.__name__}': its source cannot be read from {file}, and the key is found there; define "
                "the class in a file"
            )
        return cls(given, around[-1], file)

    def methods(self) -> dict[str, ast.FunctionDef]:
        """The functions of the class by name."""
        return {part.name: part for part in self.tree.body if isinstance(part, ast.FunctionDef)}

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        """Refuse a class because of a line."""
        line = getattr(node, "lineno", 1)
        text = linecache.getline(self.file, line).strip()
        raise QueryError(f"operator '{self.given.__name__}': {self.file}, line {line}: `{text}`: {what}")


def self_attribute(node: ast.AST, me: str) -> str | None:
    """X, if a node is ``self.X``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == me:
        return node.attr
    return None


def parameters(source: ClassSource, method: ast.FunctionDef, names: int, like: str) -> list[str]:
    """The names of a method's parameters, of which there must be so many."""
    given = method.args
    plain = [one.arg for one in (*given.posonlyargs, *given.args)]
    if len(plain) != names or given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
        source.refuse(method, f"write it as {like}")
    if method.decorator_list:
        source.refuse(method.decorator_list[0], f"a decorator may do anything; write {like} without")
    return plain
