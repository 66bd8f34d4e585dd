"""A checkpoint at rest gets other cells; what is told of it is what the next run does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver
from tidegate.cli.main import main
from tidegate.runtime.spark.checkpoint import Checkpoint, CheckpointInfo
from tidegate.runtime.spark.rescale import rescale

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema({"ts": TIME, "k": pa.int64()})


def counted() -> tg.Stream:
    return tg.stream(SCHEMA, time="ts", name="calls").key_by("k").window("1 hour").aggregate(n=tg.count())


def pairs() -> tg.Stream:
    calls = tg.stream(SCHEMA, time="ts", name="calls")
    return calls.join(calls, within="1 hour", where=lambda l, r: l.k < r.k)


def unpaired() -> tg.Stream:
    calls = tg.stream(SCHEMA, time="ts", name="calls")
    return calls.join(calls, within="1 hour", where=lambda l, r: l.k < r.k, how="left")


def at_rest(folder: Path, cells: int, query: tg.Stream, finished: bool = False) -> Driver:
    """A checkpoint as a run of two batches leaves it."""
    checkpoint = Checkpoint(folder)
    driver = Driver(query.node, cells, folder / "state")
    for number in range(2):
        times = pa.array([1_000_000 * number + n for n in range(400)], TIME)
        driver.batch(Batch({"calls": [pa.table([times, pa.array(range(400))], schema=SCHEMA)]}))
        commit = checkpoint.spark / "commits" / str(number)
        commit.parent.mkdir(parents=True, exist_ok=True)
        commit.write_text("v1\n{}")
    (checkpoint.spark / "metadata").write_text(json.dumps({"id": "query"}))
    checkpoint.write(CheckpointInfo("f", (cells, cells), "parquet to /out", 1, finished=finished))
    return driver


@pytest.mark.parametrize(
    ("query", "before", "after"), [(counted(), 1, 4), (counted(), 4, 3), (pairs(), 2, 6), (unpaired(), 2, 3)]
)
def test_what_is_told_is_what_the_next_run_does(query: Any, before: int, after: int, tmp_path: Path) -> None:
    driver = at_rest(tmp_path, before, query)
    (told,) = rescale(tmp_path, (after, after))
    assert (told.step, told.before, told.after) == ("step-0", before, after)
    found = Checkpoint(tmp_path).read()
    assert found is not None and found.cells == (after, after)
    driver.run_number += 1
    driver.start(after)
    driver.batch(Batch({}))
    adopted = [one["adopted"] for one in driver.outcome.reports[-1] if "adopted" in one]
    assert told.shards == sum(each["shards"] for each in adopted) > 0
    assert told.chunks == sum(each["chunks"] for each in adopted) > 0
    assert told.bytes == sum(each["bytes"] for each in adopted)
    if query.node.name.startswith("aggregate"):
        # Every cell lists its own part of what there was, and nothing was written.
        assert sum(directory.state_rows() for directory in driver.directories()) == pytest.approx(800, abs=8)
        assert {chunk.batch for chunk in driver.held()} <= {0, 1}


def test_the_command_says_what_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at_rest(tmp_path, 1, counted())
    assert main(["rescale", str(tmp_path), "--cells", "1:8", "--dry-run"]) == 0
    assert "step-0: from 1 to 1 cells, 0 of 1,024 shards move" in capsys.readouterr().out
    assert main(["rescale", str(tmp_path), "--cells", "2"]) == 0
    out = capsys.readouterr().out
    assert "step-0: from 1 to 2 cells, 512 of 1,024 shards move; cells will list 2 chunks of others" in out
    assert "the next run has 2 cells a step" in out
    assert main(["rescale", str(tmp_path), "--cells", "many"]) == 2
    assert "--cells is a number, or the least and the most, such as 1:8; got 'many'" in capsys.readouterr().err


def test_what_is_no_checkpoint_to_go_on_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tg.CheckpointError, match=r"no checkpoint of tidegate.run.*to_spark\(cells="):
        rescale(tmp_path, (2, 2))
    at_rest(tmp_path, 1, counted(), finished=True)
    with pytest.raises(tg.CheckpointError, match="is finished"):
        rescale(tmp_path, (2, 2))
