"""Network usage of applications (Gedik et al., listing 1, ``UsageDetailInfo``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from tidegate.demo import demo_folder, write_once

APPLICATIONS = 200
FIRST_SECOND = 1_704_096_000  # 2024-01-01 08:00 UTC


def usage(
    folder: str | Path | None = None, *, rows: int = 20_000, seed: int = 1, minutes: float = 30, files: int = 10
) -> str:
    """A folder of usage records in order, generated unless it is there; returns its path.

    Few applications use much. Amounts are multiples of 1/8, so that their sums are exact.
    """
    where = Path(folder) if folder is not None else demo_folder(f"usage-{rows}-{seed}")
    return write_once(where, lambda: _table(rows, seed, minutes), files)


def _table(rows: int, seed: int, minutes: float) -> pa.Table:
    random = np.random.default_rng(seed)
    moments = FIRST_SECOND * 1_000_000 + np.sort(random.integers(0, int(minutes * 60_000_000), rows))
    return pa.table(
        {
            "srcIndex": random.integers(0, 4, rows).astype(np.int32),
            "time": pa.array(moments, pa.timestamp("us", tz="UTC")),
            "trafficSrc": random.integers(0, 2**24, rows).astype(np.int32),
            "trafficDst": random.integers(0, 2**24, rows).astype(np.int32),
            "appId": (APPLICATIONS * random.random(rows) ** 3).astype(np.int32),
            "appVersion": random.integers(1, 6, rows).astype(np.int32),
            "flowAmount": (np.round(random.exponential(100.0, rows) * 8) / 8).astype(np.float32),
        }
    )
