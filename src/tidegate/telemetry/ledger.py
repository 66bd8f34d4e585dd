"""The ledger: every step of every control loop, durably, in SQLite."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path

import numpy as np

from tidegate.control.controller import Action, Decision, Effect, MoveCost
from tidegate.control.events import Event, Flowed, MoveMeasured, Noticed, Stepped
from tidegate.control.observation import Observation
from tidegate.drawing import Drawing
from tidegate.errors import EnvironmentFault
from tidegate.telemetry.read import process_start
from tidegate.telemetry.schema import open_to_write

LOG = logging.getLogger(__name__)

Row = dict[str, str | int | float | None]

AS_OBSERVED = (
    *("subquery", "time_seconds", "period_seconds", "offered", "admitted", "processed", "demand", "backlog"),
    *("congestion", "watermark_lag_seconds", "latency_seconds"),
)
"""The fields of an observation that are columns as they are."""
IN_DETAILS = (
    *("busy", "queued", "pooled", "hot_key", "window_inputs", "comparisons"),
    *("network", "network_arrival_rate", "cores"),
)
"""Those that are in its details, where they are there."""
SHARDS_SECONDS = 5.0
"""How often the loads of shards are written: there may be thousands of them."""
FORGET_EVERY = 256


class Ledger:
    """Writes the events of control loops to a file; give it to a loop as its `record`.

    A step is written in one transaction, so that a reader, also one that opens the file after a crash, finds whole steps
    only. A transaction is handed to the operating system before `__call__`
    returns: killing the process loses nothing but the step it was in, losing the machine also the last seconds. Any number
    of loops and threads may share a ledger, and several processes may write to one file; each `open` is a run of its own.

    A step costs a fraction of a millisecond, and O(instances + shards) for summing up what was observed of them.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, run: int, keep_seconds: float | None = None) -> None:
        self._connection, self._path, self.run = connection, path, run
        self._keep_seconds, self._steps = keep_seconds, 0
        self._shards_seconds: dict[str, float] = {}
        self._watched: dict[tuple[str, int], int] = {}
        self._moves: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, path: str | Path, label: str = "", graph: Drawing | None = None, keep_seconds: float | None = None
    ) -> Ledger:
        """Begin a run in the file, which is created if it is not there. The label and the graph are for readers.

        With ``keep_seconds``, steps of this run that are older are forgotten.
        A new file is for this user alone, and so are those that SQLite puts beside it; one that is there keeps its mode.
        """
        with suppress(OSError):  # which open_to_write explains
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        ledger = cls(open_to_write(Path(path)), Path(path), 0, keep_seconds)
        process = os.getpid()
        row: Row = {"label": label, "process": process, "process_start": process_start(process) or ""}
        row["graph"] = None if graph is None else json.dumps(graph.placed())
        try:
            ledger.run = ledger._insert("runs", row)
        except sqlite3.Error as error:
            ledger._connection.close()
            raise ledger._fault(error) from error
        LOG.info("ledger %s: run %d", path, ledger.run)
        return ledger

    def __call__(self, event: Event) -> None:
        """Write a step, or a notice."""
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

    def _take(self, event: Event) -> None:
        if isinstance(event, Noticed):
            row: Row = {"subquery": event.subquery, "step": event.step, "time_seconds": event.time_seconds}
            self._insert("notices", {"run": self.run, **row, "kind": event.notice.value, "text": event.text})
            return
        if isinstance(event, Flowed):
            lateness = zip(("p50", "p99", "max"), event.latencies or (None,) * 3, strict=True)
            row = {"time_seconds": event.time_seconds, "rates": json.dumps(event.rates)}
            row |= {f"latency_{name}_seconds": seconds for name, seconds in lateness}
            self._insert("flows", {"run": self.run, **row})
            return
        if isinstance(event, MoveMeasured):
            number = self._moves.pop((event.subquery, event.step), None)
            self._update(number, _prefixed("took", event.measured))
            return
        if isinstance(event, Stepped):
            # Leaving the block commits, or rolls back after an error.
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._write_step(event)
            self._steps += 1
            if self._keep_seconds is not None and self._steps % FORGET_EVERY == 0:
                self._forget(event.time_seconds - self._keep_seconds)

    def _write_step(self, event: Stepped) -> None:
        row: Row = {"run": self.run, "step": event.step, **_summary(event.observation)}
        row["details"] = json.dumps(_details(event.observation), default=_number)
        observation = self._insert("observations", row)
        self._write_shards(event)
        numbers = [self._insert("decisions", {"observation": observation, **row}) for row in decision_rows(event)]
        for effect in event.effects:
            number = self._watched.pop((event.subquery, effect.decided_step), None)
            row = {"effect_time_seconds": event.time_seconds, "effect_missed": effect.missed}
            if effect.seen is not None:
                row |= _prefixed("before", effect.before) | _prefixed("seen", effect.seen)
            self._update(number, row)
        if event.result == "acted":
            self._watched[event.subquery, event.step] = numbers[0]
            if event.plan is not None and event.outcome is not None and event.outcome.measured is None:
                self._moves[event.subquery, event.step] = numbers[0]

    def _write_shards(self, event: Stepped) -> None:
        """Write where shards are and what load they have, now and then."""
        seen, last = event.observation, self._shards_seconds.get(event.subquery)
        if seen.mapping is None or (last is not None and event.time_seconds - last < SHARDS_SECONDS):
            return
        self._shards_seconds[event.subquery] = event.time_seconds
        row: Row = {"subquery": event.subquery, "step": event.step, "time_seconds": event.time_seconds}
        row["mapping"] = json.dumps(seen.mapping, default=_number)
        row["loads"] = None if seen.shard_loads is None else json.dumps([round(load, 3) for load in seen.shard_loads])
        self._insert("shards", {"run": self.run, **row})

    def _forget(self, before_seconds: float) -> None:
        """Delete the steps of this run before a time."""
        old = "run = ? AND time_seconds < ?"
        observed = f"observation IN (SELECT observation FROM observations WHERE {old})"
        for table, where in (("decisions", observed), ("observations", old), ("shards", old), ("flows", old)):
            self._connection.execute(f"DELETE FROM {table} WHERE {where}", (self.run, before_seconds))

    def _update(self, number: int | None, row: Row) -> None:
        assigned = ", ".join(f"{name} = ?" for name in row)
        self._connection.execute(f"UPDATE decisions SET {assigned} WHERE decision = ?", (*row.values(), number))

    def _insert(self, table: str, row: Row) -> int:
        names, places = ", ".join(row), ", ".join("?" * len(row))
        cursor = self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(row.values()))
        return cursor.lastrowid or 0

    def _fault(self, error: sqlite3.Error) -> EnvironmentFault:
        return EnvironmentFault(f"ledger {self._path} cannot be written: {error}")


