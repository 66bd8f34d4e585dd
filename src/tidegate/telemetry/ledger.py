"""The ledger: every step of every control loop, durably, in SQLite."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tidegate.control import events
from tidegate.control.controller import Action, Decision, Effect
from tidegate.control.observation import Observation
from tidegate.errors import EnvironmentFault, InternalError
from tidegate.telemetry.read import process_start
from tidegate.telemetry.schema import open_to_write

LOG = logging.getLogger(__name__)

Row = dict[str, str | int | float | None]

AS_OBSERVED = (
    *("subquery", "time_seconds", "period_seconds", "offered", "admitted", "processed", "demand", "backlog"),
    *("congestion", "watermark_lag_seconds", "latency_seconds"),
)
"""The fields of an observation that are columns as they are."""


class Ledger:
    """Writes the events of control loops to a file; give it to a loop as its `record`.

    Events are gathered until their step is over and then written in one transaction, so that a reader, also one that opens
    the file after a crash, finds whole steps only. A transaction is handed to the operating system before `__call__`
    returns: killing the process loses nothing but the step it was in, losing the machine also the last seconds. Any number
    of loops and threads may share a ledger, and several processes may write to one file; each `open` is a run of its own.

    A step costs a fraction of a millisecond, and O(instances + shards) for summing up what was observed of them.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, run: int) -> None:
        self._connection, self._path, self.run = connection, path, run
        self._gathered: dict[str, list[events.Event]] = {}
        self._watched: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, label: str = "") -> Ledger:
        """Begin a run in the file, which is created if it is not there. The label is for readers.

        A new file is for this user alone, and so are those that SQLite puts beside it; one that is there keeps its mode.
        """
        with suppress(OSError):  # which open_to_write explains
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        ledger = cls(open_to_write(Path(path)), Path(path), 0)
        process = os.getpid()
        row: Row = {"label": label, "process": process, "process_start": process_start(process) or ""}
        try:
            ledger.run = ledger._insert("runs", row)
        except sqlite3.Error as error:
            ledger._connection.close()
            raise ledger._fault(error) from error
        LOG.info("ledger %s: run %d", path, ledger.run)
        return ledger

    def __call__(self, event: events.Event) -> None:
        """Take an event; with the last one of a step, write the step. A notice is written at once."""
        with self._lock:
            try:
                self._take(event)
            except sqlite3.Error as error:
                raise self._fault(error) from error

    def close(self) -> None:
        """End the run; a step that is not over is not written."""
        with self._lock:
            # A disk that is full by now must not hide how the run itself ended; readers see that the process is gone.
            with suppress(sqlite3.Error):
                self._connection.execute("UPDATE runs SET ended = 1 WHERE run = ?", (self.run,))
            self._connection.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.Noticed):
            row: Row = {"subquery": event.subquery, "step": event.step, "time_seconds": event.time_seconds}
            self._insert("notices", {"run": self.run, **row, "kind": event.notice.value, "text": event.text})
            return
        if isinstance(event, events.Observed):
            # Also forgets what is left of a step in which a controller raised an error.
            self._gathered[event.subquery] = []
        self._gathered.setdefault(event.subquery, []).append(event)
        if isinstance(event, events.Stepped):
            rows = step_rows(self._gathered.pop(event.subquery))
            # Leaving the block commits, or rolls back after an error.
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._write_step(event.subquery, event.step, rows)

    def _write_step(self, subquery: str, step: int, rows: StepRows) -> None:
        observation = self._insert("observations", {"run": self.run, **rows.observation})
        numbers = [self._insert("decisions", {"observation": observation, **row}) for row in rows.decisions]
        for decided_step, row in rows.effects:
            number = self._watched.pop((subquery, decided_step), None)
            assigned = ", ".join(f"{name} = ?" for name in row)
            self._connection.execute(f"UPDATE decisions SET {assigned} WHERE decision = ?", (*row.values(), number))
        if rows.decisions[0]["result"] == "acted":
            self._watched[subquery, step] = numbers[0]

    def _insert(self, table: str, row: Row) -> int:
        names, places = ", ".join(row), ", ".join("?" * len(row))
        cursor = self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(row.values()))
        return cursor.lastrowid or 0

    def _fault(self, error: sqlite3.Error) -> EnvironmentFault:
        return EnvironmentFault(f"ledger {self._path} cannot be written: {error}")


