"""The ledger's decisions as a table: to filter, to list, and to take away as a data frame."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tidegate.errors import EnvironmentFault, UserError, choices
from tidegate.telemetry.schema import open_to_read

FORMATS = (".parquet", ".csv", ".jsonl")

COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "decision": ("d.decision", pa.int64()),
    "run": ("o.run", pa.int64()),
    "label": ("r.label", pa.string()),
    "subquery": ("o.subquery", pa.string()),
    "step": ("o.step", pa.int64()),
    "time_seconds": ("o.time_seconds", pa.float64()),
    "period_seconds": ("o.period_seconds", pa.float64()),
    "controller": ("d.controller", pa.string()),
    "role": ("d.role", pa.string()),
    "instances_before": ("o.instances", pa.int64()),
    "instances": ("d.instances", pa.int64()),
    "action": ("d.action", pa.string()),
    "result": ("d.result", pa.string()),
    "wanted_instances": ("d.wanted_instances", pa.int64()),
    "wanted_action": ("d.wanted_action", pa.string()),
    "asked": ("d.asked", pa.bool_()),
    "why": ("d.why", pa.string()),
    "withheld": ("d.withheld", pa.string()),
    "note": ("d.note", pa.string()),
    "missing": ("d.missing", pa.string()),
    "takes_seconds": ("d.takes_seconds", pa.float64()),
    "state_bytes_moved": ("d.state_bytes_moved", pa.int64()),
    **{
        name: (f"o.{name}", pa.float64())
        for name in (
            *("offered", "admitted", "processed", "demand", "backlog", "congestion"),
            *("utilisation", "least_busy", "most_busy", "deviation"),
        )
    },
    "shards": ("o.shards", pa.int64()),
    "largest_shard_load": ("o.largest_shard_load", pa.float64()),
    "state_bytes": ("o.state_bytes", pa.int64()),
    "watermark_lag_seconds": ("o.watermark_lag_seconds", pa.float64()),
    "latency_seconds": ("o.latency_seconds", pa.float64()),
    **{
        f"expected_{name}": (f"d.expected_{name}", pa.float64())
        for name in ("utilisation", "latency_seconds", "processed", "deviation")
    },
    "effect_time_seconds": ("e.time_seconds", pa.float64()),
    "effect_missed": ("e.missed", pa.string()),
    **{
        f"seen_{name}": (f"e.seen_{name}", pa.float64())
        for name in ("utilisation", "latency_seconds", "processed", "deviation")
    },
}
"""The columns of the table: where each is found and what it holds."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which decisions are wanted; without a controller, those of the drivers."""

    subquery: str | None = None
    controller: str | None = None
    changes_only: bool = False
    since_seconds: float | None = None
    run: int | None = None
    shadows: bool = False

    def where(self) -> tuple[str, list[str | int | float]]:
        """The condition in SQL, and its values."""
        parts: list[str] = []
        values: list[str | int | float] = []
        for column, value in (
            ("o.subquery = ?", self.subquery),
            ("d.controller = ?", self.controller),
            ("o.time_seconds >= ?", self.since_seconds),
            ("o.run = ?", self.run),
        ):
            if value is not None:
                parts.append(column)
                values.append(value)
        if self.changes_only:
            parts.append("d.action <> 'hold'")
        if self.controller is None and not self.shadows:
            parts.append("d.role = 'driver'")
        return " AND ".join(parts) or "1", values


EVERYTHING = Chosen(shadows=True)


def decisions(path: str | Path, chosen: Chosen = EVERYTHING) -> pa.Table:
    """The chosen decisions with what was observed, expected and seen, by number; a whole day is some 20,000 rows.

    `.to_pandas()`, `polars.from_arrow` and `narwhals.from_native` make a data frame of it.
    """
    connection = open_to_read(Path(path))
    try:
        return _select(connection, chosen)
    finally:
        connection.close()


def export(table: pa.Table, to: str | Path) -> None:
    """Write a table to a file, in the format that its suffix names."""
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
                lines = (json.dumps({name: _plain(value) for name, value in row.items()}) for row in table.to_pylist())
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"export {str(to)!r} cannot be written: {error}; choose another place") from error


def _select(connection: sqlite3.Connection, chosen: Chosen) -> pa.Table:
    condition, values = chosen.where()
    listed = ", ".join(f"{source} AS {name}" for name, (source, _) in COLUMNS.items())
    rows = connection.execute(
        f"SELECT {listed} FROM decisions d JOIN observations o USING (observation) JOIN runs r USING (run) "
        f"LEFT JOIN effects e USING (decision) WHERE {condition} ORDER BY d.decision",
        values,
    ).fetchall()
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    # SQLite has no type for truth; Arrow makes it of whole numbers.
    arrays = [
        pa.array(column, pa.int64()).cast(kind) if pa.types.is_boolean(kind) else pa.array(column, kind)
        for column, (_, kind) in zip(columns, COLUMNS.values(), strict=True)
    ]
    return pa.table(arrays, names=list(COLUMNS))


def _plain(value: str | int | float | None) -> str | int | float | None:
    """A value that JSON can say: what is not finite becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
