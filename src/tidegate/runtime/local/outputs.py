"""Where results go in this process: a folder, the screen, a function, or memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from tidegate.results import PartWriter, show_count, show_rows


class Output(Protocol):
    """Takes results in the order of event time, from one thread."""

    def write(self, table: pa.Table) -> None: ...

    def close(self, complete: bool) -> None:
        """Nothing more will come; ``complete`` says whether everything did."""
        ...


@dataclass(slots=True)
class ToFolder:
    """Parts in a folder, each of which appears whole."""

    folder: Path
    format: str
    schema: pa.Schema
    _parts: PartWriter = field(init=False)

    def __post_init__(self) -> None:
        self._parts = PartWriter(self.folder, self.format, self.schema)

    def write(self, table: pa.Table) -> None:
        self._parts.write(table)

    def close(self, complete: bool) -> None:
        if complete:
            self._parts.close()
        else:
            self._parts.discard()


@dataclass(slots=True)
class ToScreen:
    """The first rows, printed when the run ends."""

    most: int
    _held: list[pa.Table] = field(default_factory=list)
    _rows: int = 0

    def write(self, table: pa.Table) -> None:
        held = sum(part.num_rows for part in self._held)
        if held < self.most:
            self._held.append(table.slice(0, self.most - held))
        self._rows += table.num_rows

    def close(self, complete: bool) -> None:
        if self._held:
            rows = pa.concat_tables(self._held)
            print(f"{show_rows(rows)}\n{show_count(self._rows, rows.num_rows)}")
        else:
            print("(no rows)")


@dataclass(frozen=True, slots=True)
class ToFunction:
    """A user's function, called with each table."""

    function: Callable[[pa.Table], None]

    def write(self, table: pa.Table) -> None:
        self.function(table)

    def close(self, complete: bool) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class ToIterator:
    """Tables to iterate over while the query runs; it waits when ``most`` of them lie unread."""

    most: int = 64
    _held: deque[pa.Table] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def write(self, table: pa.Table) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) < self.most or self._closed)
            if not self._closed:
                self._held.append(table)
                self._changed.notify_all()

    def close(self, complete: bool) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[pa.Table]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._held) or self._closed)
                if not self._held:
                    return
                table = self._held.popleft()
                self._changed.notify_all()
            yield table
