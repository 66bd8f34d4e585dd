"""Call detail records (StreamCloud, table II): who called whom, when, from where."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidegate.demo.parts import cut, demo_folder, made_once

CUSTOMERS = 2_000
HEAVY_EVERY = 100
MEAN_SECONDS, MEAN_HEAVY_SECONDS = 120.0, 600.0
FIRST_SECOND = 1_704_096_000  # 2024-01-01 08:00 UTC
HOURS = 3
END = datetime.fromtimestamp(FIRST_SECOND + HOURS * 3600, UTC)


def calls(
    folder: str | Path | None = None, *, rows: int = 20_000, seed: int = 1, hours: float = HOURS, files: int = 12
) -> str:
    """A folder of call detail records in the order of their emission, made unless it is there; returns its path.

    One customer in a hundred makes much longer calls than the others. ``ts`` is when a record was emitted, the end of
    its call.
    """
    where = Path(folder) if folder is not None else demo_folder(f"calls-{rows}-{seed}")
    return made_once(where, lambda: _tables(rows, seed, hours, files))


def _tables(rows: int, seed: int, hours: float, files: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(seed)
    numbers = pa.array([f"+4670{number:07}" for number in random.permutation(10_000_000)[:CUSTOMERS]])
    emitted_us = FIRST_SECOND * 1_000_000 + np.sort(random.integers(0, int(hours * 3_600_000_000), rows))
    # Some customers call more than others.
    source = (CUSTOMERS * random.random(rows) ** 1.5).astype(np.int64)
    target = random.integers(0, CUSTOMERS, rows)
    mean = np.where(source % HEAVY_EVERY == 0, MEAN_HEAVY_SECONDS, MEAN_SECONDS)
    seconds = 1 + random.exponential(mean).astype(np.int64)
    end_s = emitted_us // 1_000_000
    district = source % 40
    table = pa.table(
        {
            "src": numbers.take(pa.array(source)),
            "dst": numbers.take(pa.array(target)),
            "start_s": end_s - seconds,
            "end_s": end_s,
            "district": district.astype(np.int32),
            "lat": 55.3 + 0.1 * district + random.random(rows) / 16,
            "lon": 12.9 + 0.1 * district + random.random(rows) / 16,
            "ts": pa.array(emitted_us, pa.timestamp("us", tz="UTC")),
        }
    )
    return cut(table, files)
