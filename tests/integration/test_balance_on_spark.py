"""Shards that move between cells by their load, while a query runs on real Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.operators.keys import key_hashes, step_shards
from tidegate.telemetry.read import decisions
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark
TIME = pa.timestamp("us", tz="UTC")
FILES, ROWS = 8, 200


def counted(origin: Any, seconds: float) -> tg.Stream:
    """The number of each tuple among those of its key; each waits as for a service."""

    def count(window: Any, one: Any) -> Any:
        time.sleep(seconds)
        number = window.state["n"] + 1
        return tg.updated({"n": number}, rows={"k": window.key, "n": number})

    return (
        tg.stream(origin, time="ts", name="load")
        .key_by("k")
        .unbounded()
        .apply(
            update=count,
            state={"n": pa.int64()},
            initial={"n": 0},
            returns={"k": pa.int64(), "n": pa.int64()},
            name="counted",
        )
    )


def test_a_skewed_step_is_balanced_and_the_answer_is_the_references(spark: Any, tmp_path: Path) -> None:
    """All keys belong to the first of two cells to begin with; the other has nothing to do until shards are moved."""
    keys = np.arange(2_000)
    first = keys[step_shards(key_hashes([pa.array(keys)])) < 512][:24]
    for number in range(FILES):
        rows = number * ROWS + np.arange(ROWS)
        table = pa.table({"ts": pa.array(rows * 1_000).cast(TIME), "k": pa.array(first[rows % len(first)])})
        (tmp_path / "in").mkdir(exist_ok=True)
        file = tmp_path / "in" / f"{number:03}.parquet"
        pq.write_table(table, file)
        os.utime(file, (number + 1, number + 1))
    files, path = str(tmp_path / "in" / "*.parquet"), tmp_path / "run.ledger"

    result = tg.run(
        counted(files, 0.015),
        to=tmp_path / "out",
        spark=spark,
        files_per_batch=1,
        cells=2,
        instances=1,
        elastic=tg.Elastic("fixed", ledger=path, period_seconds=0.5),
        balance=True,
        progress=False,
    )
    assert difference(result.read(), answer(counted(files, 0.0)).rows) is None
    made = [each for each in decisions(path, changes_only=True).to_pylist() if each["result"] == "acted"]
    assert made, decisions(path)["why"].to_pylist()
    assert made[0]["subquery"] == "1:counted"
    assert (made[0]["action"], made[0]["protocol"]) == ("balance", "adopt")
    assert made[0]["took_in_force_seconds"] is not None
    assert made[0]["seen_deviation"] is None or made[0]["seen_deviation"] < made[0]["before_deviation"]
