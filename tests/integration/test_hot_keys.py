"""One key that has most of the tuples, spread over the cells of real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark
TIME = pa.timestamp("us", tz="UTC")


def test_one_key_is_spread_over_cells_and_its_shards_move(spark: Any, tmp_path: Path) -> None:
    number = np.arange(600)
    calls = {"k": np.where(number % 5, 0, number % 50), "v": number * 31 % 997, "text": [f"t{n % 41}" for n in number]}
    table = pa.table({"ts": pa.array(number * 1_000, TIME), **calls})
    (tmp_path / "calls").mkdir()
    for at in range(2):
        pq.write_table(table.slice(at * 300, 300), tmp_path / "calls" / f"{at}.parquet")
    stream = tg.stream(str(tmp_path / "calls" / "*.parquet"), time="ts", name="calls")
    values = stream.key_by("k").window("400 ms", every="150 ms")
    counts = values.aggregate(v=tg.distinct("v"), texts=tg.collect("text"), n=tg.count(), name="values")
    pairs = stream.select("ts", "k", "v").join(counts.select("ts", "k", "n"), on="k", within="3 ms", name="pairs")
    out = tmp_path / "out"

    def change(progress: tg.Progress) -> None:
        if progress.batch == 0:
            tg.set_cells(out / "_checkpoint" / "control", 3)

    result = tg.run(pairs, to=out, spark=spark, files_per_batch=1, cells=(2, 3), hot_keys=True, progress=change)
    assert result.results > 10
    assert difference(result.read(), answer(pairs).rows) is None
