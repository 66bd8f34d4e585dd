"""Attempts to log in, as a server logs them (Gedik et al., Network monitoring)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from tidegate.demo import demo_folder, write_once

HOSTS = 400
USERS = ("root", "admin", "test", "oracle", "git", "ann", "bob")
FIRST_SECOND = 1_704_096_000  # 2024-01-01 08:00 UTC


def logins(folder: str | Path | None = None, *, rows: int = 20_000, seed: int = 1, files: int = 4) -> str:
    """A folder of attempts in order, generated unless it is there; returns its path.

    A few hosts try again and again, and nearly always fail.
    """
    where = Path(folder) if folder is not None else demo_folder(f"logins-{rows}-{seed}")
    return write_once(where, lambda: _table(rows, seed), files)


def _table(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    host = (HOSTS * random.random(rows) ** 3).astype(np.int64)
    moments = FIRST_SECOND * 1_000_000 + np.sort(random.integers(0, 3_600_000_000, rows))
    return pa.table(
        {
            "ts": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "host": pa.array([f"10.0.{one // 256}.{one % 256}" for one in host.tolist()]),
            "user": pa.array(USERS).take(pa.array(random.integers(0, len(USERS), rows))),
            "accepted": random.random(rows) < np.where(host < HOSTS // 20, 0.01, 0.5),
        }
    )
