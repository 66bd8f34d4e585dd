"""Stored tuples are tried block by block where new ones meet many of them, and every pair is found all the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.operators.joins import find_pairs
from tidegate.operators.joins.find_pairs import BLOCK, stretches

ROWS, KEYS = 6_000, 2
SECOND = 1_000_000


@pytest.mark.parametrize(
    ("met", "stored", "blocks"),
    [(BLOCK // 2, 2 * BLOCK, 1), (2 * BLOCK, 4 * BLOCK + 1, 5), (2 * BLOCK, BLOCK * BLOCK, 1)],
    ids=["fits into a cache", "many of few", "few of many"],
)
def test_blocks_are_where_they_pay(met: int, stored: int, blocks: int) -> None:
    lows = np.zeros(3, np.int64)
    starts, stops = stretches(stored, lows, lows + met)
    assert len(starts) == blocks
    assert (starts[0], stops[-1]) == (0, stored)
    assert (starts[1:] == stops[:-1]).all()


@pytest.mark.parametrize("operators", ["dedicated", "multi", "single"])
def test_a_join_of_few_keys_finds_all_pairs(operators: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    times = np.sort(draw.choice(2 * SECOND, ROWS, replace=False))
    keys, values = draw.integers(0, KEYS, ROWS), draw.integers(0, 1_000, ROWS)
    table = pa.table({"ts": pa.array(times).cast(pa.timestamp("us")), "k": pa.array(keys), "v": pa.array(values)})
    in_blocks = []

    def noted(stored: int, lows: np.ndarray, highs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts, stops = stretches(stored, lows, highs)
        in_blocks.append(len(starts) > 1)
        return starts, stops

    monkeypatch.setattr(find_pairs, "stretches", noted)
    monkeypatch.setattr("tidegate.operators.bags.pair_up.stretches", noted)
    stream = tg.stream(table, time="ts", name="tuples")
    query = stream.join(stream, on="k", window="1 second", where=lambda l, r: l.v - r.v == 500)
    found = pa.concat_tables(list(tg.start(query, operators=operators)))
    windows = times // SECOND
    expected = 0
    for window in (0, 1):
        for key in range(KEYS):
            mine = values[(windows == window) & (keys == key)]
            expected += int((mine[:, None] - mine[None, :] == 500).sum())
    assert found.num_rows == expected
    assert any(in_blocks)
