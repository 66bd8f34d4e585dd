"""What a ledger knows of things that nobody decided."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from tidegate.telemetry.schema import open_to_read


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """Something that happened, to which subquery and when."""

    run: int
    subquery: str
    step: int
    time_seconds: float
    kind: str
    text: str


def notices(path: str | Path) -> tuple[NoticeRow, ...]:
    """All notices of a ledger in the order in which they were written; none in a ledger of before there were any."""
    connection = open_to_read(Path(path))
    try:
        found = connection.execute(
            "SELECT run, subquery, step, time_seconds, kind, text FROM notices ORDER BY notice"
        ).fetchall()
    except sqlite3.OperationalError:
        return ()
    finally:
        connection.close()
    return tuple(NoticeRow(*row) for row in found)
