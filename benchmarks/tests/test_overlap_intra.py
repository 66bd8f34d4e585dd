"""The queries of overlap-intra have the selectivity they are named for, and give the same however they are made."""

from __future__ import annotations

import pytest

from benchmarks import overlap_intra
from tidegate.testing import difference


@pytest.mark.parametrize("case", [*overlap_intra.synthetic_maps(600, 1)], ids=lambda case: case.name)
def test_maps_have_their_selectivity(case: overlap_intra.IntraCase) -> None:
    found = overlap_intra._measure(case, 0)
    expected = float(case.name.rsplit(" ", 1)[1])
    assert found["dedicated"][1].num_rows / 600 == pytest.approx(expected, rel=0.5)
    assert all(difference(rows, found["dedicated"][1]) is None for _, rows in found.values())


@pytest.mark.parametrize("case", [*overlap_intra.joins(900, 1)], ids=lambda case: case.name)
def test_joins_give_the_same(case: overlap_intra.IntraCase) -> None:
    found = overlap_intra._measure(case, 0)
    assert all(difference(rows, found["dedicated"][1]) is None for _, rows in found.values())
