"""Results as rows for Spark, as parts that workers write, and the log that says which parts count."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.query.outputs import untagged
from tidegate.query.schema import TIME
from tidegate.results import Part, has_log, logged_names, part_files, read_results, remove_unlisted
from tidegate.runtime.spark import output
from tidegate.runtime.spark.codec import METRICS, OBSERVED, reported
from tidegate.runtime.spark.output import Output, PartOutput, RowOutput
from tidegate.runtime.spark.part_log import COMPACT_EVERY, PartLog

SCHEMA = pa.schema([("ts", TIME), ("n", pa.int64())])


def numbers(first: int, count: int) -> pa.Table:
    return pa.table({"ts": pa.array(range(first, first + count), TIME), "n": range(first, first + count)}, SCHEMA)


@pytest.mark.parametrize("folder", [None, "out"])
def test_results_and_metrics_are_told_apart(folder: str | None, tmp_path: Path) -> None:
    out: Output = RowOutput(SCHEMA) if folder is None else PartOutput(SCHEMA, str(tmp_path / folder))
    results = list(out.emit([(0, pa.table({"n": [1, 2], "more": [3, 4], "ts": pa.array([5, 6], TIME)}))], 7))
    (told,) = out.metrics([{"step": "1:s", "late": 2}, {"source": "calls", "rows": 3}])
    rows = pa.Table.from_batches([*results, told])
    assert rows.schema == out.columns
    texts = [text for text in rows.column(METRICS).to_pylist() if text is not None]
    assert reported({OBSERVED: {"cells": texts}}) == [{"step": "1:s", "late": 2}, {"source": "calls", "rows": 3}]
    found = rows.filter(rows.column(METRICS).is_null())
    if folder is None:
        assert found.column("n").to_pylist() == [1, 2]
    else:
        (part,) = found.to_pylist()
        file = tmp_path / folder / part["part"]
        assert (part["rows"], part["bytes"]) == (2, file.stat().st_size)
        assert pq.read_table(file).equals(pa.table({"ts": pa.array([5, 6], TIME), "n": [1, 2]}, SCHEMA))


def test_many_results_leave_in_several_batches() -> None:
    sizes = [batch.num_rows for batch in RowOutput(SCHEMA).emit([(0, numbers(0, 150_000))], 0)]
    assert (sum(sizes), max(sizes)) == (150_000, output.ROWS_PER_BATCH)
    assert not sum(batch.num_rows for batch in RowOutput(SCHEMA).emit([(0, numbers(0, 0))], 0))


def test_small_tables_share_a_row_group(tmp_path: Path) -> None:
    tables = [(0, numbers(first, 1000)) for first in range(0, 300_000, 1000)]
    (row,) = pa.Table.from_batches(PartOutput(SCHEMA, str(tmp_path)).emit(tables, 0)).to_pylist()
    written = pq.ParquetFile(tmp_path / row["part"])
    assert [written.metadata.row_group(group).num_rows for group in range(written.num_row_groups)] == [
        132_000,
        132_000,
        36_000,
    ]
    assert written.read().column("n").to_pylist() == list(range(300_000))


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_each_of_several_results_has_parts_in_a_folder_of_its_own(kind: str, tmp_path: Path) -> None:
    both = pa.schema([("big", pa.struct(list(SCHEMA))), ("times", pa.struct([SCHEMA.field("ts")]))])
    parts = PartOutput(both, str(tmp_path), kind, names=("big", "times"))
    given = [(1, numbers(0, 2)), (0, numbers(5, 1)), (1, numbers(2, 1))]
    told = pa.Table.from_batches(parts.emit(given, 3)).to_pylist()
    assert [(row["output"], row["rows"]) for row in told] == [(0, 1), (1, 3)]
    assert read_results(tmp_path / "big", kind, SCHEMA).equals(numbers(5, 1))
    assert read_results(tmp_path / "times", kind, SCHEMA.remove(1)).column("ts").cast(pa.int64()).to_pylist() == [
        0,
        1,
        2,
    ]
    rows = pa.Table.from_batches(RowOutput(both, names=("big", "times")).emit(given, 3)).drop_columns([METRICS])
    assert untagged(rows, "big").equals(numbers(5, 1))
    assert untagged(rows, "times").column("ts").cast(pa.int64()).to_pylist() == [0, 1, 2]
    assert rows.num_rows == 4


def test_no_results_make_no_part(tmp_path: Path) -> None:
    assert list(PartOutput(SCHEMA, str(tmp_path / "out")).emit([(0, numbers(0, 0))], 0)) == []
    assert not (tmp_path / "out").exists()


def test_a_part_that_could_not_be_finished_is_gone(tmp_path: Path) -> None:
    def tables() -> Any:
        yield 0, numbers(0, 200_000)
        raise ValueError("a step after it failed")

    with pytest.raises(ValueError, match="a step after it failed"):
        list(PartOutput(SCHEMA, str(tmp_path)).emit(tables(), 0))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_attempt_left_is_removed(tmp_path: Path) -> None:
    (listed,) = pa.Table.from_batches(PartOutput(SCHEMA, str(tmp_path)).emit([(0, numbers(0, 5))], 0)).to_pylist()
    list(PartOutput(SCHEMA, str(tmp_path)).emit([(0, numbers(0, 5))], 0))
    (tmp_path / ".draft-1234").write_bytes(b"begun")
    assert remove_unlisted(tmp_path) == 0, "a folder without a log is not ours to clean"
    log = PartLog(tmp_path)
    log.begin()
    assert not has_log(tmp_path)
    log.add(0, [Part(listed["part"], 5, listed["bytes"])])
    assert has_log(tmp_path)
    assert remove_unlisted(tmp_path) == 2
    assert [part.name for part in part_files(tmp_path, "parquet")] == [listed["part"]]
    assert not list(tmp_path.glob(".draft-*"))


def committed(folder: Path, batches: range) -> list[str]:
    """Write a part in every batch and commit it; batch ``3k`` has none."""
    names = []
    PartLog(folder).begin()
    for batch in batches:
        rows = list(PartOutput(SCHEMA, str(folder)).emit([(0, numbers(100 * batch, batch % 3))], batch))
        parts = [Part(row["part"], row["rows"], row["bytes"]) for row in chain(*(each.to_pylist() for each in rows))]
        PartLog(folder).add(batch, parts)
        names += [part.name for part in parts]
    return names


def test_a_batch_that_is_run_again_after_its_commit_changes_nothing(tmp_path: Path) -> None:
    names = committed(tmp_path, range(12))
    again = committed(tmp_path, range(9, 12))
    assert logged_names(tmp_path) == frozenset(names)
    assert remove_unlisted(tmp_path) == len(again)


def test_a_log_repeats_what_came_before_and_old_files_of_it_go(tmp_path: Path) -> None:
    folder = tmp_path / "out put"
    names = committed(folder, range(2 * COMPACT_EVERY))
    log = folder / "_spark_metadata"
    lines = (log / "19.compact").read_text().splitlines()
    assert lines[0] == "v1"
    entries = [json.loads(line) for line in lines[1:]]
    assert [entry["path"].rsplit("/", 1)[1] for entry in entries] == names
    assert all(entry["path"].startswith("file:///") and "out%20put" in entry["path"] for entry in entries)
    assert {file.name for file in log.iterdir()} == {"9.compact", "19.compact"} | {
        str(batch) for batch in range(19) if batch != 9
    }
    for file in log.iterdir():
        os.utime(file, (0, 0))
    names += committed(folder, range(2 * COMPACT_EVERY, 3 * COMPACT_EVERY))
    assert min(int(file.name.removesuffix(".compact")) for file in log.iterdir()) == 19
    assert logged_names(folder) == frozenset(names)


@pytest.mark.spark
@pytest.mark.parametrize("batches", [2, 9, 10, 25, 31])
def test_spark_reads_what_the_log_lists(batches: int, tmp_path: Path, spark: Any) -> None:
    folder = tmp_path / "out"
    committed(folder, range(batches))
    list(PartOutput(SCHEMA, str(folder)).emit([(0, numbers(-5, 3))], batches))  # of an attempt that was not taken
    expected = [100 * batch + row for batch in range(batches) for row in range(batch % 3)]
    read = spark.read.schema("ts timestamp, n long").parquet(str(folder)).collect()
    assert sorted(row["n"] for row in read) == expected
