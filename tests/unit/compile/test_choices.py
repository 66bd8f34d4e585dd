"""The passes that choose slices and combining, on whole plans."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate.compile.choose_slices import slices_of
from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Slices
from tidegate.query import aggregates as tg
from tidegate.query.windows import Window


@pytest.mark.parametrize(
    ("size", "every", "expected"),
    [
        (60, 60, Slices(per_advance=1, per_window=1, windows_per_tuple=1)),
        (120, 60, Slices(per_advance=1, per_window=2, windows_per_tuple=2)),
        (5, 2, Slices(per_advance=2, per_window=5, windows_per_tuple=3)),
        (7, 5, Slices(per_advance=2, per_window=3, windows_per_tuple=2)),
    ],
)
def test_slices_follow_from_the_window(size, every, expected) -> None:
    # size 7 every 5    |--2--|---3---|--2--|---3---|
    #        windows    [0          7)
    #                         [5           12)
    assert slices_of(Window(size, every)) == expected


def test_no_tuple_lies_in_more_windows_than_said() -> None:
    for size, every in ((5, 2), (7, 5), (9, 3), (4, 4), (10, 7)):
        window = Window(size, every)
        assert max(len(list(window.covering(time))) for time in range(50)) == slices_of(window).windows_per_tuple


def test_only_subqueries_with_windows_have_slices(heavy_customers) -> None:
    prefix, stateful = compile_query(heavy_customers.node).subqueries
    assert prefix.slices is None
    assert stateful.slices == Slices(per_advance=1, per_window=60, windows_per_tuple=60)


def test_the_reference_shares_and_combines_nothing(heavy_customers) -> None:
    _, stateful = compile_query(heavy_customers.node, "reference").subqueries
    assert (stateful.slices, stateful.combine) == (None, False)
    assert stateful.combine_why == "one process: nothing is exchanged"


def test_the_prefix_has_nothing_to_combine(heavy_customers) -> None:
    prefix, stateful = compile_query(heavy_customers.node).subqueries
    assert (prefix.combine, stateful.combine) == (None, True)


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
    assert subquery.combine is True
    assert subquery.combine_why == why
