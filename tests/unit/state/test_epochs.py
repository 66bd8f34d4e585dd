from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tidegate.errors import UserError
from tidegate.state.epochs import (
    ALL,
    SHARDS_OF_A_STEP,
    CellEpoch,
    checked_mapping,
    even_mapping,
    first_mapping,
    members,
    shard_set,
)
from tidegate.state.pair_grid import PairGrid


def moved(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    return sum(one != other for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 8, 100, 1024])
def test_every_cell_begins_with_its_share(cells: int) -> None:
    counts = Counter(first_mapping(cells))
    assert set(counts) == set(range(cells))
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 5), (5, 4), (8, 3), (3, 8), (7, 7), (1, 1024)])
def test_no_mapping_that_is_even_moves_fewer_shards(before: int, after: int) -> None:
    mapping = first_mapping(before)
    found = even_mapping(mapping, after)
    counts = Counter(found)
    assert set(counts) == set(range(after)) and max(counts.values()) - min(counts.values()) <= 1
    # What a cell has beyond the larger share, or at all if it goes, must move; and what a new cell needs must come.
    had = Counter(mapping)
    least, larger = divmod(SHARDS_OF_A_STEP, after)
    shares = sorted(([least + 1] * larger + [least] * (after - larger)), reverse=True)
    kept = sum(
        min(count, share)
        for count, share in zip(sorted((had[c] for c in range(after)), reverse=True), shares, strict=True)
    )
    assert moved(mapping, found) == SHARDS_OF_A_STEP - kept


def test_a_mapping_that_is_uneven_becomes_even() -> None:
    mapping = tuple(0 if shard < 1000 else 3 for shard in range(SHARDS_OF_A_STEP))
    found = even_mapping(mapping, 4)
    assert sorted(Counter(found).items()) == [(0, 256), (1, 256), (2, 256), (3, 256)]
    assert all(after == 3 for before, after in zip(mapping, found, strict=True) if before == 3)


@pytest.mark.parametrize("cells", [1, 2, 3, 4, 6, 12, 64])
def test_cells_of_a_grid_have_whole_stretches_of_rows_and_columns(cells: int) -> None:
    epoch = CellEpoch(0, first_mapping(cells, grid=True))
    assert epoch.cells == tuple(range(cells))
    for cell in epoch.cells:
        owned = epoch.owned(cell)
        assert PairGrid().held(0, owned) & PairGrid().held(1, owned) == owned
    assert even_mapping(first_mapping(5), cells, grid=True) == epoch.mapping


def test_sets_of_shards() -> None:
    chosen = np.zeros(SHARDS_OF_A_STEP, np.bool_)
    chosen[[0, 33, 1023]] = True
    assert shard_set(chosen) == 1 | 1 << 33 | 1 << 1023
    assert (members(shard_set(chosen)) == chosen).all()


def test_an_epoch_survives_json() -> None:
    epoch = CellEpoch(7, even_mapping(first_mapping(3), 9), "adopt")
    assert CellEpoch.decode(epoch.encode()) == epoch
    assert sum(epoch.owned(cell) for cell in range(9)) == ALL


def test_a_mapping_names_every_shard_and_cells_that_are_there() -> None:
    assert checked_mapping([0, 1] * 512, 2) == (0, 1) * 512
    with pytest.raises(UserError, match="a cell for each of the 1024 shards of a step; 3 entries came"):
        checked_mapping([0, 1, 1], 2)
    with pytest.raises(UserError, match="names cells from 0 to 1, the step's last; cell 2 came"):
        checked_mapping([0, 2] * 512, 2)
