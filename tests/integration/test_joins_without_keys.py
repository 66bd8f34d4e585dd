"""Joins without keys whose tuples may leave alone, over the cells of real Spark, while shards move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.query.nodes import JoinHow
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark
TIME = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize("how", ["full", "semi"])
def test_who_has_no_partner_is_known_whichever_cells_there_are(how: JoinHow, spark: Any, tmp_path: Path) -> None:
    number = np.arange(600)
    streams = []
    for name, factor in (("orders", 31), ("payments", 57)):
        table = pa.table({"ts": pa.array(number * 1_000 + factor, TIME), "v": number * factor % 997})
        (tmp_path / name).mkdir()
        for at in range(3):
            pq.write_table(table.slice(at * 200, 200), tmp_path / name / f"{at}.parquet")
        streams.append(tg.stream(str(tmp_path / name / "*.parquet"), time="ts", name=name))
    query = streams[0].join(streams[1], where=lambda l, r: (l.v * r.v) % 61 == 7, how=how, within="30 ms")
    law = answer(query).rows
    out = tmp_path / "out"

    def change(progress: tg.Progress) -> None:
        if progress.batch == 0:
            tg.set_cells(out / "_checkpoint" / "control", 3)

    result = tg.run(query, to=out, spark=spark, files_per_batch=1, cells=(2, 3), progress=change)
    assert difference(result.read(), law) is None
    if how == "full":
        alone = [law.filter(law.column(name).is_null()).num_rows for name in ("v", "v_right")]
        assert min(alone) > 10 and law.num_rows > sum(alone)
    else:
        assert 10 < law.num_rows < 600
