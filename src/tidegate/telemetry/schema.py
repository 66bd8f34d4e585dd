"""The ledger's tables in SQLite, their version, and opening a file that has them.

A file is marked as a ledger by SQLite's `application_id`, and `user_version` counts the changes of the tables. Write-ahead
logging lets other processes read while one writes, and makes a transaction whole or absent after a crash.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from tidegate.errors import EnvironmentFault, UserError

APPLICATION = 0x74696465  # "tide"
VERSION = 7
BUSY_SECONDS = 10.0
HEADER = b"SQLite format 3\0"

TABLES = """
CREATE TABLE runs (
    run INTEGER PRIMARY KEY, label TEXT NOT NULL,
    process INTEGER NOT NULL, process_start TEXT NOT NULL, ended BOOLEAN NOT NULL DEFAULT 0,
    graph TEXT
);
CREATE TABLE observations (
    observation INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    subquery TEXT NOT NULL, step INTEGER NOT NULL,
    time_seconds REAL NOT NULL, period_seconds REAL NOT NULL,
    instances INTEGER NOT NULL,
    offered REAL, admitted REAL, processed REAL, demand REAL, backlog REAL, congestion REAL,
    utilisation REAL, least_busy REAL, most_busy REAL, deviation REAL,
    shards INTEGER, largest_shard_load REAL, state_bytes INTEGER,
    watermark_lag_seconds REAL, latency_seconds REAL, details TEXT NOT NULL,
    UNIQUE (run, subquery, step)
);
CREATE TABLE decisions (
    decision INTEGER PRIMARY KEY,
    observation INTEGER NOT NULL REFERENCES observations,
    role TEXT NOT NULL CHECK (role IN ('driver', 'shadow')),
    controller TEXT NOT NULL,
    asked BOOLEAN NOT NULL,
    wanted_action TEXT NOT NULL, wanted_instances INTEGER NOT NULL,
    action TEXT NOT NULL, instances INTEGER NOT NULL,
    why TEXT NOT NULL, withheld TEXT, mapping TEXT, missing TEXT, rejected TEXT,
    result TEXT NOT NULL CHECK (result IN ('held', 'acted', 'refused', 'advised', 'opinion', 'failed')),
    note TEXT, takes_seconds REAL, state_bytes_moved INTEGER,
    protocol TEXT, protocol_why TEXT, protocols_rejected TEXT, moved_shards INTEGER, moved_bytes INTEGER,
    planned_delay_seconds REAL, planned_in_force_seconds REAL,
    planned_bytes_read INTEGER, planned_bytes_written INTEGER, planned_tuples_doubled INTEGER,
    took_delay_seconds REAL, took_in_force_seconds REAL,
    took_bytes_read INTEGER, took_bytes_written INTEGER, took_tuples_doubled INTEGER,
    expected_utilisation REAL, expected_latency_seconds REAL, expected_processed REAL, expected_deviation REAL,
    effect_time_seconds REAL, effect_missed TEXT,
    before_utilisation REAL, before_latency_seconds REAL, before_processed REAL, before_deviation REAL,
    seen_utilisation REAL, seen_latency_seconds REAL, seen_processed REAL, seen_deviation REAL
);
CREATE INDEX decisions_of ON decisions (observation);
CREATE TABLE notices (
    notice INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    subquery TEXT NOT NULL, step INTEGER NOT NULL, time_seconds REAL NOT NULL,
    kind TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE shards (
    run INTEGER NOT NULL REFERENCES runs,
    subquery TEXT NOT NULL, step INTEGER NOT NULL, time_seconds REAL NOT NULL,
    mapping TEXT NOT NULL, loads TEXT,
    PRIMARY KEY (run, subquery, step)
) WITHOUT ROWID;
CREATE TABLE flows (
    flow INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    time_seconds REAL NOT NULL,
    rates TEXT NOT NULL,
    latency_p50_seconds REAL, latency_p99_seconds REAL, latency_max_seconds REAL
);
CREATE VIEW explained AS SELECT
    o.run, r.label, o.subquery, o.step, o.time_seconds, o.period_seconds, o.instances AS instances_before,
    o.offered, o.admitted, o.processed, o.demand, o.backlog, o.congestion,
    o.utilisation, o.least_busy, o.most_busy, o.deviation, o.shards, o.largest_shard_load, o.state_bytes,
    o.watermark_lag_seconds, o.latency_seconds, d.*
FROM decisions d JOIN observations o USING (observation) JOIN runs r USING (run);
"""
"""`mapping`, `missing` and `rejected` (instances and why not) are JSON. A decision gets its effect when that is seen.

Where shards change owners, `protocol` says how, `planned_…` what that should cost and `took_…` what it did;
`protocols_rejected` is JSON, protocols and why not.

`graph` is JSON, the query as a picture with places (`tidegate.drawing`). `details` is JSON too: the rest of an observation,
so that a run can be replayed through another controller. `shards` has, every few seconds, the instance and the load of each
shard, as JSON. The `rates` of a flow are tuples per second, by the boxes of the graph between which they went.

The view `explained` has a row for each decision, with what was observed, expected and seen.
"""


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open a ledger to append to it; creates one where there is no file.

    The connection may be used by several threads, one at a time, and leaves transactions to its user.
    """
    if path.is_dir():
        raise UserError(f"ledger {path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"ledger {path}: there is no folder {path.parent}; make it first")
    return _open(path, "rwc", writing=True)


def open_to_read(path: str | Path) -> sqlite3.Connection:
    """Open a ledger that another process may be writing; what it reads is whole steps."""
    if not Path(path).is_file():
        raise UserError(f"there is no ledger {path}; tidegate simulate --ledger FILE writes one")
    connection = _open(Path(path), "ro", writing=False)
    connection.row_factory = sqlite3.Row
    return connection


def _open(path: Path, mode: str, *, writing: bool) -> sqlite3.Connection:
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(HEADER)) != HEADER:
                raise UserError(f"{path} is not a ledger: it is not an SQLite file")
    connection = None
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        if writing:
            _create_tables(connection)
        _check_tables(connection, path)
        if writing:
            # Without a sync at each commit: a crash of the process loses nothing, one of the machine the last seconds.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            verb = "written" if writing else "read"
            raise EnvironmentFault(f"ledger {path} cannot be {verb}: {error}") from error
        raise
    return connection


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in a new file."""
    # Two processes may come here at once; the second waits, and then finds the tables.
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("SELECT name FROM sqlite_master").fetchone():
        for statement in TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    application, version = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        raise UserError(f"{path} is not a ledger: it is an SQLite file of something else")
    if version != VERSION:
        raise UserError(
            f"ledger {path} has tables of version {version}, and this tidegate reads and writes version {VERSION}; "
            "use the tidegate that wrote it, or another file"
        )
