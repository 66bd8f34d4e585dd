"""Two streams of points (STRETCH §8.3): the benchmark of ScaleJoin."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

FIRST_US = 1_704_099_600_000_000  # 2024-01-01 09:00 UTC


def points(rows: int, seed: int = 1, most: int = 10_000, step_us: int = 1_000) -> tuple[pa.Table, pa.Table]:
    """So many points on each side, at the same times, with coordinates that are uniform from 1 to `most`."""
    random = np.random.default_rng(seed)
    times = pa.array(FIRST_US + np.arange(rows) * step_us, pa.timestamp("us", tz="UTC"))
    sides = [
        pa.table({"ts": times, "x": random.integers(1, most + 1, rows), "y": random.uniform(1, most, rows)})
        for _ in range(2)
    ]
    return sides[0], sides[1]
