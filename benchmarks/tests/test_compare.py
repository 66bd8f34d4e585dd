"""Comparing results: what counts as the same, and what the message says when it is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from benchmarks.compare import Agreement, Mismatch, compare, digest, sort
from benchmarks.workloads import KEYED

START = datetime(2024, 1, 1, tzinfo=UTC)


def results(windows: int, mean: float = 0.5) -> pl.DataFrame:
    """Two keys in each of `windows` windows, every 10 s."""
    rows = [(START + timedelta(seconds=10 * window), key, 3, mean) for window in range(windows) for key in (1, 2)]
    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        "window_start": pl.Datetime("us", "UTC"),
        "key": pl.Int64,
        "n": pl.Int64,
        "mean": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def due_by(windows: int) -> datetime:
    """The end of the last of `windows` windows of 60 s."""
    return START + timedelta(seconds=10 * (windows - 1) + 60)


def test_all_windows_agree() -> None:
    shuffled = sort(results(4).sample(fraction=1.0, shuffle=True, seed=1), KEYED)
    assert compare("engine", shuffled, results(4), KEYED, due_by=None) == Agreement(windows=4, rows=8)


def test_windows_that_were_not_due_may_be_missing() -> None:
    assert compare("engine", results(3), results(5), KEYED, due_by(2)) == Agreement(windows=3, rows=6)


def test_a_window_that_was_due_may_not_be_missing() -> None:
    with pytest.raises(Mismatch, match="was due"):
        compare("engine", results(2), results(5), KEYED, due_by(3))


def test_no_window_due_is_an_error_of_the_input() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        compare("engine", results(1), results(5), KEYED, START)


def test_a_wrong_value_is_shown() -> None:
    wrong = results(2).with_columns(n=pl.Series([3, 3, 4, 3]))
    with pytest.raises(Mismatch, match="1 wrong rows"):
        compare("engine", wrong, results(2), KEYED, due_by=None)


def test_a_missing_row_is_shown() -> None:
    with pytest.raises(Mismatch, match="1 missing rows"):
        compare("engine", results(2).head(3), results(2), KEYED, due_by=None)


def test_floats_agree_to_the_tolerance() -> None:
    compare("engine", results(2, mean=0.5 + 1e-12), results(2), KEYED, due_by=None)
    with pytest.raises(Mismatch):
        compare("engine", results(2, mean=0.5 + 1e-6), results(2), KEYED, due_by=None)
    with pytest.raises(Mismatch):
        compare("engine", results(2, mean=float("nan")), results(2), KEYED, due_by=None)


def test_digest_ignores_order_only() -> None:
    assert digest(results(3)) == digest(results(3).reverse())
    assert digest(results(3)) != digest(results(3, mean=0.25))
