"""A function as it is written: its tree, read from its file and compared with the code that runs."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


class Untranslatable(Exception):
    """What prevents a function from being compiled: a reason, and the line where there is one."""

    def __init__(self, why: str, node: ast.AST | None = None) -> None:
        super().__init__(why)
        self.why, self.line = why, getattr(node, "lineno", None)


@dataclass(frozen=True, slots=True)
class WrittenFunction:
    """The source of one function or lambda, and where it stands; ``obstacle`` says why there is none.

    It travels with the function: where a query runs, its file may not be there.
    """

    source: str
    file: str = ""
    line: int = 1
    obstacle: str = ""

    def tree(self) -> ast.FunctionDef | ast.Lambda:
        """The function, with the line numbers of its file."""
        if self.obstacle:
            raise Untranslatable(self.obstacle)
        (statement,) = ast.parse(self.source).body
        ast.increment_lineno(statement, self.line - 1)
        if isinstance(statement, ast.FunctionDef):
            return statement
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Lambda)
        return statement.value

    def told(self, obstacle: Untranslatable) -> str:
        """Where and why translation stopped, for people."""
        if obstacle.line is None:
            return obstacle.why
        lines = self.source.splitlines()
        place = obstacle.line - self.line
        text = f" `{lines[place].strip()}`" if 0 <= place < len(lines) else ""
        return f"{Path(self.file).name}, line {obstacle.line}:{text}: {obstacle.why}"


def written(function: Any) -> WrittenFunction:
    """The source of a function; one that has none, or has changed since it was read, has an obstacle."""
    if not isinstance(function, FunctionType):
        return WrittenFunction("", obstacle=f"{type(function).__name__} is no plain function")
    code = function.__code__
    lines = "".join(linecache.getlines(code.co_filename, function.__globals__))
    module, functions = _read(lines, code.co_filename)
    # What is read again may not be what runs: the file may have changed, or a tool the code.
    if any(one == code for one in module):
        line, column = _within(code)
        around = [node for node in functions if _holds(node, line, column)]
        if around:
            return _as_written(min(around, key=_length), lines, code)
    return WrittenFunction("", obstacle=f"its source cannot be read from {code.co_filename}")


@lru_cache(maxsize=8)
def _read(lines: str, file: str) -> tuple[list[CodeType], list[ast.FunctionDef | ast.Lambda]]:
    """The codes and the functions of a file."""
    try:
        module = compile(lines, file, "exec", dont_inherit=True)
        nodes = list(ast.walk(ast.parse(lines)))
    except SyntaxError:
        return [], []
    return list(_inside(module)), [node for node in nodes if isinstance(node, ast.FunctionDef | ast.Lambda)]


def _inside(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _inside(part)


def _within(code: CodeType) -> tuple[int, int]:
    """The first line and column of what a function does."""
    places = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column]
    return min((place for place in places if place[0] >= code.co_firstlineno), default=(0, 0))


def _holds(node: ast.FunctionDef | ast.Lambda, line: int, column: int) -> bool:
    return (node.lineno, node.col_offset) <= (line, column) <= (node.end_lineno or 0, node.end_col_offset or 0)


def _length(node: ast.FunctionDef | ast.Lambda) -> tuple[int, int]:
    lines = (node.end_lineno or 0) - node.lineno
    return lines, (node.end_col_offset or 0) - node.col_offset if lines == 0 else 0


def _as_written(node: ast.FunctionDef | ast.Lambda, lines: str, code: CodeType) -> WrittenFunction:
    """The text of a function as its author wrote it, so that lines are those of the file; a lambda in brackets."""
    text = ast.get_source_segment(lines, node) or ""
    if isinstance(node, ast.Lambda):
        return WrittenFunction(f"({text})", code.co_filename, node.lineno)
    # A function inside another is indented, except for its first line.
    indent = " " * node.col_offset
    first, *rest = text.splitlines()
    plain = "\n".join([first, *(line.removeprefix(indent) for line in rest)])
    try:
        again = ast.parse(plain).body[0]
        same = isinstance(again, ast.FunctionDef) and list(map(ast.dump, again.body)) == list(map(ast.dump, node.body))
    except SyntaxError:
        same = False
    return WrittenFunction(plain if same else ast.unparse(node), code.co_filename, node.lineno)
