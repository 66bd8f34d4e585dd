"""The ledger: every step of every control loop, durably, in SQLite."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tidegate.control.events import Event, Noticed, Observed, Stepped
from tidegate.errors import EnvironmentFault
from tidegate.telemetry.rows import Row, StepRows, step_rows
from tidegate.telemetry.schema import open_to_write
from tidegate.telemetry.writers import note_end, note_writer


class Ledger:
    """Writes the events of control loops to a file; give it to a loop as its `record`.

    Events are gathered until their step is over and then written in one transaction, so that a reader, or whoever opens
    the file after a crash, finds whole steps only. A transaction is handed to the operating system before `__call__`
    returns: killing the process loses nothing but the step it was in, losing the machine also the last seconds. Any number
    of loops and threads may share a ledger, and several processes may write to one file; each `open` is a run of its own.

    A step costs a fraction of a millisecond, and O(instances + shards) for summing up what was observed of them.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, run: int) -> None:
        self._connection, self._path, self.run = connection, path, run
        self._gathered: dict[str, list[Event]] = {}
        self._watched: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, label: str = "") -> Ledger:
        """Begin a run in the file, which is made if it is not there. The label is for whoever reads it later.

        A new file is for this user alone, and so are those that SQLite puts beside it; one that is there keeps its mode.
        """
        with suppress(OSError):  # which open_to_write explains
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        connection = open_to_write(Path(path))
        try:
            run = connection.execute("INSERT INTO runs (label) VALUES (?)", (label,)).lastrowid or 0
            note_writer(connection, run)
        except sqlite3.Error as error:
            connection.close()
            raise EnvironmentFault(f"ledger {path} cannot be written: {error}") from error
        return cls(connection, Path(path), run)

    def __call__(self, event: Event) -> None:
        """Take an event; with the last one of a step, write the step. A notice is written at once."""
        with self._lock:
            if isinstance(event, Noticed):
                self._write_notice(event)
                return
            if isinstance(event, Observed):
                # Also forgets what is left of a step in which a controller raised an error.
                self._gathered[event.subquery] = []
            step = self._gathered.setdefault(event.subquery, [])
            step.append(event)
            if isinstance(event, Stepped):
                del self._gathered[event.subquery]
                self._write(step_rows(step))

    def close(self) -> None:
        """End the run; a step that is not over is not written."""
        with self._lock:
            # A disk that is full by now must not hide how the run itself ended; readers see that the process is gone.
            with suppress(sqlite3.Error):
                note_end(self._connection, self.run)
            self._connection.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_notice(self, event: Noticed) -> None:
        row: Row = {"subquery": event.subquery, "step": event.step, "time_seconds": event.time_seconds}
        try:
            self._insert("notices", {"run": self.run, **row, "kind": event.notice.value, "text": event.text})
        except sqlite3.Error as error:
            raise EnvironmentFault(f"ledger {self._path} cannot be written: {error}") from error

    def _write(self, step: StepRows) -> None:
        try:
            # Leaving the block commits, or rolls back after an error.
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._insert_step(step)
        except sqlite3.Error as error:
            raise EnvironmentFault(f"ledger {self._path} cannot be written: {error}") from error

    def _insert_step(self, step: StepRows) -> None:
        observation = self._insert("observations", {"run": self.run, **step.observation})
        numbers = []
        for each in step.decisions:
            numbers.append(self._insert("decisions", {"observation": observation, **each.row}))
            for other in each.rejected:
                values: Row = {"instances": int(other.instances), "why_not": other.why_not}
                self._insert("alternatives", {"decision": numbers[-1], **values})
        for decided_step, row in step.effects:
            number = self._watched.pop((step.subquery, decided_step), None)
            if number is not None:
                self._insert("effects", {"decision": number, **row})
        if step.acted:
            self._watched[step.subquery, step.step] = numbers[0]

    def _insert(self, table: str, row: Row) -> int:
        names, places = ", ".join(row), ", ".join("?" * len(row))
        cursor = self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(row.values()))
        return cursor.lastrowid or 0
