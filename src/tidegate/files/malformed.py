"""Records that cannot be read: each one stops the run or is set aside in a file, and is counted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tidegate.errors import DataError, EnvironmentFault

_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that cannot be read: where it is, why, and its text; bytes that are no text are escaped."""

    file: str
    line: int
    reason: str
    raw: str

    def __str__(self) -> str:
        shown = self.raw if len(self.raw) <= _SHOWN else f"{self.raw[:_SHOWN]}…"
        return f"{self.file}, line {self.line}: {self.reason}; the line is {shown!r}"


@dataclass(slots=True)
class Rejects:
    """What happens to the malformed records of one stream, for one thread at a time.

    With ``path`` each is appended to that file as a line of JSON, before the records around it are handed on; without,
    the first one is an error. ``count`` says how many were set aside.
    """

    stream: str
    path: str | None = None
    count: int = 0

    def add(self, found: Malformed) -> None:
        """Take a malformed record."""
        if self.path is None:
            raise DataError(
                f"{found}. Mend it, or have such records set aside: tg.stream(..., dead_letters='rejected.jsonl')"
            )
        letter = {"stream": self.stream, **asdict(found)}
        try:
            with Path(self.path).open("a", encoding="utf-8") as letters:
                letters.write(json.dumps(letter, ensure_ascii=False) + "\n")
        except OSError as error:
            raise EnvironmentFault(
                f"stream '{self.stream}': a malformed record ({found}) cannot be written to {self.path}: {error}"
            ) from error
        self.count += 1
