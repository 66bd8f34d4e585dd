"""Sources of tuples: what they have in common.

A bounded source is a `BatchOrigin`: files of any format, a table, or an object of a user's own. Each kind is a file here;
`tidegate.stream` opens them, and every runtime reads them by this protocol alone. What arrives while it is read, files of a
folder that grows or lines of standard input, is an `ArrivingOrigin`. Other sources without end are a runtime's own
business: iterables (`in_memory`) and topics (`kafka`) in process, streaming DataFrames on Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError, EnvironmentFault

_SHOWN = 80

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Where the rows of a batch come from: the ``first`` one and those after it, unless ``numbers`` has them all.

    Lines of files are counted from 1, rows of parquet files, tables and iterables from 0, as are the offsets of Kafka.

    >>> RowPlace("calls.csv", "line", 17).of(2)
    'calls.csv, line 19'
    """

    file: str | None
    unit: str
    first: int
    numbers: Numbers | None = None

    def of(self, row: int) -> str:
        """The place of one row of the batch, counted from 0."""
        number = self.number(row)
        return f"{self.unit} {number}" if self.file is None else f"{self.file}, {self.unit} {number}"

    def number(self, row: int) -> int:
        """The number of one row of the batch among all lines or rows."""
        return self.first + row if self.numbers is None else int(self.numbers[row])

    def only(self, rows: Numbers) -> RowPlace:
        """The place of the batch that holds only some of its rows."""
        return RowPlace(
            self.file, self.unit, self.first, self.first + rows if self.numbers is None else self.numbers[rows]
        )

    def after(self, rows: int) -> RowPlace:
        """The place of the batch without its first rows."""
        left = None if self.numbers is None else self.numbers[rows:]
        return RowPlace(self.file, self.unit, self.first + rows, left)


@dataclass(frozen=True, slots=True)
class PlacedBatch:
    """Consecutive records, and where they come from."""

    batch: pa.RecordBatch
    place: RowPlace


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that cannot be read: where it is, why, and its text; bytes that are no text are escaped.

    Of a tuple that is set aside for its time the text is written from its columns, and its place may be unknown. A record
    of Kafka is at an ``offset``, which is the unit, and its file is a partition, as in 'calls[3]'.
    """

    file: str | None
    line: int | None
    reason: str
    raw: str
    unit: str = "line"

    def __str__(self) -> str:
        shown = self.raw if len(self.raw) <= _SHOWN else f"{self.raw[:_SHOWN]}…"
        what = "line" if self.unit == "line" else "value"
        return f"{self.file}, {self.unit} {self.line}: {self.reason}; the {what} is {shown!r}"

    def letter(self) -> dict[str, str | int | None]:
        """The record as it is written to a file for such."""
        place: dict[str, str | int | None] = {"file": self.file, "line": self.line}
        if self.unit == "offset" and self.file is not None:
            topic, _, partition = self.file.removesuffix("]").rpartition("[")
            place = {"topic": topic, "partition": int(partition), "offset": self.line}
        return {**place, "reason": self.reason, "raw": self.raw}


@dataclass(slots=True)
class Rejects:
    """Stops the run at a malformed record of one stream, or sets it aside; for one thread at a time.

    With ``path`` each is appended to that file as a line of JSON, before the records around it are passed on; without,
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
                f"{found}. Fix it, or have such records set aside: tg.stream(..., dead_letters='rejected.jsonl')"
            )
        self.write(found)
        self.count += 1

    def write(self, found: Malformed) -> None:
        """Append a record to the file."""
        assert self.path is not None
        letter = {"stream": self.stream, **found.letter()}
        try:
            with Path(self.path).open("a", encoding="utf-8") as letters:
                letters.write(json.dumps(letter, ensure_ascii=False) + "\n")
        except OSError as error:
            raise EnvironmentFault(
                f"stream '{self.stream}': a malformed record ({found}) cannot be written to {self.path}: {error}"
            ) from error


@runtime_checkable
class BatchOrigin(Protocol):
    """Bounded input that can be read as often as wanted, in batches, in the same order each time."""

    @property
    def name(self) -> str:
        """What its stream is called, unless the user names it."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records."""
        ...

    def batches(self, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None = None) -> Iterator[PlacedBatch]:
        """Its records in their order: the columns of ``schema``, some or all of its own, in at most ``rows`` at once.

        A malformed record goes to ``rejects``; so does one without event time, if its column is named.
        """
        ...


@runtime_checkable
class ArrivingOrigin(Protocol):
    """Input that comes while it is read and has no end of its own, or that can be read once only."""

    @property
    def name(self) -> str:
        """What its stream is called, unless the user names it."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records."""
        ...

    def arriving(
        self, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None, pause: Callable[[float], object]
    ) -> Iterator[PlacedBatch]:
        """Its records as `BatchOrigin.batches` gives them; ``pause`` waits, and is true when no more are wanted."""
        ...


def read_table(
    origin: BatchOrigin, schema: pa.Schema, rejects: Rejects | None = None, time: str | None = None
) -> pa.Table:
    """All records of an origin, in their order, in the types of a schema."""
    batches = origin.batches(schema, 1 << 20, rejects or Rejects(origin.name), time)
    return pa.Table.from_batches([each.batch for each in batches], schema=schema)
