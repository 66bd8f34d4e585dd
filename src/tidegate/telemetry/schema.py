"""The ledger's tables in SQLite, their version, and opening a file that has them.

A file is marked as a ledger by SQLite's `application_id`, and `user_version` counts the changes of the tables. Write-ahead
logging lets other processes read while one writes, and makes a transaction whole or absent after a crash.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from tidegate.errors import EnvironmentFault, UserError
from tidegate.telemetry.writers import WRITERS

APPLICATION = 0x74696465  # "tide"
VERSION = 3
BUSY_SECONDS = 10.0
HEADER = b"SQLite format 3\0"

TABLES = """
CREATE TABLE runs (run INTEGER PRIMARY KEY, label TEXT NOT NULL);

CREATE TABLE observations (
    observation INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    subquery TEXT NOT NULL, step INTEGER NOT NULL,
    time_seconds REAL NOT NULL, period_seconds REAL NOT NULL,
    instances INTEGER NOT NULL,
    offered REAL, admitted REAL, processed REAL, demand REAL, backlog REAL, congestion REAL,
    utilisation REAL, least_busy REAL, most_busy REAL, deviation REAL,
    shards INTEGER, largest_shard_load REAL, state_bytes INTEGER,
    watermark_lag_seconds REAL, latency_seconds REAL,
    UNIQUE (run, subquery, step)
);

CREATE TABLE decisions (
    decision INTEGER PRIMARY KEY,
    observation INTEGER NOT NULL REFERENCES observations,
    role TEXT NOT NULL CHECK (role IN ('driver', 'shadow')),
    controller TEXT NOT NULL,
    asked INTEGER NOT NULL,
    wanted_action TEXT NOT NULL, wanted_instances INTEGER NOT NULL,
    action TEXT NOT NULL, instances INTEGER NOT NULL,
    why TEXT NOT NULL,
    withheld TEXT,
    mapping TEXT, missing TEXT,
    expected_utilisation REAL, expected_latency_seconds REAL, expected_processed REAL, expected_deviation REAL,
    result TEXT NOT NULL CHECK (result IN ('held', 'acted', 'refused', 'advised', 'opinion', 'failed')),
    note TEXT,
    takes_seconds REAL, state_bytes_moved INTEGER
);
CREATE INDEX decisions_of ON decisions (observation);

CREATE TABLE alternatives (
    decision INTEGER NOT NULL REFERENCES decisions, instances INTEGER NOT NULL, why_not TEXT NOT NULL
);
CREATE INDEX alternatives_of ON alternatives (decision);

CREATE TABLE effects (
    decision INTEGER PRIMARY KEY REFERENCES decisions,
    time_seconds REAL NOT NULL,
    missed TEXT,
    before_utilisation REAL, before_latency_seconds REAL, before_processed REAL, before_deviation REAL,
    seen_utilisation REAL, seen_latency_seconds REAL, seen_processed REAL, seen_deviation REAL
);
"""
NOTICES = """
CREATE TABLE notices (
    notice INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    subquery TEXT NOT NULL, step INTEGER NOT NULL, time_seconds REAL NOT NULL,
    kind TEXT NOT NULL, text TEXT NOT NULL
);
"""
STEPS = (TABLES, NOTICES, WRITERS)
"""What each version added, in order."""


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open a ledger to append to it; makes one where there is no file.

    The connection may be used by several threads, one at a time, and leaves transactions to its user.
    """
    if path.is_dir():
        raise UserError(f"ledger {path}: is a folder; name a file in it")
    if path.exists() and path.stat().st_size:
        _check_header(path)
    if not path.parent.is_dir():
        raise UserError(f"ledger {path}: there is no folder {path.parent}; make it first")
    try:
        made = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise EnvironmentFault(f"ledger {path} cannot be opened: {error}") from error
    try:
        # Two processes may come here at once; the second waits, and then finds the tables.
        made.execute("BEGIN IMMEDIATE")
        version = _pragma(made, "user_version")
        empty = version == 0 and not made.execute("SELECT name FROM sqlite_master").fetchone()
        if empty or (0 < version < VERSION and _pragma(made, "application_id") == APPLICATION):
            for statement in "".join(STEPS[version:]).split(";"):
                made.execute(statement)
            made.execute(f"PRAGMA application_id = {APPLICATION}")
            made.execute(f"PRAGMA user_version = {VERSION}")
        made.execute("COMMIT")
        _check_tables(made, path)
        # Without a sync at each commit: a crash of the process loses nothing, one of the machine the last seconds.
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = NORMAL")
    except BaseException as error:
        made.close()
        if isinstance(error, sqlite3.Error):
            raise EnvironmentFault(f"ledger {path} cannot be written: {error}") from error
        raise
    return made


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a ledger that may be being written by another process; what it reads is whole steps."""
    if not path.is_file():
        raise UserError(f"there is no ledger {path}; tidegate simulate --ledger FILE writes one")
    _check_header(path)
    try:
        made = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=BUSY_SECONDS)
    except sqlite3.Error as error:
        raise EnvironmentFault(f"ledger {path} cannot be opened: {error}") from error
    try:
        _check_tables(made, path)
    except BaseException as error:
        made.close()
        if isinstance(error, sqlite3.Error):
            raise EnvironmentFault(f"ledger {path} cannot be read: {error}") from error
        raise
    made.row_factory = sqlite3.Row
    return made


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(len(HEADER)) != HEADER:
            raise UserError(f"{path} is not a ledger: it is not an SQLite file")


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    if _pragma(connection, "application_id") != APPLICATION:
        raise UserError(f"{path} is not a ledger: it is an SQLite file of something else")
    version = _pragma(connection, "user_version")
    if version > VERSION:
        raise UserError(
            f"ledger {path} has tables of version {version}, and this tidegate knows versions up to {VERSION}; "
            "use the tidegate that wrote it, or a newer one"
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
