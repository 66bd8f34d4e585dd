"""The ladder: which figures are held against it, and what they reach."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.ladder import held_against, table
from benchmarks.report import Row


def row(engine: str, rate: int, peak_mb: int = 100) -> Row:
    return Row(engine, "all", 1_000, rate, (rate, rate), 1.0, 1.0, peak_mb, 5)


RATIOS = {
    "tidegate-local/spark": 19.0,
    "tidegate-local/duckdb": 4.0,
    "tidegate-local/polars": 1.4,
    "tidegate-local/tidegate-local-1": 1.6,
}


def test_each_figure_stands_beside_must_and_aim() -> None:
    rungs = held_against("wordcount", [row("tidegate-local", 9_000, peak_mb=300)], RATIOS)
    assert {rung.goal.what: rung.reached for rung in rungs} == {
        "in process against native Spark at its best": "must",
        "in process against the better of DuckDB and Polars": "missed",
        "two instances against one": "must",
        "peak memory in process": "aim",
    }
    assert "19.00×" in table(rungs) and "≥ 15" in table(rungs) and "≥ 25" in table(rungs)


def test_the_better_of_two_is_not_known_from_one() -> None:
    rungs = held_against("wordcount", [], {"tidegate-local/duckdb": 4.0})
    assert rungs == []


@pytest.mark.parametrize(("workload", "must"), [("wordcount", 15), ("paircount-h", 25), ("keyed", 15)])
def test_in_process_against_spark(workload: str, must: float) -> None:
    (rung,) = held_against(workload, [], {"tidegate-local/spark": 1.0})
    assert (rung.goal.must, rung.reached) == (must, "missed")


def test_a_start_counts_at_its_longest_and_less_is_better() -> None:
    starts = [replace(row("tidegate-spark", 1), start_s=seconds) for seconds in (0.3, 0.4)]
    (rung,) = held_against("keyed", [*starts, replace(row("spark-hdfs", 1), start_s=0.7)], {})
    assert (rung.value, rung.reached) == (0.4, "must")


def test_on_spark_a_ratio_is_held_against_the_marks_of_its_batch() -> None:
    ratios = {"tidegate-spark/spark@50k": 1.5, "tidegate-spark/spark@1m": 2.2, "tidegate-spark-2/spark@1m": 9.0}
    assert [rung.reached for rung in held_against("keyed", [], ratios)] == ["aim", "missed"]
    (grown,) = held_against("state-growth", [], {"10x/1x": 1.08})
    assert grown.reached == "must"
