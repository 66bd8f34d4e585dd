"""Whole numbers in expressions do not wrap: one that leaves its type stops the run, and its step is named."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import DataError
from tidegate.query.overflow import check_overflow
from tidegate.testing import answer

BIG = 2**62
ROWS = pa.table(
    {
        "n": [3, BIG, None],
        "m": pa.array([1, 2**31 - 1, 5], pa.int32()),
        "x": [0.5, 1e300, None],
        "least": [-(2**63), 0, 1],
    }
)
N, M, X, LEAST = map(nw.col, ROWS.column_names)


@pytest.mark.parametrize(
    "beyond",
    [
        N * 2,
        2 * N,
        N + BIG,
        BIG + N,
        -2 - N - N,
        N**2,
        2 ** (N + 1 - BIG + 70),
        -LEAST,
        LEAST.abs(),
        M * M,
        M + M,
        nw.sum_horizontal("n", "n"),
        (N * 2) > 5,
        nw.col("m", "n") * 4,
        (N + 1).fill_null(7) * 3,
        nw.coalesce(N * 2, M),
        nw.when(N > 5).then(N * 2).otherwise(0),
        nw.when(N < 5).then(0).otherwise(N * 2),
        nw.lit(4) * N,
    ],
    ids=repr,
)
def test_what_leaves_its_type_is_an_error(beyond: nw.Expr) -> None:
    with pytest.raises(DataError, match="beyond the whole numbers of its type"):
        check_overflow(ROWS, [beyond])


@pytest.mark.parametrize(
    "fits",
    [
        N + 1,
        N - BIG - BIG,
        N * 1,
        X * X,
        M * 4,
        M.cast(nw.Int64) * M,
        N // 2,
        N % 7,
        N / 3,
        LEAST + 1,
        nw.when(N < 5).then(N * 2).otherwise(0),
        nw.when(N > 5).then(0).otherwise(N * 2),
        nw.sum_horizontal("n", "m"),
        N > 5,
    ],
    ids=repr,
)
def test_what_fits_is_computed(fits: nw.Expr) -> None:
    check_overflow(ROWS, [fits])


def test_the_values_are_those_of_the_first_such_row() -> None:
    rows = pa.table({"a": [*range(1000), BIG, BIG + 1], "b": [2] * 1000 + [3, 4]})
    with pytest.raises(
        DataError, match=re.escape(f"a * b is beyond the whole numbers of its type, for example for {BIG} and 3")
    ):
        check_overflow(rows, [nw.col("a") * nw.col("b")])


def calls() -> Any:
    times = pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC"))
    return tg.stream(ROWS.append_column("ts", times), time="ts", name="calls")


@pytest.mark.parametrize(
    "run", [answer, lambda query: tg.run(query, on="local", to=lambda table: None)], ids=["reference", "local"]
)
@pytest.mark.parametrize(
    "query",
    [
        calls().with_columns(twice=N * 2, name="doubled"),
        calls().select("ts", twice=N * 2, name="doubled"),
        calls().filter(N * 2 > 5, name="doubled"),
    ],
    ids=["with_columns", "select", "filter"],
)
def test_a_run_stops_and_names_the_step(run: Any, query: Any) -> None:
    with pytest.raises(DataError, match=r"step 'doubled'.*n \* 2 is beyond"):
        run(query)


def test_what_arrow_cannot_compute_names_the_step() -> None:
    text = tg.stream(pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "t": ["x"]}), time="ts")
    with pytest.raises(DataError, match=r"step '.+': n = t\.cast\(.*\) cannot be computed for every tuple: .*'x'"):
        answer(text.with_columns(n=nw.col("t").cast(nw.Int64)))
