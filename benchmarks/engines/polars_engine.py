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
    """The lazy frame of a workload. Windows are expanded before words, but after pairs, where that is faster."""
    keys = ["window_start", *workload.keys]
    windows = tuples.with_columns(window_start=_window_starts(workload))
    match workload.name:
        case "wordcount":
            words = windows.select("window_start", word=pl.col("text").str.split(" ").list.unique())
            return words.explode("window_start").explode("word").group_by(keys).agg(tweets=pl.len())
        case "paircount-l" | "paircount-m":
            pairs = _distinct_pairs(windows, workload.pair_distance)
            return pairs.explode("window_start").group_by(keys).agg(tweets=pl.len())
        case "keyed":
            rows = windows.select("window_start", "key", "value").explode("window_start")
            return rows.group_by(keys).agg(n=pl.len(), mean=pl.col("value").mean())
        case name:
            raise ValueError(f"polars: no query for workload {name!r}")


def _window_starts(workload: Workload) -> pl.Expr:
    latest = pl.col("ts").dt.truncate(f"{workload.every_seconds}s")
    every = pl.duration(seconds=workload.every_seconds, time_unit="us")
    return pl.concat_list([latest - every * back for back in range(workload.windows_per_tuple)])


def _distinct_pairs(tuples: pl.LazyFrame, distance: int) -> pl.LazyFrame:
    """Columns window_start, left, right: the set of pairs of each tuple, words as categorical codes.

    The words of all tuples lie under one another; a word's partner at distance k is the one k below it, if that one
    belongs to the same tuple.
    """
    flat = (
        tuples.select("window_start", left=pl.col("text").str.split(" "))
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
