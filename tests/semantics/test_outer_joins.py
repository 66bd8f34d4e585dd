"""Joins that give tuples without partner, with answers worked out by hand; every runtime must give them."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, at
from tidegate.testing import difference

pytestmark = pytest.mark.dedicated

ORDERS = pa.schema([("ts", TIME), ("k", pa.string()), ("n", pa.int64())])
PAYMENTS = pa.schema([("ts", TIME), ("k", pa.string()), ("m", pa.int64())])


def rows(schema: pa.Schema, *tuples: tuple[Any, ...]) -> pa.Table:
    """A table of tuples whose times are written as times of day; any of them may be null."""
    columns = []
    for field, values in zip(schema, zip(*tuples, strict=True) if tuples else ((),) * len(schema), strict=True):
        if field.type == TIME:
            values = tuple(None if value is None else at(value) for value in values)
        columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)


def expect(query: tg.Stream, made: pa.Table, *tuples: tuple[Any, ...]) -> None:
    told = difference(made, rows(query.schema, *tuples))
    assert told is None, told


def streams(disorder: str = "0 seconds") -> tuple[tg.Stream, tg.Stream]:
    return (
        tg.stream(ORDERS, time="ts", name="orders", disorder=disorder),
        tg.stream(PAYMENTS, time="ts", name="payments", disorder=disorder),
    )


# Orders and payments that are at most ten minutes apart:
#
#   10:00   10:05   10:10   10:15   10:20   …   10:50
#   1 a     2 b                     3 a               orders; order 4 has no key, at 10:00
#            10 a 11 a                          12 c  payments
BATCHES = [
    {
        "orders": rows(ORDERS, ("10:00", "a", 1), ("10:00", None, 4), ("10:05", "b", 2)),
        "payments": rows(PAYMENTS, ("10:07", "a", 10)),
    },
    {"orders": rows(ORDERS, ("10:20", "a", 3)), "payments": rows(PAYMENTS, ("10:08", "a", 11), ("10:50", "c", 12))},
]
PAIRS = [
    ("10:07", "10:00", "a", 1, "10:07", 10),
    ("10:08", "10:00", "a", 1, "10:08", 11),
]
LEFT_ALONE = [
    ("10:10", "10:00", None, 4, None, None),
    ("10:15", "10:05", "b", 2, None, None),
    ("10:30", "10:20", "a", 3, None, None),
]
RIGHT_ALONE = [("11:00", None, "c", None, "10:50", 12)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", PAIRS),
        ("left", PAIRS + LEFT_ALONE),
        ("right", PAIRS + RIGHT_ALONE),
        ("full", PAIRS + LEFT_ALONE + RIGHT_ALONE),
        ("semi", [("10:07", "10:00", "a", 1)]),
        ("anti", [row[:4] for row in LEFT_ALONE]),
    ],
)
def test_within_a_distance(quick_runtime: Runtime, how: Any, expected: list[tuple[Any, ...]]) -> None:
    orders, payments = streams()
    query = orders.join(payments, on="k", within="10 minutes", how=how)
    result = quick_runtime.run(query, BATCHES)
    expect(query, result.rows, *expected)
    assert result.late == 0


def test_within_a_distance_on_every_runtime(runtime: Runtime) -> None:
    orders, payments = streams()
    query = orders.join(payments, on="k", within="10 minutes", how="full")
    expect(query, runtime.run(query, BATCHES).rows, *PAIRS, *LEFT_ALONE, *RIGHT_ALONE)


# Windows of ten minutes every five. Order 1 meets 10 in one of its two windows, 2 meets none:
#
#   09:55      10:00      10:05      10:10      10:15
#                1 c (10:03)  2 b (10:06)              orders
#                           10 c (10:07)               payments
IN_WINDOWS = [
    {"orders": rows(ORDERS, ("10:03", "c", 1))},
    {"orders": rows(ORDERS, ("10:06", "b", 2)), "payments": rows(PAYMENTS, ("10:07", "c", 10))},
]
WINDOW_PAIRS = [("10:09:59.999999", "10:00", "10:10", "10:03", "c", 1, "10:07", 10)]
WINDOW_LEFT = [
    ("10:04:59.999999", "09:55", "10:05", "10:03", "c", 1, None, None),
    ("10:09:59.999999", "10:00", "10:10", "10:06", "b", 2, None, None),
    ("10:14:59.999999", "10:05", "10:15", "10:06", "b", 2, None, None),
]
WINDOW_RIGHT = [("10:14:59.999999", "10:05", "10:15", None, "c", None, "10:07", 10)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("left", WINDOW_PAIRS + WINDOW_LEFT),
        ("right", WINDOW_PAIRS + WINDOW_RIGHT),
        ("full", WINDOW_PAIRS + WINDOW_LEFT + WINDOW_RIGHT),
        ("semi", [row[:6] for row in WINDOW_PAIRS]),
        ("anti", [row[:6] for row in WINDOW_LEFT]),
    ],
)
def test_over_windows(quick_runtime: Runtime, how: Any, expected: list[tuple[Any, ...]]) -> None:
    orders, payments = streams()
    query = orders.join(payments, on="k", window="10 minutes", every="5 minutes", how=how)
    expect(query, quick_runtime.run(query, IN_WINDOWS).rows, *expected)


def test_over_windows_on_every_runtime(runtime: Runtime) -> None:
    orders, payments = streams()
    query = orders.join(payments, on="k", window="10 minutes", every="5 minutes", how="full")
    expect(query, runtime.run(query, IN_WINDOWS).rows, *WINDOW_PAIRS, *WINDOW_LEFT, *WINDOW_RIGHT)


def test_a_late_tuple_gives_no_row(quick_runtime: Runtime) -> None:
    orders, payments = streams("1 minute")
    query = orders.join(payments, on="k", within="1 hour", how="left").select("ts", "k", "n", "m")
    result = quick_runtime.run(
        query,
        [
            {"orders": rows(ORDERS, ("10:05", "a", 1)), "payments": rows(PAYMENTS, ("10:10", "a", 2))},
            {"orders": rows(ORDERS, ("10:03", "b", 3), ("10:04", "b", 4))},
        ],
    )
    expect(query, result.rows, ("10:10", "a", 1, 2), ("11:04", "b", 4, None))
    assert result.late == 1


def test_a_semi_join_gives_a_tuple_once_at_its_earliest_pair(quick_runtime: Runtime) -> None:
    """Payment 11 comes after 10, but is earlier; 13 lies before its order, so the pair has the order's time."""
    orders, payments = streams("5 minutes")
    query = orders.join(payments, on="k", within="10 minutes", how="semi").select("ts", "ts_left", "n")
    result = quick_runtime.run(
        query,
        [
            {"orders": rows(ORDERS, ("10:00", "a", 1)), "payments": rows(PAYMENTS, ("10:04", "a", 10))},
            {"payments": rows(PAYMENTS, ("10:02", "a", 11), ("10:07", "a", 12), ("10:03", "b", 13))},
            {"orders": rows(ORDERS, ("10:10", "b", 2)), "payments": rows(PAYMENTS, ("10:20", "b", 14))},
        ],
    )
    expect(query, result.rows, ("10:02", "10:00", 1), ("10:10", "10:10", 2))


