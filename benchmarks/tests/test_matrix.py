"""The engines of the matrix agree in its cells, and what it says of them is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.matrix.cells import AGGREGATES, CELLS, KEYS, WINDOWS, MatrixCell
from benchmarks.matrix.engines import PEERS
from benchmarks.matrix.figures import MeasuredCell, shown, summary
from benchmarks.matrix.query_cells import QUERY_CELLS, QueryCell
from benchmarks.matrix.run import engines_of, measure, run
from benchmarks.options import Options

TUPLES = 6_000
ALL = (*CELLS, *QUERY_CELLS)
SAMPLE = (*CELLS[::13], *QUERY_CELLS[::5])


def check(cell: MatrixCell | QueryCell) -> None:
    found = measure(cell.name, cell.tuples(TUPLES), engines_of(cell, TUPLES, 5), runs=1)
    assert found.rows > 0
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_cells_are_all_there_are() -> None:
    assert len(CELLS) == len(set(CELLS)) == len(AGGREGATES) * len(KEYS) * len(WINDOWS) == 160
    assert len({cell.name for cell in ALL}) == len(ALL)


def test_a_pattern_chooses_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Options(tuples=2_000, runs=1, cells="as-of*string keys", out=tmp_path)) == 0
    shown_cells = [line for line in capsys.readouterr().out.splitlines() if line.startswith("as-of join")]
    assert len(shown_cells) == 2
    with pytest.raises(ValueError, match="no cell is called so"):
        run(Options(cells="nothing", out=tmp_path))


@pytest.mark.parametrize("cell", SAMPLE, ids=lambda cell: cell.name)
def test_engines_agree(cell: MatrixCell | QueryCell) -> None:
    check(cell)


@pytest.mark.long
@pytest.mark.parametrize("cell", [cell for cell in ALL if cell not in SAMPLE], ids=lambda cell: cell.name)
def test_engines_agree_in_the_other_cells(cell: MatrixCell | QueryCell) -> None:
    check(cell)


def test_the_worst_cells_are_shown_first() -> None:
    def measured(cell: str, ours: float, duckdb: float, polars: float) -> MeasuredCell:
        seconds = {"tidegate-local": ours, "duckdb": duckdb, "polars": polars}
        return MeasuredCell(cell, 1, 1, seconds, seconds, "tidegate-local")

    fast, slow = measured("fast", 1, 4, 8), measured("slow", 2, 4, 1)
    lines = shown([fast, slow], PEERS).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["slow", "fast"]
    assert summary([fast.ratio, slow.ratio]) == {"geometric mean": 1.414, "worst": 0.5, "share below 1": 0.5}
