"""What the page shows, read from a ledger: figures since the last look, decisions, and what others would have decided."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tidegate.control.controllers import CONTROLLERS
from tidegate.errors import UserError, choices
from tidegate.telemetry.read import run_state
from tidegate.telemetry.replay import replay_run
from tidegate.telemetry.schema import open_to_read

POINTS = 1_500
"""At most so many steps of a subquery are sent at once; of more, some are left out in between."""
MOST_CHANGES = 1_000
FIGURES = (
    *("observation", "subquery", "time_seconds", "instances", "offered", "processed", "backlog", "congestion"),
    *("utilisation", "watermark_lag_seconds", "latency_seconds"),
)
SUBQUERIES = """
WITH RECURSIVE names (name) AS (
    SELECT min(subquery) FROM observations WHERE run = ?
    UNION ALL
    SELECT (SELECT min(subquery) FROM observations WHERE run = ? AND subquery > name) FROM names WHERE name IS NOT NULL
) SELECT name FROM names WHERE name IS NOT NULL
"""
"""The subqueries of a run, each found by the index; DISTINCT would read all of it."""
NEW = "+run = ? AND observation > ? AND observation <= ?"
"""What came after the last look; the plus keeps SQLite from reading all of the run by its index."""
CHANGE = "decision, subquery, time_seconds, instances_before, instances, action, result, controller, why"


def look(path: str | Path, run: int | None = None, since: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A run, the last unless one is given, with all that came after ``since``, the ``cursor`` of the look before.

    Raises `UserError` where there is no such run.
    """
    since = since or {}
    with closing(open_to_read(path)) as connection:
        runs = connection.execute("SELECT * FROM runs ORDER BY run").fetchall()
        found = [each for each in runs if run in (None, each["run"])]
        if not found:
            there = choices(each["run"] for each in runs) if runs else "none yet"
            raise UserError(f"ledger {path}: there is no run {'' if run is None else run}; there is {there}")
        shown = found[-1]
        look = _Look(connection, shown["run"], dict(since))
        told: dict[str, Any] = {
            "run": {"run": shown["run"], "label": shown["label"], "state": run_state(shown).value},
            "runs": [each["run"] for each in runs],
            "figures": look.figures(),
            "latest": look.latest(),
            "shards": look.shards(),
            "flows": look.flows(),
            "changes": look.changes(),
            "shadows": look.shadows(),
            "notices": look.after("notices", "notice"),
        }
        if not since:
            told["graph"] = json.loads(shown["graph"]) if shown["graph"] else None
            told["controllers"] = list(CONTROLLERS)
    return {**told, "cursor": look.cursor}


