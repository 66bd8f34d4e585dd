"""Which process writes a run into a ledger, and whether it still does: a run ends, or its process is gone."""

from __future__ import annotations

import os
import sqlite3
from enum import Enum
from pathlib import Path

WRITERS = """
CREATE TABLE writers (
    run INTEGER PRIMARY KEY REFERENCES runs,
    process INTEGER NOT NULL, started TEXT NOT NULL, ended INTEGER NOT NULL DEFAULT 0
);
"""
_STATE, _STARTED = 0, 19  # in /proc/PID/stat, behind the name


class RunState(Enum):
    """How a run of a ledger stands."""

    RUNNING = "running"
    ENDED = "ended"
    GONE = "its process is gone"


def note_writer(connection: sqlite3.Connection, run: int) -> None:
    """Write down that this process writes a run."""
    values = run, os.getpid(), _started(os.getpid()) or ""
    connection.execute("INSERT INTO writers (run, process, started) VALUES (?, ?, ?)", values)


def note_end(connection: sqlite3.Connection, run: int) -> None:
    """Write down that a run has ended."""
    connection.execute("UPDATE writers SET ended = 1 WHERE run = ?", (run,))


def run_state(connection: sqlite3.Connection, run: int) -> RunState:
    """How a run stands; one of a ledger of before this was written down has ended."""
    try:
        found = connection.execute("SELECT process, started, ended FROM writers WHERE run = ?", (run,)).fetchone()
    except sqlite3.OperationalError:
        return RunState.ENDED
    if found is None or found[2]:
        return RunState.ENDED
    return RunState.RUNNING if _is_alive(int(found[0]), str(found[1])) else RunState.GONE


def _is_alive(process: int, started: str) -> bool:
    """Whether a process is there, and the same that wrote down when it was started: numbers are used again."""
    if started:
        return _started(process) == started
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(process: int) -> str | None:
    """When a process was started, and since which start of the machine; None if it is over or the system does not tell."""
    try:
        behind_name = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return None if behind_name[_STATE] in "ZX" else f"{boot} {behind_name[_STARTED]}"
