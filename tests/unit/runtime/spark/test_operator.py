"""One batch of cells: what they refuse, what an attempt leaves, and how many instances they run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.kit.spark_driver import FIRST_CLOCK_US, Batch, Driver
from tidegate.errors import CheckpointError, EnvironmentFault, QueryError
from tidegate.query.names import unique_names
from tidegate.runtime.spark.cell_batch import TaskBatch, of_this_task
from tidegate.runtime.spark.codec import Header
from tidegate.runtime.spark.operator import letters_name, write_letters

MOMENT = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema([("ts", MOMENT), ("k", pa.int64())])
MINUTE = 60_000_000


def counted(size: str = "1 minute") -> tg.Stream:
    stream = tg.stream(COLUMNS, time="ts", name="calls")
    return stream.key_by("k").window(size).aggregate(n=tg.count(), name="counts")


def driver(cells: int, folder: Path | None = None, query: tg.Stream | None = None, **options: Any) -> Driver:
    return Driver(unique_names((query or counted()).node), cells, folder, **options)


def rows(*minutes: int) -> Batch:
    moments = [MINUTE * minute for minute in minutes]
    return Batch({"calls": [pa.table([pa.array(moments, MOMENT), pa.array(minutes, pa.int64())], schema=COLUMNS)]})


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_outside_a_batch_of_spark_there_is_no_state() -> None:
    with pytest.raises(QueryError, match=r"evaluated outside a micro-batch: .*start it as pyspark.InheritableThread"):
        of_this_task()


@pytest.mark.parametrize("cells", [1, 2])
def test_an_attempt_with_other_rows_is_refused(cells: int) -> None:
    run = driver(cells)
    run.batch(rows(1, 2, 3))
    task = TaskBatch(1, "query", "run0")
    run.attempt(rows(4, 5), task)
    run.attempt(rows(5, 4), task)
    with pytest.raises(CheckpointError, match="step 'counts': batch 1 was evaluated twice, with different rows"):
        run.attempt(rows(4, 6), task)


@pytest.mark.parametrize("cells", [1, 2])
def test_rows_of_an_earlier_batch_are_refused(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = driver(cells)
    run.batch(rows(1, 2, 3))
    run.batch(rows(4))
    monkeypatch.setattr(run, "_clock", lambda: FIRST_CLOCK_US)
    with pytest.raises(QueryError, match=r"batch 2 was given the rows of an earlier one, of 2027-.*persist it there"):
        run.attempt(rows(1, 2, 3), TaskBatch(2, "query", "run0"))


@pytest.mark.parametrize("cells", [1, 2])
def test_a_batch_that_has_other_rows_after_a_restart_is_refused(cells: int) -> None:
    run = driver(cells)
    run.batch(rows(1, 2))
    run.attempt(rows(3, 4), TaskBatch(1, "query", "run0"))
    run.attempt(rows(4, 3), TaskBatch(1, "query", "run1"))
    with pytest.raises(CheckpointError, match=r"batch 1 is run again after a restart, .*remove offsets/1 from"):
        run.attempt(rows(3), TaskBatch(1, "query", "run2"))


@pytest.mark.parametrize("cells", [1, 2])
def test_the_state_of_another_query_is_refused(cells: int, tmp_path: Path) -> None:
    driver(cells, tmp_path).batch(rows(1))
    other = driver(cells, tmp_path, counted("2 minutes"))
    with pytest.raises(CheckpointError, match="was written by another query and cannot serve this one: it holds «"):
        other.attempt(rows(2), TaskBatch(1, "query", "run1"))


def test_a_folder_that_is_not_the_drivers_is_refused(tmp_path: Path) -> None:
    run = driver(1, tmp_path)
    shutil.rmtree(tmp_path / "probes")
    with pytest.raises(EnvironmentFault, match=f"does not find in {tmp_path} what the driver wrote there"):
        run.batch(rows(1))


@pytest.mark.parametrize("cells", [1, 2])
def test_an_attempt_that_is_run_again_leaves_the_same_files(cells: int, tmp_path: Path) -> None:
    run = driver(cells, tmp_path)
    run.batch(rows(1, 2, 3))
    run.attempt(rows(3, 4, 5), TaskBatch(1, "query", "run0"))
    once = files(tmp_path)
    results = [run.attempt(rows(5, 3, 4), TaskBatch(1, "query", "run0"))[0] for _ in range(2)]
    assert files(tmp_path) == once
    assert [sum(table.num_rows for table in tables) for tables in results] == [2, 2], "and gives the same again"


def test_a_consumer_that_stops_early_loses_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's `limit` takes a row and goes."""
    run, whole = driver(1, tmp_path / "stopped"), driver(1, tmp_path / "whole")
    run.batch(rows(1, 2, 3))
    whole.batch(rows(1, 2, 3))
    task = TaskBatch(1, "query", "run0")
    whole.attempt(rows(4, 5), task)

    def first(function: Any, given: list[pa.RecordBatch], task: TaskBatch) -> list[pa.RecordBatch]:
        stage = replace(function, task=lambda: task)
        taken = stage(iter(given))
        row = next(taken)
        taken.close()
        return [row]

    monkeypatch.setattr(run, "_run", first)
    run.attempt(rows(4, 5), task)
    stopped, expected = (
        {name for name in files(tmp_path / each) if name.startswith("query/")} for each in ("stopped", "whole")
    )
    assert stopped == expected


def test_instances_that_were_asked_for_last_as_long_as_the_run() -> None:
    run = driver(2, instances=3)
    run.batch(rows(1))
    run.batch(Batch(rows(2).parts, instances=(5, 2)))
    run.batch(rows(3))
    run.batch(Batch(rows(4).parts, restart=True))
    assert run.outcome.instances == [{3}, {2}, {2}, {3}], "another run begins with what it was given"


@pytest.mark.parametrize("cells", [1, 2])
def test_late_tuples_are_counted_once_and_kept_under_one_name(cells: int, tmp_path: Path) -> None:
    run = driver(cells, late_to=str(tmp_path))
    run.batch(rows(10, 11))
    run.batch(Batch(rows(1, 2, 3, 12).parts, attempts=3))
    assert run.outcome.late == 3
    (kept,) = tmp_path.rglob("*.parquet")
    assert pq.read_table(kept).column("k").to_pylist() == [1, 2, 3]


def test_the_malformed_records_of_a_batch_have_one_name(tmp_path: Path) -> None:
    root = driver(1, tmp_path).root
    header = Header(letters={"calls / τ": ["one", "two"]})
    for _ in range(2):
        write_letters(header, TaskBatch(7, "query", "run0"), root)
    (path,) = (tmp_path / "query" / "dead_letters").rglob("*-*")
    assert path.parent.name == letters_name("calls / τ")
    assert path.read_text() == "one\ntwo\n"


def test_old_state_goes(tmp_path: Path) -> None:
    run = driver(1, tmp_path, retain=4)
    for number in range(34):
        run.batch(rows(number))
    kept = sorted(int(path.name[:10]) for path in (tmp_path / "query/step-0/cell-0").iterdir())
    assert kept == list(range(32 - 4, 34)), "swept in batch 32"
    chunks = {path.name for path in (tmp_path / "query/step-0/chunks").iterdir()}
    listed = {chunk["name"] for path in (tmp_path / "query/step-0/cell-0").iterdir() for chunk in _listed(path)}
    assert listed <= chunks
    assert len(chunks) < 10


def _listed(path: Path) -> list[dict[str, Any]]:
    chunks: list[dict[str, Any]] = json.loads(json.loads(path.read_bytes())["directory"])["chunks"]
    return chunks
