"""Are the results of two engines the same rows? Exact on counts and keys, to 1e-9 on floats."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from benchmarks.workloads import Workload

FLOAT_TOLERANCE = 1e-9
ROWS_SHOWN = 5


class Mismatch(AssertionError):
    """The results of an engine differ from the judge's; the message shows a few of the rows."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was compared and found equal."""

    windows: int
    rows: int


def load(folder: Path, workload: Workload) -> pl.DataFrame:
    """The results in `folder` in canonical form: `Workload.columns`, UTC microseconds, int64, float64 and strings."""
    frame = pl.scan_parquet(folder / "*.parquet").select(workload.columns)
    return frame.with_columns(
        pl.col("window_start").cast(pl.Datetime("us", "UTC")),
        pl.selectors.integer().cast(pl.Int64),
        pl.selectors.float().cast(pl.Float64),
        pl.selectors.categorical().cast(pl.String),
    ).collect()


def digest(results: pl.DataFrame) -> tuple[int, int, int]:
    """A fingerprint of the bag of rows, whatever their order: its size and two sums of hashes."""
    return results.height, int(results.hash_rows(seed=1).sum()), int(results.hash_rows(seed=2).sum())


def sort(results: pl.DataFrame, workload: Workload) -> pl.DataFrame:
    return results.sort("window_start", *workload.keys)


def compare(
    engine: str, results: pl.DataFrame, judge: pl.DataFrame, workload: Workload, due_by: datetime | None
) -> Agreement:
    """Compare all windows that `engine` emitted with the judge's, both sorted; raise Mismatch if a row differs.

    `due_by` is None for an engine that emits every window. Otherwise it is the latest event time that surely moved the
    watermark before a batch was processed: windows that end by it must be there, later ones may be missing at the end.
    """
    if due_by is not None:
        judge = judge.filter(pl.col("window_start") <= _latest_window(engine, results, judge, workload, due_by))
    if results.height != judge.height or not _equal(results, judge, workload):
        raise Mismatch(_difference(engine, results, judge, workload))
    return Agreement(judge["window_start"].n_unique(), judge.height)


def _latest_window(
    engine: str, results: pl.DataFrame, judge: pl.DataFrame, workload: Workload, due_by: datetime
) -> datetime:
    """The start of the last window that `engine` emitted, after checking that all that were due are not later."""
    last_due_start = due_by - timedelta(seconds=workload.size_seconds)
    due = judge.filter(pl.col("window_start") <= last_due_start)["window_start"].max()
    latest = results["window_start"].max()
    if not isinstance(due, datetime):
        raise ValueError(
            f"no window of {workload.size_seconds} s ends before the last micro-batch, so there is nothing to compare; "
            "give more --tuples, or fewer --tuples-per-second"
        )
    if not isinstance(latest, datetime) or latest < due:
        raise Mismatch(f"{engine}: its last window starts at {latest!s}, but the one that starts at {due} was due")
    return latest


def _equal(results: pl.DataFrame, judge: pl.DataFrame, workload: Workload) -> bool:
    return all(_equal_columns(results[name], judge[name]) for name in workload.columns)


def _equal_columns(left: pl.Series, right: pl.Series) -> bool:
    if left.dtype != pl.Float64 or right.dtype != pl.Float64:
        return left.equals(right, check_dtypes=True)
    scale = pl.select(pl.max_horizontal(left.abs(), right.abs(), pl.lit(1.0))).to_series()
    return bool(((left - right).abs() <= FLOAT_TOLERANCE * scale).all())


def _difference(engine: str, results: pl.DataFrame, judge: pl.DataFrame, workload: Workload) -> str:
    """The first rows that are on one side only."""
    on = list(workload.columns)
    extra = results.join(judge, on=on, how="anti", nulls_equal=True)
    missing = judge.join(results, on=on, how="anti", nulls_equal=True)
    duplicates = results.height - results.select("window_start", *workload.keys).n_unique()
    with pl.Config(tbl_rows=ROWS_SHOWN, tbl_hide_dataframe_shape=True):
        return (
            f"{engine}: {results.height:,} rows where {judge.height:,} are right; {duplicates:,} repeat a key\n"
            f"{extra.height:,} wrong rows, such as\n{extra.head(ROWS_SHOWN)}\n"
            f"{missing.height:,} missing rows, such as\n{missing.head(ROWS_SHOWN)}"
        )
