"""How things stand in a ledger that may be being written: the last observation of each subquery, and what happened last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.telemetry.notices import NoticeRow, notices
from tidegate.telemetry.schema import open_to_read
from tidegate.telemetry.writers import RunState, run_state

SEEN = (
    "subquery, time_seconds, instances, offered, processed, backlog, congestion, utilisation, watermark_lag_seconds, "
    "latency_seconds"
)


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that was not to hold."""

    decision: int
    subquery: str
    time_seconds: float
    before: int
    instances: int
    controller: str
    result: str
    why: str


@dataclass(frozen=True, slots=True)
class Now:
    """The last run of a ledger: how it stands, the last figures of each subquery, the last changes and notices."""

    run: int
    label: str
    state: RunState
    subqueries: tuple[dict[str, Any], ...]
    changes: tuple[Change, ...]
    notices: tuple[NoticeRow, ...]


def now(path: str | Path, last: int = 8) -> Now | None:
    """How things stand; None in a ledger without a run. Changes and notices come newest first."""
    connection = open_to_read(Path(path))
    try:
        run = connection.execute("SELECT run, label FROM runs ORDER BY run DESC LIMIT 1").fetchone()
        if run is None:
            return None
        state = run_state(connection, run["run"])
        seen = connection.execute(
            f"SELECT {SEEN} FROM observations WHERE observation IN "
            "(SELECT max(observation) FROM observations WHERE run = ? GROUP BY subquery) ORDER BY subquery",
            (run["run"],),
        ).fetchall()
        changes = connection.execute(
            "SELECT d.decision, o.subquery, o.time_seconds, o.instances, d.instances, d.controller, d.result, d.why "
            "FROM decisions d JOIN observations o USING (observation) "
            "WHERE o.run = ? AND d.role = 'driver' AND d.action <> 'hold' ORDER BY d.decision DESC LIMIT ?",
            (run["run"], last),
        ).fetchall()
    finally:
        connection.close()
    told = [each for each in notices(path) if each.run == run["run"]][::-1][:last]
    return Now(
        run["run"],
        run["label"],
        state,
        tuple(dict(row) for row in seen),
        tuple(Change(*row) for row in changes),
        tuple(told),
    )
