"""How Nexmark's results are compared and its ratios made."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks.nexmark.figures import Figures, ratios, shown, summary
from benchmarks.nexmark.flink_sql import QUERIES, UPDATING
from benchmarks.nexmark.run import compare
from examples.nexmark.answers import ANSWERS

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
RIGHT = pl.DataFrame({"auction": [1, 1, 2], "price": [5, 5, 7]})


def written(folder: Path, **columns: Any) -> Path:
    pl.DataFrame(columns).write_parquet(folder / "results.parquet")
    return folder


def test_the_same_rows_in_any_order_and_width_are_right(tmp_path: Path) -> None:
    folder = written(tmp_path, date_time=[MOMENT] * 3, price=pl.Series([7, 5, 5], dtype=pl.Int32), auction=[2, 1, 1])
    assert compare("q2", folder, RIGHT, True, None) == 3


@pytest.mark.parametrize(
    ("auctions", "prices", "reason"),
    [([1, 1], [5, 5], "2 rows, and not 3"), ([1, 2, 2], [5, 7, 7], "wrong rows"), ([], [], "it gave no rows")],
)
def test_missing_and_wrong_rows_are_told(tmp_path: Path, auctions: list[int], prices: list[int], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        compare("q2", written(tmp_path, auction=auctions, price=prices), RIGHT, True, None)


def test_windows_that_are_still_open_may_be_missing_but_none_be_wrong(tmp_path: Path) -> None:
    assert compare("q5", written(tmp_path, auction=[1, 2], price=[5, 7]), RIGHT, False, None) == 2
    with pytest.raises(AssertionError, match="wrong rows, such as"):
        compare("q5", written(tmp_path, auction=[1, 2], price=[5, 8]), RIGHT, False, None)


def test_of_rows_that_change_the_last_counts(tmp_path: Path) -> None:
    right = pl.DataFrame({"category": [10, 11], "auctions": [2, 1], "average": [1.5, 4.0]})
    changed = written(tmp_path, category=[10, 11, 10], auctions=[2, 1, 1], average=[1.5, 4.0, 9.0])
    assert compare("q4", changed, right, True, None) == 3


def test_ratios_are_against_the_better_of_spark_and_flink() -> None:
    found = {
        "q0": [
            Figures("q0", "duckdb", 100, [0.5], [0.5], 10),
            Figures("q0", "tidegate-spark", 100, [1.0, 9.0, 2.0], [4.0, 4.0, 4.0], 10),
            Figures("q0", "spark-rocksdb", 100, [6.0], [9.0], 10),
            Figures("q0", "flink", 100, [3.0], [12.0], 10),
        ],
        "q4": [
            Figures("q4", "tidegate-spark", 100, [1.0], [1.0], 10),
            Figures("q4", "flink", 100, [4.0], [2.0], 10),
            Figures("q4", "spark-rocksdb", 100, cannot="no"),
        ],
    }
    made = ratios(found)
    assert made["q0 tidegate-spark/streaming time"] == 1.5
    assert made["q0 tidegate-spark/streaming CPU"] == 2.25
    assert made["q0 tidegate-spark/duckdb time"] == 0.25
    assert made["q4 tidegate-spark/streaming time"] == 4.0
    assert summary(made)["worst tidegate-spark/streaming time"] == 1.5
    assert summary(made)["median tidegate-spark/streaming time"] == 2.75
    lines = shown(found, made).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["q0", "q4"]  # the worst first
    assert "–" in lines[2]


def test_flink_has_all_queries_but_the_one_it_refuses() -> None:
    assert set(ANSWERS) - set(QUERIES) == {"q6"}
    assert set(UPDATING) <= set(QUERIES)
