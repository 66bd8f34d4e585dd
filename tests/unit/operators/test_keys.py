"""Slots for keys: codes that are equal where keys are, ranked when they are too sparse."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.operators.kernels import dense_ranks
from tidegate.operators.keys import distinct, key_codes


@given(st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**62 - 1))))
def test_a_rank_is_the_number_of_lesser_codes(codes: list[int]) -> None:
    ranks, distinct = dense_ranks(np.array(codes, np.int64), 62)
    assert ranks.tolist() == [sum(other < code for other in set(codes)) for code in codes]
    assert distinct == len(set(codes))


@given(st.lists(st.tuples(*[st.one_of(st.none(), st.integers(0, 10**6))] * 4), min_size=1, max_size=50))
def test_codes_are_equal_where_all_key_columns_are(keys: list[tuple[int | None, ...]]) -> None:
    columns = [pa.array(column, pa.int64()) for column in zip(*keys, strict=True)]
    codes, bound = key_codes(columns)
    assert len(set(zip(codes.tolist(), keys, strict=True))) == len(set(keys)) == len(set(codes.tolist()))
    assert all(0 <= code < bound for code in codes.tolist())


def test_many_wide_key_columns_do_not_overflow() -> None:
    rows = 70_000
    columns = [pa.array(np.roll(np.arange(rows), shift)) for shift in range(6)]  # 70,000 ** 6 is beyond 64 bits
    codes, bound = key_codes(columns)
    assert len(np.unique(codes)) == rows
    assert codes.min() >= 0 and codes.max() < bound


@given(st.lists(st.one_of(st.integers(-5, 5), st.integers(-(2**62), 2**62))))
def test_distinct_values_are_ascending_and_every_element_finds_its_own(values: list[int]) -> None:
    given_values = np.array(values, np.int64)
    seen, places = distinct(given_values)
    assert seen.tolist() == sorted(set(values))
    assert seen[places].tolist() == values if values else len(places) == 0


@given(st.lists(st.sampled_from([-(2**63), -7, 0, 1, 2, 3, 90, 2**63 - 1]), min_size=1))
def test_whole_numbers_have_codes_of_their_own_however_far_apart(keys: list[int]) -> None:
    codes, bound = key_codes([pa.array(keys, pa.int64())])
    pairs = set(zip(keys, codes.tolist(), strict=True))
    assert len(pairs) == len(set(keys)) == len(set(codes.tolist()))
    assert all(0 <= code < bound for code in codes.tolist())