@dataclass(slots=True)
class StepRows:
    """What one step adds: its observation, decisions, the driver's first, and effects of earlier steps."""

    observation: Row = field(default_factory=dict)
    decisions: list[Row] = field(default_factory=list)
    effects: list[tuple[int, Row]] = field(default_factory=list)


def step_rows(step: Sequence[events.Event]) -> StepRows:
    """The rows of a whole step, from `Observed` to `Stepped`; pure."""
    rows = StepRows()
    driver: Row = {"role": "driver", "result": "held"}
    for event in step:
        match event:
            case events.Observed(observation=observation):
                rows.observation = {"step": event.step, **_summary(observation)}
            case events.Decided(decision=decision):
                driver |= {"controller": event.controller, "asked": event.asked, **_wanted(decision)}
            case events.Withheld(why=why):
                driver["withheld"] = why
            case events.Acted(outcome=outcome):
                taken = {"takes_seconds": outcome.seconds, "state_bytes_moved": outcome.state_bytes_moved}
                driver |= {"result": "acted", "note": outcome.note or None, **taken}
            case events.Refused(why=why):
                driver |= {"result": "refused", "note": why}
            case events.Advised():
                driver["result"] = "advised"
            case events.ShadowDecided(decision=decision):
                shadow: Row = {"role": "shadow", "controller": event.shadow, "asked": True, "result": "opinion"}
                rows.decisions.append(shadow | _wanted(decision) | _settled(decision))
            case events.ShadowFailed():
                nothing = Decision("", Action.HOLD, int(rows.observation["instances"] or 0), "")
                shadow = {"role": "shadow", "controller": event.shadow, "asked": True, "result": "failed"}
                rows.decisions.append(shadow | {"note": event.error} | _wanted(nothing) | _settled(nothing))
            case events.EffectSeen():
                measured = _prefixed("before", event.before) | _prefixed("seen", event.seen)
                rows.effects.append((event.decided_step, {"effect_time_seconds": event.time_seconds, **measured}))
            case events.EffectMissed():
                rows.effects.append(
                    (event.decided_step, {"effect_time_seconds": event.time_seconds, "effect_missed": event.why})
                )
            case events.Stepped(decision=decision):
                if not rows.observation or "controller" not in driver:
                    raise InternalError("a step must have been observed and decided before it ends")
                rows.decisions.insert(0, driver | _settled(decision))
            case _:
                raise InternalError(f"the ledger does not know the event {type(event).__name__}")
    return rows


def _summary(observation: Observation) -> Row:
    """An observation without its lists: of the busy shares and of the shards, the extremes and the sums."""
    row: Row = {name: getattr(observation, name) for name in AS_OBSERVED}
    row["instances"] = int(observation.instances)
    if observation.busy:
        busy = np.asarray(observation.busy)
        row |= {"utilisation": float(busy.mean()), "deviation": float(busy.std())}
        row |= {"least_busy": float(busy.min()), "most_busy": float(busy.max())}
    if loads := observation.shard_loads:
        row |= {"shards": len(loads), "largest_shard_load": float(max(loads))}
    if sizes := observation.shard_state_bytes:
        row |= {"shards": len(sizes), "state_bytes": int(sum(sizes))}
    return row


def _wanted(decision: Decision) -> Row:
    return {"wanted_action": decision.action.value, "wanted_instances": int(decision.instances)}


def _settled(decision: Decision) -> Row:
    return {
        "action": decision.action.value,
        "instances": int(decision.instances),
        "why": decision.why,
        "mapping": None if decision.mapping is None else json.dumps([int(instance) for instance in decision.mapping]),
        "missing": json.dumps(decision.missing) if decision.missing else None,
        "rejected": json.dumps([(int(other.instances), other.why_not) for other in decision.rejected]),
        **_prefixed("expected", decision.expected),
    }


def _prefixed(prefix: str, figures: Effect | Effect) -> Row:
    return {f"{prefix}_{name}": value for name, value in asdict(figures).items()}
