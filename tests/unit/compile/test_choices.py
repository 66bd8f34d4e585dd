"""The passes that choose slices and combining, on whole plans."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Combine, Slices
from tidegate.query import aggregates as tg
from tidegate.query.windows import Window


@pytest.mark.parametrize(
    ("size", "every", "shown"),
    [
        (60, 60, "1 per advance, 1 per window; a tuple updates 1 slice"),
        (120, 60, "1 per advance, 2 per window; a tuple updates 1 slice instead of up to 2 windows"),
        (5, 2, "2 per advance, 5 per window; a tuple updates 1 slice instead of up to 3 windows"),
        (7, 5, "2 per advance, 3 per window; a tuple updates 1 slice instead of up to 2 windows"),
    ],
)
def test_slices_follow_from_the_window(size, every, shown, numbers) -> None:
    # size 7 every 5    |--2--|---3---|--2--|---3---|
    #        windows    [0          7)
    #                         [5           12)
    windows = numbers.key_by("b").window(f"{size} seconds", every=f"{every} seconds")
    (subquery,) = compile_query(windows.aggregate(n=tg.count()).node).subqueries
    assert subquery.slices == Slices(merged_early=size in (5, 7), why=shown)


def test_no_tuple_lies_in_more_windows_than_said() -> None:
    for size, every in ((5, 2), (7, 5), (9, 3), (4, 4), (10, 7)):
        window = Window(size, every)
        assert max(len(list(window.covering(time))) for time in range(50)) == window.windows_per_tuple


def test_windows_of_many_slices_merge_them_early_unless_results_are_refined(numbers) -> None:
    def merged(**options) -> bool:
        windows = numbers.key_by("b").window("10 seconds", every="1 second", **options)
        (subquery,) = compile_query(windows.aggregate(n=tg.count()).node, "local").subqueries
        return subquery.slices.merged_early

    assert merged()
    assert not merged(lateness="5 seconds")


def test_the_reference_shares_and_combines_nothing(heavy_customers) -> None:
    (subquery,) = compile_query(heavy_customers.node, "reference").subqueries
    assert subquery.slices is None
    assert subquery.combine == Combine(before_exchange=False, why="one process: nothing is exchanged")


SPREAD = tg.monoid(
    "a",
    state={"low": pa.int64()},
    lift=lambda a: {"low": a},
    merge=lambda left, right: {"low": pc.min_element_wise(left["low"], right["low"])},
    finish=lambda low: low,
    returns=pa.int64(),
    name="lowest",
)
ONE_STATE = "shrinks to one state per key and slice"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"n": tg.count(), "s": tg.sum("a"), "m": tg.mean("a")}, f"count(), sum(a), mean(a): {ONE_STATE}"),
        ({"low": tg.min("a"), "high": tg.max("a"), "own": SPREAD}, f"min(a), max(a), lowest(a): {ONE_STATE}"),
        ({"n": tg.count(), "again": tg.count()}, f"count(): {ONE_STATE}"),
        ({"d": tg.distinct("a")}, "distinct(a): shrinks to the distinct values of a key and slice"),
        ({"f": tg.first("a"), "l": tg.last("a")}, "first(a), last(a): shrinks to 1 tuple per key and slice"),
        (
            {"t": tg.top_k("a", 3, take="b")},
            "top_k(a, 3, take='b'): shrinks to at most 3 tuples per key and slice",
        ),
        (
            {"n": tg.count(), "all": tg.collect("a")},
            f"count(): {ONE_STATE}; collect(a): only packs, every tuple is shipped",
        ),
    ],
)
def test_combine_says_what_shrinks_and_what_only_packs(made, why, numbers) -> None:
    (subquery,) = compile_query(numbers.key_by("b").window("1 minute").aggregate(**made).node).subqueries
    assert subquery.combine == Combine(before_exchange=True, why=why)
