"""The input of hot-key has a hot key, and its comparisons are counted as plain loops count them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.hot_key import HOT_SHARE, drawn, near_pairs


@pytest.mark.parametrize("share", [0.0, HOT_SHARE])
def test_pairs_are_those_of_plain_loops(share: float) -> None:
    left, right = drawn(300, share, 1), drawn(300, share, 2)

    def rows(table: pa.Table) -> list[tuple[int, int]]:
        return list(zip(table["ts"].cast(pa.int64()).to_pylist(), table["k"].to_pylist(), strict=True))

    pairs = sum(
        key == other and abs(time - late) <= 5_000_000 for time, key in rows(left) for late, other in rows(right)
    )
    assert near_pairs(left, right, 5.0) == pairs


def test_most_tuples_have_one_key() -> None:
    keys = drawn(10_000, HOT_SHARE, 1)["k"].to_pylist()
    assert 0.79 < keys.count(0) / len(keys) < 0.82
    assert drawn(10_000, 0.0, 1)["k"].to_pylist().count(0) < 50
