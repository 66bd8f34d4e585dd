"""Polars: the whole input as one lazy frame on the streaming engine, every tuple expanded into its windows."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl

from benchmarks.engines import Timing
from benchmarks.inputs import Input
from benchmarks.workloads import Workload


class PolarsEngine:
    """A run scans the parquet files and ends with the result as a data frame in memory."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._result: pl.DataFrame | None = None

    def run(self, data: Input, scratch: Path) -> Timing:
        self._result = None
        lazy = query(self._workload, pl.scan_parquet(data.folder / "*.parquet"))
        started = time.perf_counter()
        self._result = lazy.collect(engine="streaming")
        seconds = time.perf_counter() - started
        return Timing(seconds, (seconds * 1_000,))

    def collect(self, target: Path) -> None:
        if self._result is None:
            raise RuntimeError("polars: collect follows a run, and none has finished")
        target.mkdir(parents=True)
        strings = pl.selectors.categorical().cast(pl.String)
        self._result.with_columns(strings).write_parquet(target / "result.parquet")
        self._result = None

    def close(self) -> None:
        self._result = None


def query(workload: Workload, tuples: pl.LazyFrame) -> pl.LazyFrame:
    """The lazy frame of a workload: one row for each key and window of a tuple, then one hash aggregation."""
    keys = ["window_start", *workload.keys]
    match workload.name:
        case "wordcount":
            words = tuples.select("ts", word=pl.col("text").str.split(" ").list.unique())
            return _in_windows(words, workload).explode("word").group_by(keys).agg(tweets=pl.len())
        case "paircount-l" | "paircount-m" | "paircount-h":
            pairs = _distinct_pairs(tuples, workload.pair_distance)
            return _in_windows(pairs, workload).group_by(keys).agg(tweets=pl.len())
        case "keyed":
            return _in_windows(tuples, workload).group_by(keys).agg(n=pl.len(), mean=pl.col("value").mean())
        case name:
            raise ValueError(f"polars: no query for workload {name!r}")


def _in_windows(rows: pl.LazyFrame, workload: Workload) -> pl.LazyFrame:
    """A copy of each row for every window that holds its time, with the window's start."""
    latest = pl.col("ts").dt.truncate(f"{workload.every_seconds}s")
    every = pl.duration(seconds=workload.every_seconds, time_unit="us")
    return pl.concat(
        [rows.with_columns(window_start=latest - every * back) for back in range(workload.windows_per_tuple)]
    )


def _distinct_pairs(tuples: pl.LazyFrame, distance: int) -> pl.LazyFrame:
    """Columns ts, left, right: the set of pairs of each tuple, words as categorical codes.

    The words of all tuples lie under one another; a word's partner at distance k is the one k below it, if that one
    belongs to the same tuple.
    """
    flat = (
        tuples.select("ts", left=pl.col("text").str.split(" "))
        .with_row_index("row")
        .explode("left")
        .with_columns(pl.col("left").cast(pl.Categorical))
    )
    shifted = [
        flat.with_columns(right=pl.col("left").shift(-k), partner_row=pl.col("row").shift(-k))
        .filter(pl.col("partner_row") == pl.col("row"))
        .drop("partner_row")
        for k in range(1, distance + 1)
    ]
    return pl.concat(shifted).unique(["row", "left", "right"]).drop("row")
