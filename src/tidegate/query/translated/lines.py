"""The lines of a loop as they are written: variables, guards and branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidegate.query.translated.values import NO, NONE, NOTHING_OF, YES, Scalar


class LineWriter:
    """Takes lines one after the other. User's names never become names of a loop.

    ``known`` are the values that are not None where the next line stands.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.texts: list[str] = []
        self.known: set[str] = set()
        self._names = 0

    def guard(self, condition: str) -> None:
        """Leave the loop if a condition holds."""
        if condition != NO:
            self.lines += [f"if {condition}:", "    break"]

    def name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def keep(self, source: str) -> str:
        """The source of a variable that holds what a source gives."""
        name = self.name()
        self.lines.append(f"{name} = {source}")
        return name

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """Collect statements apart."""
        before, self.lines = self.lines, []
        known, self.known = self.known, set(self.known)
        try:
            yield self.lines
        finally:
            self.lines, self.known = before, known

    def branches(self, test: str, then: Sequence[str], other: Sequence[str]) -> None:
        self.lines += [f"if {test}:", *(f"    {line}" for line in then or ["pass"])]
        if other:
            self.lines += ["else:", *(f"    {line}" for line in other)]

    def merged(self, one: Scalar, two: Scalar, after_one: list[str], after_two: list[str]) -> Scalar | None:
        """A variable that is one value after some lines and another after others; None if they differ in kind."""
        if one == two:
            return one
        kinds = {one.kind, two.kind} - {"none"}
        if len(kinds) > 1:
            return None
        if not kinds:
            return NONE
        kind = kinds.pop()
        name = self.name()
        there = YES if one.there == two.there == YES else f"{name}_there"
        for value, lines in ((one, after_one), (two, after_two)):
            lines.append(f"{name} = {self.source(value) if value.kind != 'none' else NOTHING_OF[kind]}")
            if there != YES:
                lines.append(f"{there} = {value.there}")
        return Scalar(kind, name, there)

    def source(self, value: Scalar) -> str:
        """The source of a value; texts are codes, those of constants among the first."""
        if value.kind == "text" and value.constant is not None:
            return self.text(value.constant)
        return value.source

    def text(self, constant: str) -> str:
        if constant not in self.texts:
            self.texts.append(constant)
        return f"X[{self.texts.index(constant)}]"


def negated(condition: str) -> str:
    """The opposite of a condition."""
    return {YES: NO, NO: YES}.get(condition, f"(not {condition})")
