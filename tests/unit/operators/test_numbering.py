"""Numbers for values: the same as a dict would give, whatever the values, however many, and however they are added."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators import numbering
from tidegate.operators.columns import Array
from tidegate.operators.numbering import KeyGroups, KeyNumbering, Numbering, TextNumbering

DRAW = np.random.default_rng(5)
NUMBERS: dict[str, Array] = {
    "dense": DRAW.integers(0, 3_000, 9_000),
    "all different": DRAW.permutation(20_000),
    "far apart": DRAW.integers(0, 500, 4_000) << 40,
    "any bits": DRAW.integers(-(2**63), 2**63 - 1, 5_000),
    "the ends": np.array([2**63 - 1, -(2**63), 0, -1, 2**63 - 1]),
    "none": np.empty(0, np.int64),
}


def numbered(values: list[Any], known: dict[Any, int]) -> list[int]:
    """What a dict gives."""
    return [known.setdefault(value, len(known)) for value in values]


@pytest.mark.parametrize("kind", NUMBERS)
def test_whole_numbers_are_numbered_as_they_first_occur(kind: str) -> None:
    values, found, known = NUMBERS[kind], Numbering(), {}  # type: ignore[var-annotated]  # of any values
    for part in np.array_split(values, 7):
        assert found.add(part).tolist() == numbered(part.tolist(), known)
    assert found.values.tolist() == list(known) and found.size == len(known)
    absent = np.array([each for each in (17, -3, 1 << 50) if each not in known])
    assert found.find(values).tolist() == [known[value] for value in values.tolist()]
    assert set(found.find(absent).tolist()) <= {-1}


@pytest.mark.parametrize("hashing", ["as it is", "all alike"])
def test_texts_are_numbered_by_what_they_are(hashing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if hashing == "all alike":
        monkeypatch.setattr(numbering, "hashes", lambda texts: np.zeros(len(texts), np.uint64))
    texts = ["", "a", "b", "aa", "ä", "a\0", "a" * 5_000, *(f"name {number % 700}" for number in range(1_500))]
    column, found, known = pa.array(texts), TextNumbering(), {}  # type: ignore[var-annotated]  # of any values
    for start in range(0, len(texts), 100):
        part = column.slice(start, 100)
        assert found.add(part).tolist() == numbered(part.to_pylist(), known)
    assert found.find(column).tolist() == [known[text] for text in texts]
    assert found.find(pa.array(["name", "aaa", "name 1"])).tolist() == [-1, -1, known["name 1"]]
    assert found.size == len(known)
    some = np.array([known["name 3"], known[""], known["ä"]])
    assert found.kept(some).find(pa.array(["ä", "name 3", "a", ""])).tolist() == [2, 0, -1, 1]
    assert found.kept(some[:0]).find(column[:2]).tolist() == [-1, -1]


COLUMNS: dict[str, list[pa.Array]] = {
    "text and number": [pa.array(["a", "a", "b", "a"]), pa.array([1, 2, 1, 1], pa.int16())],
    "decimal": [pa.array([Decimal("1.5"), Decimal("-1.5"), Decimal("1e20"), Decimal("1.5")], pa.decimal128(38, 2))],
    "float": [pa.array([math.nan, 0.0, 2.5, -math.nan])],
    "three": [pa.array([1, 1, 2, 1]), pa.array([True, True, True, True]), pa.array([b"x", b"y", b"x", b"x"])],
    "date": [pa.array([3, 4, -5, 3], pa.date32())],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_keys_are_numbered_by_all_of_their_columns(kind: str) -> None:
    columns = COLUMNS[kind]
    found = KeyNumbering.of([column.type for column in columns])
    assert found.find(columns).tolist() == [-1] * 4
    assert found.add(columns).tolist() == [0, 1, 2, 0] and found.size == 3
    assert found.find([column.take(pa.array([2, 1])) for column in columns]).tolist() == [2, 1]


def test_both_zeros_are_one_key() -> None:
    found = KeyNumbering.of([pa.float32()])
    assert found.add([pa.array([0.0, -0.0], pa.float32())]).tolist() == [0, 0]


def test_what_no_key_combines_has_no_number() -> None:
    found = KeyNumbering.of([pa.int64(), pa.string()])
    found.add([pa.array([1, 2]), pa.array(["a", "b"])])
    assert found.find([pa.array([1, 2, 2, 3]), pa.array(["b", "a", "b", "b"])]).tolist() == [-1, -1, 1, -1]


SPREADS: dict[str, Callable[[], Array]] = {
    "many keys": lambda: DRAW.integers(0, 400, 500),
    "one key": lambda: np.zeros(500, np.int64),
    "a frequent key": lambda: np.where(DRAW.random(500) < 0.5, 7, DRAW.integers(0, 90, 500)),
}


@pytest.mark.parametrize("kind", SPREADS)
def test_groups_give_the_rows_of_a_key_that_are_near_in_time(kind: str) -> None:
    keys, times = SPREADS[kind](), np.sort(DRAW.integers(0, 200, 500))
    groups, order = KeyGroups.of(keys)
    held, when = keys[order], times[order]
    wanted, lows = DRAW.integers(-5, 410, 300), DRAW.integers(-20, 220, 300)
    highs = lows + DRAW.integers(-1, 30, 300)
    expected = {
        at: np.flatnonzero((held == key) & (low <= when) & (when <= high)).tolist()
        for at, (key, low, high) in enumerate(zip(wanted, lows, highs, strict=True))
    }
    which, first, stop = groups.near(wanted, lows, highs, when)
    rows = zip(which.tolist(), first.tolist(), stop.tolist(), strict=True)
    assert {at: list(range(*ends)) for at, *ends in rows} == {at: each for at, each in expected.items() if each}
    assert groups.largest == np.bincount(keys).max()
