"""Latency on Spark: which tuple releases a window, when its rows were visible, and what a load in files holds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.compare import Mismatch
from benchmarks.latency_spark import Load, check, latencies_ms, ratios, read_results
from benchmarks.paced_files import Schedule, write
from benchmarks.sink_commits import LOG, commit_path, commits

SECOND = 1_000_000
SCHEDULE = Schedule(begin_us=100 * SECOND, tuples_per_second=100, file_ms=500, seconds=4, keys=7, seed=1)


def test_a_latency_counts_from_when_the_releasing_tuple_was_due() -> None:
    # event time   0      1      2      3          files hold times until 0.9, 1.9, 2.9
    # windows      [------)[------)[------)        end at 1, 2, 3
    # due              10     11     12            what is past 1 comes with the second file, past 2 with the third
    due, newest = np.array([10, 11, 12]) * SECOND, np.array([900_000, 1_900_000, 2_900_000])
    ends, visible = np.array([1, 2, 3]) * SECOND, np.array([11_250_000, 12_400_000, 13_000_000])
    found = latencies_ms(ends, visible, due, newest, delay_us=1_000)
    assert found[:2].tolist() == [250.0, 400.0]
    assert np.isnan(found[2]), "no tuple released the last window"


@pytest.mark.parametrize(("delay_us", "due"), [(0, 11), (1, 12), (900_000, 12), (900_001, 13)])
def test_a_watermark_that_waits_longer_is_released_by_a_later_tuple(delay_us: int, due: int) -> None:
    newest = np.array([1_000_000, 1_900_000, 2_900_000])
    found = latencies_ms(np.array([SECOND]), np.array([20 * SECOND]), np.array([11, 12, 13]) * SECOND, newest, delay_us)
    assert found.tolist() == [(20 - due) * 1e3]


def test_results_of_one_batch_differ_by_their_windows_alone() -> None:
    ends, visible = np.array([1, 1, 2]) * SECOND, np.full(3, 5 * SECOND)
    found = latencies_ms(ends, visible, np.array([3, 4]) * SECOND, np.array([1_500_000, 2_500_000]), 0)
    assert found.tolist() == [2_000.0, 2_000.0, 1_000.0]


def test_a_schedule_is_due_after_the_times_it_holds() -> None:
    tables = [SCHEDULE.table(file) for file in range(SCHEDULE.files)]
    times = np.concatenate([np.asarray(table["ts"].cast(pa.int64())) for table in tables])
    assert times.tolist() == [100 * SECOND + at * 10_000 for at in range(400)]
    newest = [int(table["ts"].cast(pa.int64())[-1].as_py()) for table in tables]
    assert SCHEDULE.newest_us.tolist() == newest
    assert SCHEDULE.due_us.tolist() == [100 * SECOND + (file + 1) * 500_000 for file in range(8)]
    assert all(SCHEDULE.due_us > SCHEDULE.newest_us)


def test_counts_are_those_of_the_tuples() -> None:
    keys = np.concatenate([np.asarray(SCHEDULE.table(file)["key"]) for file in (2, 3)])
    assert SCHEDULE.counts(101 * SECOND, 102 * SECOND).tolist() == np.bincount(keys, minlength=7).tolist()


def test_a_rate_that_files_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 10"):
        Schedule(0, 1_005, 100, 1, 7, 1)


def test_files_appear_whole_and_in_order(tmp_path: Path) -> None:
    schedule = Schedule(int(time.time() * 1e6), 100, 100, 1, 7, 1)
    folder = tmp_path / "in"
    folder.mkdir()
    assert write(schedule, folder) < 5_000
    files = sorted(folder.iterdir())
    assert [pq.read_table(file).equals(schedule.table(at)) for at, file in enumerate(files)] == [True] * 10
    modified = [file.stat().st_mtime_ns for file in files]
    assert modified == sorted(modified)


def log_entry(sink: Path, name: str, files: list[str], at_s: int) -> None:
    entry = sink / LOG / name
    entry.parent.mkdir(parents=True, exist_ok=True)
    lines = ["v1", *(json.dumps({"path": (sink / file).as_uri(), "action": "add"}) for file in files)]
    entry.write_text("\n".join(lines))
    os.utime(entry, (at_s, at_s))


def part(sink: Path, name: str, window_s: int, counts: dict[int, int]) -> None:
    starts = pa.array([window_s * SECOND] * len(counts)).cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"window_start": starts, "key": list(counts), "n": list(counts.values())}), sink / name)


def test_a_row_is_visible_from_the_commit_of_its_batch(tmp_path: Path) -> None:
    sink = tmp_path / "a sink"
    log_entry(sink, "0", ["0.parquet"], 200)
    log_entry(sink, "1.compact", ["0.parquet", "1.parquet"], 201)
    log_entry(sink, "2", [], 202)
    part(sink, "0.parquet", 100, {1: 5})
    part(sink, "1.parquet", 101, {1: 6, 2: 7})
    part(sink, "of-a-failed-attempt.parquet", 101, {1: 6, 2: 7})
    assert [(each.batch, each.at_us // SECOND, len(each.files)) for each in commits(sink)] == [
        (0, 200, 1),
        (1, 201, 1),
        (2, 202, 0),
    ]
    assert commit_path(sink, 3) is None
    assert read_results(sink).rows() == [
        (100 * SECOND, 1, 5, 200 * SECOND),
        (101 * SECOND, 1, 6, 201 * SECOND),
        (101 * SECOND, 2, 7, 201 * SECOND),
    ]


def results_of(load: Load) -> pl.DataFrame:
    rows = [
        (start_us, key, int(n))
        for start_us in load.window_starts_us
        for key, n in enumerate(load.schedule.counts(start_us, start_us + SECOND))
    ]
    return pl.DataFrame(rows, schema={"window_us": pl.Int64, "key": pl.Int64, "n": pl.Int64}, orient="row")


def test_every_window_of_the_span_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.latency_spark.WARM_UP_SECONDS", 2)
    load = Load(SCHEDULE, span_seconds=2)
    assert [start_us // SECOND for start_us in load.window_starts_us] == [101, 102]
    right = results_of(load)
    check("an engine", right, load)
    with pytest.raises(Mismatch, match="no results"):
        check("an engine", right.filter(pl.col("window_us") > 101 * SECOND), load)
    for wrong in (right.slice(1), pl.concat([right, right.slice(0, 1)]), right.with_columns(pl.col("n") + 1)):
        with pytest.raises(Mismatch, match="are right"):
            check("an engine", wrong, load)


def test_ratios_are_against_the_better_state_store() -> None:
    rows = [
        {"engine": "spark-hdfs", "p50_ms": 500.0, "p99_ms": 900.0},
        {"engine": "spark-rocksdb", "p50_ms": 600.0, "p99_ms": 800.0},
        {"engine": "tidegate-spark", "p50_ms": 250.0, "p99_ms": 400.0},
    ]
    assert ratios(rows) == {"tidegate-spark/spark p50": 2.0, "tidegate-spark/spark p99": 2.0}
    assert ratios(rows[2:]) == {}