def test_equal_tuples_stay_alone_as_often_as_they_occur(quick_runtime: Runtime) -> None:
    orders, payments = streams()
    query = orders.join(payments, on="k", within="1 minute", how="anti")
    given = rows(ORDERS, ("10:00", "a", 1), ("10:00", "a", 1), ("10:00", None, 2), ("10:00", None, 2))
    result = quick_runtime.run(query, [{"orders": given}, {"orders": given}])
    expect(query, result.rows, *[("10:01", "10:00", "a", 1), ("10:01", "10:00", None, 2)] * 4)


@pytest.mark.parametrize("near", [{"within": "1 minute"}, {"window": "1 minute"}])
def test_any_predicate_without_keys(quick_runtime: Runtime, near: dict[str, str]) -> None:
    """By sorting, by trying all pairs, by whole columns; one stream, so that 3 has nothing above it and 1 nothing below."""
    orders, _ = streams()
    given = [
        {"orders": rows(ORDERS, ("10:00", "a", 1), ("10:00:30", "b", 2))},
        {"orders": rows(ORDERS, ("10:00:59", "c", 3))},
    ]
    for where, alone in [
        (lambda l, r: (l.n - r.n < 0) & (l.n - r.n >= -1), ("c", 3)),
        (lambda l, r: l.n * l.n < r.n * r.n, ("c", 3)),
        (nw.col("k").str.to_uppercase() > nw.col("k_right").str.to_uppercase(), ("a", 1)),
    ]:
        query = orders.join(orders, where=where, how="anti", **near).select("ts", "k", "n")
        time = {"a": "10:01", "c": "10:01:59"}[alone[0]] if "within" in near else "10:00:59.999999"
        expect(query, quick_runtime.run(query, given).rows, (time, *alone))
        query = orders.join(orders, where=where, how="full", **near).select("ts", "n", "n_right")
        result = quick_runtime.run(query, given).rows
        lonely = [(n, m) for n, m in zip(*(result.column(name).to_pylist() for name in ("n", "n_right")), strict=True)]
        assert sorted(lonely.count(pair) for pair in lonely if None in pair) == [1, 1]
        assert (alone[1], None) in lonely


def test_a_key_of_either_side_is_there_in_the_wider_type(quick_runtime: Runtime) -> None:
    small = pa.schema([("ts", TIME), ("k", pa.int32())])
    large = pa.schema([("at", TIME), ("k", pa.int64())])
    left, right = tg.stream(small, time="ts", name="left"), tg.stream(large, time="at", name="right")
    query = left.join(right, on="k", within="1 minute", how="full")
    assert query.schema.field("k").type == pa.int64()
    given = [
        {"left": rows(small, ("10:00", 1), ("10:00", 2)), "right": rows(large, ("10:00", 1), ("10:00", 2**40))},
    ]
    expect(
        query,
        quick_runtime.run(query, given).rows,
        ("10:00", "10:00", 1, "10:00"),
        ("10:01", "10:00", 2, None),
        ("10:01", None, 2**40, "10:00"),
    )


def test_steps_follow_an_outer_join_and_come_before_it(quick_runtime: Runtime) -> None:
    """Orders per key and minute, beside payments, and what stayed unpaid counted by the hour."""
    orders, payments = streams()
    counts = orders.key_by("k").window("1 minute").aggregate(orders=tg.count())
    unpaid = counts.join(payments, on="k", within="10 minutes", how="left").filter(nw.col("m").is_null())
    query = unpaid.key_by("k").window("1 hour").aggregate(unpaid=tg.sum("orders"))
    result = quick_runtime.run(
        query,
        [
            {"orders": rows(ORDERS, ("10:00", "a", 1), ("10:00", "a", 2), ("10:01", "b", 3))},
            {"orders": rows(ORDERS, ("10:30", "a", 4)), "payments": rows(PAYMENTS, ("10:35", "a", 1))},
            {"orders": rows(ORDERS, ("10:49:30", "b", 5)), "payments": rows(PAYMENTS, ("10:50", "c", 1))},
        ],
    )
    expect(
        query,
        result.rows,
        ("10:59:59.999999", "a", "10:00", "11:00", 2),
        ("10:59:59.999999", "b", "10:00", "11:00", 2),
    )
