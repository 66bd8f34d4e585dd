"""Reading a ledger, also while it is written: decisions as a table, unplanned events, and the status of the last run."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import EnvironmentFault, UserError, choices
from tidegate.telemetry.schema import open_to_read

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = (".parquet", ".csv", ".jsonl")
FIGURES = (
    "subquery, time_seconds, instances, offered, processed, backlog, congestion, utilisation, watermark_lag_seconds, "
    "latency_seconds"
)
_STATE, _STARTED = 0, 19  # in /proc/PID/stat, behind the name


def decisions(
    path: str | Path,
    *,
    subquery: str | None = None,
    controller: str | None = None,
    run: int | None = None,
    since_seconds: float | None = None,
    changes_only: bool = False,
    shadows: bool = True,
) -> pa.Table:
    """Decisions with what was observed, expected and seen, by number; a whole day is some 20,000 rows.

    Without ``shadows``, those of the drivers, or all of a ``controller`` if one is named. `.to_pandas()`,
    `polars.from_arrow` and `narwhals.from_native` turn the table into a data frame.
    """
    import pyarrow as pa

    given = {"subquery =": subquery, "controller =": controller, "run =": run, "time_seconds >=": since_seconds}
    conditions = {f"{part} ?": value for part, value in given.items() if value is not None}
    if changes_only:
        conditions["action <> ?"] = "hold"
    if controller is None and not shadows:
        conditions["role = ?"] = "driver"
    where = " AND ".join(conditions) or "1"
    with closing(open_to_read(path)) as connection:
        declared = {row["name"]: row["type"] for row in connection.execute("PRAGMA table_info(explained)")}
        rows = connection.execute(
            f"SELECT * FROM explained WHERE {where} ORDER BY decision", tuple(conditions.values())
        ).fetchall()
    kinds = {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string(), "BOOLEAN": pa.bool_()}
    columns = zip(*rows, strict=True) if rows else [()] * len(declared)
    # SQLite keeps truth as a whole number, which Arrow casts.
    arrays = [
        pa.array(column, pa.int64()).cast(pa.bool_()) if kind == "BOOLEAN" else pa.array(column, kinds[kind])
        for column, kind in zip(columns, declared.values(), strict=True)
    ]
    return pa.table(arrays, names=list(declared))


def export(table: pa.Table, to: str | Path) -> None:
    """Write a table to a file, in the format that its suffix names."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    path = Path(to)
    if path.suffix not in FORMATS:
        raise UserError(f"export {str(to)!r}: the suffix must name a format; choose one of {choices(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise UserError(f"export {str(to)!r}: there is no folder {path.parent}; make it first")
    try:
        match path.suffix:
            case ".parquet":
                pq.write_table(table, path)
            case ".csv":
                pyarrow.csv.write_csv(table, path)
            case _:
                lines = (json.dumps({name: _finite(value) for name, value in row.items()}) for row in table.to_pylist())
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"export {str(to)!r} cannot be written: {error}; choose another place") from error


class RunState(Enum):
    """Whether a run of a ledger goes on."""

    RUNNING = "running"
    ENDED = "ended"
    GONE = "its process is gone"


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """The last run of a ledger: its state, the last figures of each subquery, the last changes and notices, newest first.

    Figures are columns of `observations`, changes those of the view `explained`, notices those of `notices`.
    """

    run: int
    label: str
    state: RunState
    subqueries: tuple[dict[str, Any], ...]
    changes: tuple[dict[str, Any], ...]
    notices: tuple[dict[str, Any], ...]


def ledger_status(path: str | Path, last: int = 8) -> LedgerStatus | None:
    """The status of the last run; None in a ledger without a run."""
    with closing(open_to_read(path)) as connection:
        row = connection.execute("SELECT * FROM runs ORDER BY run DESC LIMIT 1").fetchone()
        if row is None:
            return None
        run = row["run"]

        def rows(select: str, *values: int) -> tuple[dict[str, Any], ...]:
            return tuple(map(dict, connection.execute(select, (run, *values))))

        figures = rows(
            f"SELECT {FIGURES} FROM observations WHERE observation IN "
            "(SELECT max(observation) FROM observations WHERE run = ? GROUP BY subquery) ORDER BY subquery"
        )
        changed = "run = ? AND role = 'driver' AND action <> 'hold'"
        changes = rows(f"SELECT * FROM explained WHERE {changed} ORDER BY decision DESC LIMIT ?", last)
        noticed = rows("SELECT * FROM notices WHERE run = ? ORDER BY notice DESC LIMIT ?", last)
        return LedgerStatus(run, row["label"], run_state(row), figures, changes, noticed)


def notices(path: str | Path) -> tuple[dict[str, Any], ...]:
    """All notices of a ledger in the order in which they were written."""
    with closing(open_to_read(path)) as connection:
        return tuple(map(dict, connection.execute("SELECT * FROM notices ORDER BY notice")))


def process_start(process: int) -> str | None:
    """When a process was started, and since which start of the machine; None if it is over or the system does not say."""
    try:
        behind_name = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return None if behind_name[_STATE] in "ZX" else f"{boot} {behind_name[_STARTED]}"


def run_state(row: sqlite3.Row) -> RunState:
    """The state of a run, given its row in `runs`."""
    if row["ended"]:
        return RunState.ENDED
    process, start = row["process"], row["process_start"]
    if start:
        # Process numbers are used again; together with the start they are not.
        return RunState.RUNNING if process_start(process) == start else RunState.GONE
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return RunState.GONE
    except PermissionError:
        pass
    return RunState.RUNNING


def _finite(value: str | int | float | None) -> str | int | float | None:
    """A value that JSON can hold: what is not finite becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
