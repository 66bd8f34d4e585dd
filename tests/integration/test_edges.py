"""What happens at the edges of sources on real Spark: times of arrival."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark

COLUMNS = pa.schema({"k": pa.string(), "n": pa.int64()})


def parts(folder: Path, count: int = 2) -> str:
    """Files without times, each written after the one before."""
    folder.mkdir()
    for number in range(count):
        table = pa.table({"k": ["a", "b"], "n": [number, number]}, schema=COLUMNS)
        pq.write_table(table, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_700_000_000 + 2 * number,) * 2)
    return str(folder / "*.parquet")


@pytest.mark.parametrize("cells", [1, 2])
def test_tuples_arrive_with_the_timestamp_of_their_batch(tmp_path: Path, spark: Any, cells: int) -> None:
    files = parts(tmp_path / "in")
    frame = spark.readStream.schema("k string, n long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    origin = files if cells == 1 else frame
    calls = tg.stream(origin, time=tg.arrival(), name="calls")
    old = calls.filter(nw.col("arrived") > nw.lit(0).cast(nw.Datetime("us", "UTC")))
    counts = old.key_by("k").window("1 millisecond").aggregate(n=tg.sum("n"), name="counts")
    results = {"counts": counts, "seen": calls}
    run = tg.run(
        results, to=tmp_path / "out", spark=spark, cells=cells, files_per_batch=1, bounded=True, progress=False
    )
    seen = run.read("seen")
    assert sorted(seen.column("n").to_pylist()) == [0, 0, 1, 1]
    first, second = ({row["arrived"] for row in seen.to_pylist() if row["n"] == number} for number in (0, 1))
    assert len(first) == len(second) == 1
    assert max(first) < min(second)
    assert difference(run.read("counts"), answer(counts, {"calls": seen}).rows) is None
