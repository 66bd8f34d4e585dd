"""Which shards' tuples a cell has of each side of a join, by the shards that it owns."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.state.epochs import ALL, NONE, SIDE
from tidegate.state.pair_grid import PairGrid

GRIDS = [PairGrid(), PairGrid((0,)), PairGrid((1,)), PairGrid((0, 1))]


def test_of_a_square_a_cell_has_whole_rows_and_columns() -> None:
    grid = PairGrid()
    assert grid.held(0, 1 << 33) == sum(1 << shard for shard in range(SIDE, 2 * SIDE))
    assert grid.held(1, 1 << 33) == sum(1 << (row * SIDE + 1) for row in range(SIDE))


@pytest.mark.parametrize("side", [0, 1])
def test_of_a_side_that_is_judged_alone_a_cell_has_its_own_and_of_the_other_all(side: int) -> None:
    grid = PairGrid((side,))
    assert grid.held(side, 1 << 33 | 1 << 7) == 1 << 33 | 1 << 7
    assert grid.held(1 - side, 1 << 33) == ALL


def test_where_both_sides_are_judged_a_cell_has_all() -> None:
    assert [PairGrid((0, 1)).held(side, 1 << 33) for side in (0, 1)] == [ALL, ALL]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("side", [0, 1])
def test_a_cell_without_shards_has_nothing_and_one_with_all_has_all(grid: PairGrid, side: int) -> None:
    assert (grid.held(side, NONE), grid.held(side, ALL)) == (NONE, ALL)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("side", [0, 1])
def test_the_first_shard_of_a_line_lies_in_it(grid: PairGrid, side: int) -> None:
    first = grid.first_shards(side)
    assert grid.line_of_shards(side)[first].tolist() == list(range(grid.lines(side)))
    assert np.isin(first, np.arange(1024)).all()
