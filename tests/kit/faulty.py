"""A storage whose process ends at some operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidegate.state.storage import Storage


class ProcessEnds(BaseException):
    """Nothing of ours handles it."""


@dataclass
class Faulty:
    """A storage whose process ends at its ``last`` operation: before it is done, or behind it; no other is done."""

    real: Storage
    last: int | None = None
    behind: bool = False
    count: int = 0

    @property
    def uri(self) -> str:
        return self.real.uri

    @property
    def is_local(self) -> bool:
        return self.real.is_local

    def put(self, name: str, data: Any) -> None:
        self.do(lambda: self.real.put(name, data))

    def get(self, name: str) -> Any:
        return self.do(lambda: self.real.get(name))

    def names(self, folder: str) -> list[str]:
        return self.do(lambda: self.real.names(folder))

    def folders(self, folder: str) -> list[str]:
        return self.do(lambda: self.real.folders(folder))

    def remove(self, names: Iterable[str]) -> None:
        self.do(lambda: self.real.remove(names))

    def do(self, work: Any) -> Any:
        """Do something that counts as an operation."""
        self.count += 1
        ends = self.last is not None and self.count >= self.last
        if ends and (not self.behind or self.count > (self.last or 0)):
            raise ProcessEnds
        found = work()
        if ends:
            raise ProcessEnds
        return found
