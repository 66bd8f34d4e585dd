"""The engines of the matrix agree in its cells, and what it says of them is right."""

from __future__ import annotations

import pytest

from benchmarks.matrix.cells import AGGREGATES, CELLS, KEYS, WINDOWS, MatrixCell, generated
from benchmarks.matrix.run import MeasuredCell, measure, shown, summary

TUPLES = 3_000
SAMPLE = CELLS[::13]


def check(cell: MatrixCell) -> None:
    found = measure(cell, generated(TUPLES, 5), runs=1)
    assert found.rows > 0
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_cells_are_all_there_are() -> None:
    assert len(CELLS) == len(set(CELLS)) == len(AGGREGATES) * len(KEYS) * len(WINDOWS) == 160


@pytest.mark.parametrize("cell", SAMPLE, ids=lambda cell: cell.name)
def test_engines_agree(cell: MatrixCell) -> None:
    check(cell)


@pytest.mark.long
@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell not in SAMPLE], ids=lambda cell: cell.name)
def test_engines_agree_in_the_other_cells(cell: MatrixCell) -> None:
    check(cell)


def test_the_worst_cells_are_shown_first() -> None:
    fast = MeasuredCell(
        "fast", 1, 1, {"tidegate-local": 1, "duckdb": 4, "polars": 8}, {"tidegate-local": 1, "duckdb": 2, "polars": 2}
    )
    slow = MeasuredCell(
        "slow", 1, 1, {"tidegate-local": 2, "duckdb": 4, "polars": 1}, {"tidegate-local": 1, "duckdb": 2, "polars": 2}
    )
    lines = shown([fast, slow]).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["slow", "fast"]
    assert summary([fast.ratio, slow.ratio]) == {"geometric mean": 1.414, "worst": 0.5, "share below 1": 0.5}
