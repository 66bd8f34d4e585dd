"""Runs that go on on the other runtime, on real Spark: the rows of all folders together are the law's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tests.kit.killed_leg import pairs
from tests.kit.killed_run import QUERIES
from tidegate.results import read_results
from tidegate.testing import answer, difference

pytestmark = pytest.mark.spark

TIME = pa.timestamp("us", tz="UTC")
FILES, ROWS = 5, 200


class Planned(Exception):
    """What ends a run on purpose."""


def written(folder: Path) -> str:
    """Files whose tuples come up to 2 ms out of order."""
    folder.mkdir()
    chance = Random(3)
    for number in range(FILES):
        first = 5_000 + number * ROWS
        times = [(first + row) * 250 - chance.randrange(2_000) for row in range(ROWS)]
        columns = {"ts": pa.array(times, TIME), "k": [chance.choice("abc") for _ in times]}
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({**columns, "n": [chance.randrange(50) for _ in times]}), path)
        os.utime(path, (1_000_000_000 + number,) * 2)
    return str(folder)


def stopped_after(batch: int) -> Any:
    """Progress that ends a run when a batch is completed."""

    def stop(progress: tg.Progress) -> None:
        if progress.batch == batch:
            raise Planned

    return stop


def test_a_killed_run_goes_on_on_spark_and_from_there_in_process(spark: Any, tmp_path: Path) -> None:
    files = written(tmp_path / "in")
    out, checkpoint = tmp_path / "out-1", tmp_path / "cp-1"
    killed = subprocess.run(
        [sys.executable, "-m", "tests.kit.killed_leg", files, str(out), str(checkpoint)], timeout=100, check=False
    )
    assert killed.returncode == -9
    query = pairs(files)
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    again: dict[str, Any] = {"spark": spark, "files_per_batch": 1, "cells": 2, "continue_from": checkpoint}
    # What a run that was killed while it brought this over has left.
    (tmp_path / "out-2" / "_checkpoint" / "continued").mkdir(parents=True)
    (tmp_path / "out-2" / "_checkpoint" / "spark").mkdir()
    with pytest.raises(Planned):
        tg.run(query, to=tmp_path / "out-2", progress=stopped_after(1), **again)
    assert before == {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    law = answer(query).rows
    ends = []
    for name in ("out-3", "out-4"):
        ended = tg.run(
            query,
            on="local",
            to=tmp_path / name,
            checkpoint=tmp_path / f"of-{name}",
            continue_from=tmp_path / "out-2" / "_checkpoint",
            progress=False,
        )
        assert 0 < ended.rows < FILES * ROWS
        parts = [read_results(tmp_path / each, "parquet", query.schema) for each in ("out-1", "out-2", name)]
        assert min(part.num_rows for part in parts) > 0
        told = difference(pa.concat_tables(parts), law)
        assert told is None, told
        ends.append(ended.read())
    assert difference(*ends) is None
    # The run on Spark goes on by itself too, also when what it began with is gone.
    checkpoint.rename(tmp_path / "elsewhere")
    rest = tg.run(query, to=tmp_path / "out-2", progress=False, **again)
    parts = [read_results(tmp_path / each, "parquet", query.schema) for each in ("out-1", "out-2")]
    assert rest.finished and difference(pa.concat_tables(parts), law) is None


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(QUERIES))
def test_a_run_on_spark_that_was_killed_in_a_batch_goes_on_in_process(tmp_path: Path, name: str) -> None:
    """All its processes are killed when the state of a batch is written that is not committed."""
    files = usage(tmp_path / "in", rows=2_000, minutes=8, files=5)
    first, second = tmp_path / "out-1", tmp_path / "out-2"
    command = [sys.executable, "-m", "tests.kit.killed_run", name, files, str(first), "2"]
    killed = subprocess.run(command, start_new_session=True, check=False, timeout=300)
    assert killed.returncode == -9
    query = QUERIES[name](files)
    before: dict[str, Any] = {"checkpoint": tmp_path / "cp-2", "continue_from": first / "_checkpoint"}
    tg.run(query, on="local", to=second, progress=False, instances=3, **before)
    parts = [read_results(folder, "parquet", query.schema) for folder in (first, second)]
    told = difference(pa.concat_tables(parts), answer(query).rows)
    assert told is None, told


def test_several_results_and_json_go_on_in_process(spark: Any, tmp_path: Path) -> None:
    files = written(tmp_path / "in")
    one = tg.stream(files, time="ts", disorder="2 ms")
    counts = one.key_by("k").window("30 ms").aggregate(n=tg.sum("n"))
    query = {"counts": counts, "even": one.filter(nw.col("n") % 2 == 0)}
    first, checkpoint = tmp_path / "out-1", tmp_path / "cp-1"
    with pytest.raises(Planned):
        tg.run(
            query,
            to=first,
            format="jsonl",
            checkpoint=checkpoint,
            spark=spark,
            files_per_batch=1,
            progress=stopped_after(2),
        )
    second = tmp_path / "out-2"
    tg.run(
        query,
        on="local",
        to=second,
        format="jsonl",
        checkpoint=tmp_path / "cp-2",
        continue_from=checkpoint,
        progress=False,
    )
    for name, result in query.items():
        parts = [read_results(folder / name, "jsonl", result.schema) for folder in (first, second)]
        told = difference(pa.concat_tables(parts), answer(result).rows)
        assert told is None, f"{name}\n{told}"