class _Look:
    """Reads what came of a run after a cursor, and moves the cursor.

    It finds its rows by index: a look at a long run costs as much as what is new, but for the first one.
    """

    def __init__(self, connection: sqlite3.Connection, run: int, cursor: dict[str, int]) -> None:
        self._connection, self._run, self.cursor = connection, run, cursor
        self._seen = cursor.get("observation", 0)
        self._stride = 1
        if not self._seen:
            self._stride = self._thinned("SELECT max(step) - min(step) + 1 FROM observations WHERE run = ?")
        last = self._rows("SELECT observation FROM observations WHERE +run = ? ORDER BY observation DESC LIMIT 1")
        self.cursor["observation"] = last[0]["observation"] if last else self._seen
        self._subqueries = [row["name"] for row in self._rows(SUBQUERIES, (run,))]

    def figures(self) -> list[dict[str, Any]]:
        """Of each step the figures, one row for each, in order."""
        some = f"{NEW} AND step % ? = 0"
        return self._rows(
            f"SELECT {', '.join(FIGURES)} FROM observations WHERE {some} ORDER BY observation",
            (self._seen, self.cursor["observation"], self._stride),
        )

    def latest(self) -> dict[str, dict[str, Any]]:
        """The last step of each subquery with its details."""
        rows = self._last(f"{', '.join(FIGURES)}, details", "observations")
        return {name: row | {"details": _finite(json.loads(row["details"]))} for name, row in rows.items()}

    def shards(self) -> dict[str, dict[str, Any]]:
        """Of each subquery where that is new, which shard is on which instance, and the load of each."""
        rows = self._last("time_seconds, mapping, loads", "shards")
        told = self.cursor.get("shards", 0)
        self.cursor["shards"] = max([told, *(int(row["time_seconds"]) + 1 for row in rows.values())])
        return {
            name: row | {"mapping": json.loads(row["mapping"]), "loads": _finite(json.loads(row["loads"] or "null"))}
            for name, row in rows.items()
            if row["time_seconds"] >= told
        }

    def flows(self) -> list[dict[str, Any]]:
        """What went between the boxes of the graph, and how late results left."""
        first = "flow" not in self.cursor
        stride = self._thinned("SELECT max(flow) - min(flow) + 1 FROM flows WHERE run = ?") if first else 1
        rows = self.after("flows", "flow", stride)
        return [row | {"rates": _finite(json.loads(row["rates"]))} for row in rows]

    def changes(self) -> list[dict[str, Any]]:
        """The decisions of drivers that were not to hold, newest first."""
        some = f"{NEW} AND role = 'driver' AND action <> 'hold'"
        bounds = (self._seen, self.cursor["observation"], MOST_CHANGES)
        return self._rows(f"SELECT {CHANGE} FROM explained WHERE {some} ORDER BY decision DESC LIMIT ?", bounds)

    def shadows(self) -> list[dict[str, Any]]:
        """What controllers in the shadow would have had, at each step."""
        some = f"{NEW} AND step % ? = 0 AND role = 'shadow'"
        names = "subquery, time_seconds, controller, instances, action, why"
        bounds = (self._seen, self.cursor["observation"], self._stride)
        return self._rows(f"SELECT {names} FROM explained WHERE {some} ORDER BY decision", bounds)

    def after(self, table: str, number: str, stride: int = 1) -> list[dict[str, Any]]:
        """The new rows of a table that the cursor counts by its own number; of many, every so many-th and the last."""
        rows = self._rows(f"SELECT * FROM {table} WHERE run = ? AND {number} > ?", (self.cursor.get(number, 0),))
        self.cursor[number] = max([self.cursor.get(number, 0), *(row[number] for row in rows)])
        return rows[::-stride][::-1]

    def _last(self, columns: str, table: str) -> dict[str, dict[str, Any]]:
        """The last row of each subquery that has one."""
        select = f"SELECT {columns} FROM {table} WHERE run = ? AND subquery = ? ORDER BY step DESC LIMIT 1"
        rows = {name: self._rows(select, (name,)) for name in self._subqueries}
        return {name: found[0] for name, found in rows.items() if found}

    def _thinned(self, select: str) -> int:
        """One in how many steps is told, given the select that counts them."""
        return math.ceil((self._connection.execute(select, (self._run,)).fetchone()[0] or 1) / POINTS)

    def _rows(self, select: str, values: Iterable[object] = ()) -> list[dict[str, Any]]:
        return [_finite(dict(row)) for row in self._connection.execute(select, (self._run, *values))]


def would_have(path: str | Path, run: int | None, controller: str) -> list[dict[str, Any]]:
    """What a controller with its default settings would have decided at each step of a run."""
    if controller not in CONTROLLERS:
        raise UserError(f"there is no controller {controller!r}; choose one of {choices(CONTROLLERS)}")
    return [
        {"subquery": seen.subquery, "time_seconds": seen.time_seconds, "controller": controller}
        | {"instances": decided.instances, "action": decided.action.value, "why": decided.why}
        for seen, decided in replay_run(path, CONTROLLERS[controller](), run=run)
    ]


def _finite(value: Any) -> Any:
    """A value that browsers can parse: what is not finite becomes null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list():
            return [_finite(each) for each in value]
        case _:
            return value
