"""Records that cannot be read: each one stops the run or is set aside in a file, and is counted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tidegate.errors import DataError, EnvironmentFault

_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that cannot be read: where it is, why, and its text; bytes that are no text are escaped.

    Of a tuple that is set aside for its time the text is made from its columns, and its place may be unknown.
    """

    file: str | None
    line: int | None
    reason: str
    raw: str

    def __str__(self) -> str:
        shown = self.raw if len(self.raw) <= _SHOWN else f"{self.raw[:_SHOWN]}…"
        return f"{self.file}, line {self.line}: {self.reason}; the line is {shown!r}"


@dataclass(slots=True)
class Rejects:
    """What happens to the malformed records of one stream, for one thread at a time.

    With ``path`` each is appended to that file as a line of JSON, before the records around it are handed on; without,
    the first one is an error. ``count`` says how many were set aside. ``ahead`` counts the tuples that lie too far in the
    future, which are written to that file if there is one; ``notice`` is what was said about the first of them.
    """

    stream: str
    path: str | None = None
    count: int = 0
    ahead: int = 0
    notice: str | None = None

    def add(self, found: Malformed) -> None:
        """Take a malformed record."""
        if self.path is None:
            raise DataError(
                f"{found}. Mend it, or have such records set aside: tg.stream(..., dead_letters='rejected.jsonl')"
            )
        self.write(found)
        self.count += 1

    def write(self, found: Malformed) -> None:
        """Append a record to the file."""
        assert self.path is not None
        letter = {"stream": self.stream, **asdict(found)}
        try:
            with Path(self.path).open("a", encoding="utf-8") as letters:
                letters.write(json.dumps(letter, ensure_ascii=False) + "\n")
        except OSError as error:
            raise EnvironmentFault(
                f"stream '{self.stream}': a malformed record ({found}) cannot be written to {self.path}: {error}"
            ) from error