def decision_rows(step: Stepped) -> list[Row]:
    """The decisions of a step, the driver's first; pure."""
    driver: Row = {"role": "driver", "controller": step.controller, "asked": step.asked, "result": step.result}
    driver |= {"withheld": step.withheld, **_wanted(step.wanted), **_settled(step.decision)}
    if (outcome := step.outcome) is not None:
        driver |= {"note": outcome.note or None, "takes_seconds": outcome.seconds}
        driver["state_bytes_moved"] = outcome.state_bytes_moved
        driver |= {} if outcome.measured is None else _prefixed("took", outcome.measured)
    if (plan := step.plan) is not None:
        driver |= {"protocol": plan.protocol, "protocol_why": plan.why, **_prefixed("planned", plan.estimate)}
        driver |= {"protocols_rejected": json.dumps(plan.rejected), "moved_shards": plan.move.shards}
        driver["moved_bytes"] = plan.move.state_bytes
    rows = [driver]
    for opinion in step.opinions:
        decision = opinion.decision or Decision("", Action.HOLD, step.observation.instances, "")
        shadow: Row = {"role": "shadow", "controller": opinion.shadow, "asked": True, "note": opinion.error}
        shadow["result"] = "opinion" if opinion.error is None else "failed"
        rows.append(shadow | _wanted(decision) | _settled(decision))
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


def _details(observation: Observation) -> dict[str, object]:
    """What is known of an observation and is not in its columns."""
    found = {name: getattr(observation, name) for name in IN_DETAILS}
    return {name: _plain(value) for name, value in found.items() if value is not None and value is not False}


def _plain(value: object) -> object:
    """A field of an observation as JSON can hold it: values with fields become lists of these."""
    if is_dataclass(value) and not isinstance(value, type):
        return list(asdict(value).values())
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _number(value: np.generic) -> object:
    return value.item()


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


def _prefixed(prefix: str, figures: Effect | MoveCost) -> Row:
    return {f"{prefix}_{name}": value for name, value in asdict(figures).items()}
