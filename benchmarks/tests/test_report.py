"""Figures: the best Spark, and which ratios are formed."""

from __future__ import annotations

from benchmarks.engine_process import Run
from benchmarks.engines import Timing
from benchmarks.report import Row, ratios, row_from_runs, table, with_best_spark


def row(engine: str, batch: str, seconds: float) -> Row:
    return row_from_runs(engine, batch, 1_000, [Run(Timing(seconds, (seconds * 1_000,)), peak_mb=10.0)], output_rows=5)


ROWS = with_best_spark(
    [
        row("spark-hdfs", "50k", 1.0),
        row("spark-rocksdb", "50k", 2.0),
        row("spark-hdfs", "1m", 0.5),
        row("spark-rocksdb", "1m", 0.25),
        row("tidegate-spark", "50k", 0.5),
        row("tidegate-spark", "1m", 0.125),
        row("duckdb", "all", 0.1),
    ]
)


def test_median_and_spread() -> None:
    runs = [Run(Timing(seconds, (seconds * 1_000,)), peak_mb=seconds) for seconds in (1.0, 4.0, 2.0)]
    found = row_from_runs("duckdb", "all", 1_000, runs, output_rows=5)
    assert (found.tuples_per_second, found.spread, found.p50_ms, found.peak_rss_mb) == (500, (250, 1_000), 2_000.0, 4)


def test_spark_is_the_faster_variant_of_each_batch() -> None:
    best = {found.batch: found.setting for found in ROWS if found.engine == "spark"}
    assert best == {"50k": "spark-hdfs", "1m": "spark-rocksdb"}


def test_ratios_name_their_batch_on_spark() -> None:
    assert ratios(ROWS) == {
        "tidegate-spark/spark@50k": 2.0,
        "tidegate-spark/spark@1m": 2.0,
        "duckdb/spark": 2.5,
    }


def test_json_has_the_agreed_fields() -> None:
    agreed = {"engine", "tuples_per_second", "spread", "p50_ms", "p99_ms", "peak_rss_mb", "output_rows"}
    assert agreed <= ROWS[0].as_json().keys()
    assert "tidegate-spark/spark@50k = 2.00" in table(ROWS, ratios(ROWS))
