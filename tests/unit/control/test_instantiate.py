"""First instances from a sample."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.instantiate import Sampled, instances_for, instantiate, share_out
from tidegate.errors import UserError

LOADS = st.lists(st.floats(0, 1e3), min_size=1, max_size=4)


@given(LOADS, st.integers(0, 6))
def test_no_split_makes_the_busiest_idler(loads: list[float], more: int) -> None:
    available = len(loads) + more
    shares = share_out(loads, available)
    assert sum(shares) == available
    assert min(shares) >= 1
    splits = (s for s in product(range(1, available + 1), repeat=len(loads)) if sum(s) == available)
    best = min(max(load / n for load, n in zip(loads, split, strict=True)) for split in splits)
    assert max(load / n for load, n in zip(loads, shares, strict=True)) == pytest.approx(best)


def test_instances_go_by_cost_and_by_tuples() -> None:
    # The filter lets a tenth through; a tuple costs ten times as much behind it, so both have the same work.
    samples = (Sampled("filter", 10_000, 1.0), Sampled("aggregate", 1_000, 1.0))
    assert samples[0].seconds_per_tuple == pytest.approx(1e-4)
    assert samples[1].seconds_per_tuple == pytest.approx(1e-3)
    assert instantiate(samples, 8) == {"filter": 4, "aggregate": 4}


def test_a_subquery_without_work_has_one_instance() -> None:
    assert instantiate((Sampled("a", 100, 3.0), Sampled("b", 0, 0.0)), 5) == {"a": 4, "b": 1}
    assert Sampled("b", 0, 0.0).seconds_per_tuple is None


def test_instances_for_a_rate_keep_up_and_one_less_would_not() -> None:
    samples = (Sampled("a", 1_000, 2.0), Sampled("b", 500, 0.1))
    # 3,000/s of which each costs 2 ms: six busy instances; 0.1 ms a source tuple behind it: 0.3, so one
    assert instances_for(samples, 1_000, 3_000.0) == {"a": 6, "b": 1}
    assert instances_for(samples, 1_000, 3_001.0)["a"] == 7


def test_fewer_instances_than_subqueries_are_refused() -> None:
    with pytest.raises(UserError, match="1 are available for 2 subqueries"):
        instantiate((Sampled("a", 1, 1.0), Sampled("b", 1, 1.0)), 1)


def test_a_sample_must_have_tuples() -> None:
    with pytest.raises(UserError, match="source tuples"):
        instances_for((Sampled("a", 1, 1.0),), 0, 10.0)
