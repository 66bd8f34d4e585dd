"""``tidegate plan``: instances by what was measured on a sample."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.cli.main import main

QUERY = """
import time
import tidegate as tg

def dear(batch):
    time.sleep(batch.num_rows * 0.0002)
    return batch

cheap = tg.stream({folder!r}, time="ts").key_by("k").window("1ms").aggregate(n=tg.count(), name="first")
query = cheap.map_batches(dear).key_by("k").window("2ms").aggregate(m=tg.sum("n"), name="second")
generated = tg.stream(iter([]), time="ts", schema=cheap.schema).key_by("k").window("10us").aggregate(n=tg.count())
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = pa.table(
        {"ts": pa.array(range(20_000), pa.int64()).cast(pa.timestamp("us")), "k": [i % 5 for i in range(20_000)]}
    )
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "0.parquet")
    path = tmp_path / "job.py"
    path.write_text(QUERY.format(folder=str(tmp_path / "in")))
    return path


def test_the_plan_shares_instances_out_by_work(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"{file}:query", "--sample", "20000", "--instances", "4", "--rate", "1000"]) == 0
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.startswith(("first", "second"))}
    assert rows["first"][1] == "20,000"
    assert rows["second"][1] == "100", "20 windows of 5 keys"
    assert int(rows["first"][3]) + int(rows["second"][3]) == 4
    assert "measured on 20,000 tuples" in shown
    assert "needed for 1,000 tuples/s" in shown


def test_an_input_that_can_be_read_only_once_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"{file}:generated"]) == 2
    assert "reads neither files nor a table" in " ".join(capsys.readouterr().err.split())
