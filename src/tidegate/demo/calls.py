"""Call detail records (StreamCloud, table II), and the query that finds heavy customers (§IV, figure 2, and §X.B)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import narwhals as nw
import numpy as np
import pyarrow as pa

from tidegate.demo import demo_folder, write_once
from tidegate.query.aggregates import count, mean
from tidegate.stream import Stream, stream

CUSTOMERS = 2_000
HEAVY_EVERY = 100
MEAN_SECONDS, MEAN_HEAVY_SECONDS = 120.0, 600.0
FIRST_SECOND = 1_704_096_000  # 2024-01-01 08:00 UTC
HOURS = 3
THRESHOLD_SECONDS = 450
END = datetime.fromtimestamp(FIRST_SECOND + HOURS * 3600, UTC)


def calls(
    folder: str | Path | None = None, *, rows: int = 20_000, seed: int = 1, hours: float = HOURS, files: int = 12
) -> str:
    """A folder of call detail records in the order of their emission, generated unless it is there; returns its path.

    One customer in a hundred makes much longer calls than the others. ``ts`` is when a record was emitted, the end of
    its call.
    """
    where = Path(folder) if folder is not None else demo_folder(f"calls-{rows}-{seed}")
    return write_once(where, lambda: _table(rows, seed, hours), files)


def heavy_customers(calls: str) -> Stream:
    """Which customers, over an hour, make calls that are long on average; computed every minute."""
    return (
        stream(calls, time="ts", name="calls")
        .with_columns(duration=nw.col("end_s") - nw.col("start_s"), name="duration")
        .key_by("src")
        .window("1 hour", every="1 minute")
        .aggregate(calls=count(), avg_duration=mean("duration"), name="per_customer")
        .filter(nw.col("avg_duration") > THRESHOLD_SECONDS, name="heavy")
    )


def _table(rows: int, seed: int, hours: float) -> pa.Table:
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
    return pa.table(
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
