"""Joins whose answers were worked out by hand; every runtime that has joins must give them."""

from __future__ import annotations

import math
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

TRADES = pa.schema([("ts", TIME), ("id", pa.int64()), ("nd", pa.float64())])
CALLS = pa.schema([("ts", TIME), ("src", pa.string()), ("n", pa.int64())])


def pairs(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


@pytest.mark.dedicated
def test_hedges_among_trades(runtime: Runtime) -> None:
    """STRETCH §8.6: trades of opposite worth within 30 seconds; the pair has the later time."""
    trades = tg.stream(TRADES, time="ts", name="trades")
    query = trades.join(
        trades,
        within="30 seconds",
        where=lambda l, r: (l.id != r.id) & (r.nd / l.nd >= -1.05) & (r.nd / l.nd <= -0.95),
    )
    given = rows(
        TRADES, ("10:00:00", 1, 2.0), ("10:00:10", 2, -2.0), ("10:00:30", 3, -1.9), ("10:00:30.000001", 4, -2.1)
    )
    result = runtime.run(query, [{"trades": given}])
    expect(
        query,
        result.rows,
        ("10:00:10", "10:00:00", 1, 2.0, "10:00:10", 2, -2.0),
        ("10:00:10", "10:00:10", 2, -2.0, "10:00:00", 1, 2.0),
        ("10:00:30", "10:00:00", 1, 2.0, "10:00:30", 3, -1.9),
    )
    assert result.late == 0


@pytest.mark.dedicated
def test_a_tuple_meets_itself_and_both_orders_count(quick_runtime: Runtime) -> None:
    calls = tg.stream(CALLS, time="ts", name="calls")
    query = calls.join(calls, within="1 second")
    result = quick_runtime.run(query, [{"calls": rows(CALLS, ("10:00:00", "a", 1), ("10:00:01", "b", 2))}])
    assert pairs(result.rows, "n", "n_right") == [(1, 1), (1, 2), (2, 1), (2, 2)]


@pytest.mark.dedicated
def test_equal_tuples_count_as_often_as_they_occur(runtime: Runtime) -> None:
    calls = tg.stream(CALLS, time="ts", name="calls")
    query = calls.join(calls, on="src", within=0)
    same = rows(CALLS, *[("10:00:00", "a", 1)] * 3)
    result = runtime.run(query, [{"calls": same}, {"calls": same}])
    assert result.rows.num_rows == 36


@pytest.mark.dedicated
def test_null_is_equal_to_nothing_and_nan_to_itself(quick_runtime: Runtime) -> None:
    trades = tg.stream(TRADES, time="ts", name="trades")
    other = tg.stream(TRADES, time="ts", name="other")
    query = trades.join(other, on=["nd"], within="1 minute")
    left = rows(TRADES, ("10:00", 1, None), ("10:00", 2, math.nan), ("10:00", 3, -0.0), ("10:00", 4, 5.0))
    right = rows(TRADES, ("10:00", 5, None), ("10:00", 6, math.nan), ("10:00", 7, 0.0), ("10:00", 8, 6.0))
    result = quick_runtime.run(query, [{"trades": left, "other": right}])
    assert pairs(result.rows, "id", "id_right") == [(2, 6), (3, 7)]


@pytest.mark.dedicated
def test_a_comparison_with_null_is_not_true_and_neither_is_its_opposite(quick_runtime: Runtime) -> None:
    trades = tg.stream(TRADES, time="ts", name="trades")
    given = rows(TRADES, ("10:00", 1, None), ("10:00", 2, 4.0))
    for where, expected in [
        (lambda l, r: l.nd >= r.nd, [(2, 2)]),
        (lambda l, r: not l.nd >= r.nd, []),
        (lambda l, r: ~(l.nd > r.nd), [(2, 2)]),
        (lambda l, r: (l.nd > r.nd) | (l.id == 1), [(1, 1), (1, 2)]),
        (lambda l, r: l.nd > r.nd or l.id == 1, [(1, 1), (1, 2)]),
        (lambda l, r: l.nd == None, [(1, 1), (1, 2)]),  # noqa: E711 - asks for null
    ]:
        result = quick_runtime.run(trades.join(trades, within=0, where=where), [{"trades": given}])
        assert pairs(result.rows, "id", "id_right") == expected


def test_pairs_over_windows_come_once_for_each_window_they_share(quick_runtime: Runtime) -> None:
    """Windows of 10 minutes every 5.

    ::

        09:55 ---- 10:00 ---- 10:05 ---- 10:10
                     1 (10:01)  2 (10:06)          left
                        3 (10:04)     4 (10:12)    right
    """
    left, right = (tg.stream(CALLS, time="ts", name=name) for name in ("left", "right"))
    query = left.join(right, window="10 minutes", every="5 minutes").select("ts", "window_start", "n", "n_right")
    result = quick_runtime.run(
        query,
        [
            {"left": rows(CALLS, ("10:01", "a", 1)), "right": rows(CALLS, ("10:04", "a", 3))},
            {"left": rows(CALLS, ("10:06", "a", 2)), "right": rows(CALLS, ("10:12", "a", 4))},
        ],
    )
    expect(
        query,
        result.rows,
        ("10:04:59.999999", "09:55", 1, 3),
        ("10:09:59.999999", "10:00", 1, 3),
        ("10:09:59.999999", "10:00", 2, 3),
        ("10:14:59.999999", "10:05", 2, 4),
    )


@pytest.mark.dedicated
def test_a_tuple_behind_the_watermark_joins_nothing_and_is_counted(runtime: Runtime) -> None:
    left, right = (tg.stream(CALLS, time="ts", disorder="1 minute", name=name) for name in ("left", "right"))
    query = left.join(right, on="src", within="1 hour")
    result = runtime.run(
        query,
        [
            {"left": rows(CALLS, ("10:05", "a", 1)), "right": rows(CALLS, ("10:10", "a", 2))},
            {"left": rows(CALLS, ("10:03", "a", 3), ("10:04", "a", 4)), "right": rows(CALLS, ("10:04", "a", 5))},
        ],
    )
    assert pairs(result.rows, "n", "n_right") == [(1, 2), (1, 5), (4, 2), (4, 5)]
    assert result.late == 1


@pytest.mark.dedicated
def test_over_windows_a_tuple_takes_part_where_it_is_not_too_late(runtime: Runtime) -> None:
    calls = tg.stream(CALLS, time="ts", name="calls", disorder="1 minute")
    query = calls.join(calls, window="10 minutes", every="5 minutes", where=lambda l, r: l.n < r.n)
    result = runtime.run(
        query,
        [
            {"calls": rows(CALLS, ("10:02", "a", 1), ("10:07", "a", 2))},
            {"calls": rows(CALLS, ("10:03", "a", 3), ("09:58", "a", 4))},
        ],
    )
    assert pairs(result.rows, "window_start", "n", "n_right") == [
        (moment, *pair)
        for moment, pair in zip(
            rows(CALLS, *[("10:00", "", 0)] * 3).column("ts").to_pylist(), [(1, 2), (1, 3), (2, 3)], strict=True
        )
    ]
    assert result.late == 2, "it is late on both sides"


@pytest.mark.dedicated
def test_a_silent_side_keeps_nothing_from_ending(quick_runtime: Runtime) -> None:
    left, right = (tg.stream(CALLS, time="ts", name=name) for name in ("left", "right"))
    query = left.join(right, on="src", within="1 hour")
    result = quick_runtime.run(query, [{"left": rows(CALLS, ("10:05", "a", 1), ("10:06", "a", 1))}])
    assert (result.rows.num_rows, result.late) == (0, 0)


@pytest.mark.dedicated
def test_joins_and_aggregates_follow_one_another(runtime: Runtime) -> None:
    """Calls per number and minute beside the calls themselves, and the pairs of that counted again."""
    calls = tg.stream(CALLS, time="ts", name="calls")
    counts = calls.key_by("src").window("1 minute").aggregate(calls=tg.count())
    busy = calls.join(counts, on="src", within="1 minute", where=lambda l, r: r.calls > 1)
    query = busy.key_by("src").window("1 hour").aggregate(pairs=tg.count(), last=tg.max("n"))
    given = rows(
        CALLS, ("10:00:10", "a", 1), ("10:00:20", "b", 2), ("10:00:30", "a", 3), ("10:01:00", "a", 4), ("10:02", "b", 5)
    )
    result = runtime.run(query, [{"calls": given.slice(0, 2)}, {"calls": given.slice(2)}])
    expect(query, result.rows, ("10:59:59.999999", "a", "10:00", "11:00", 3, 4))


@pytest.mark.dedicated
def test_keys_of_different_names_and_an_expression(quick_runtime: Runtime) -> None:
    left, right = tg.stream(CALLS, time="ts", name="left"), tg.stream(TRADES, time="ts", name="right")
    query = left.join(right, on=[("n", "id")], within="1 minute", where=nw.col("nd") > 1.5)
    result = quick_runtime.run(
        query,
        [
            {
                "left": rows(CALLS, ("10:00", "a", 1), ("10:00", "b", 2)),
                "right": rows(TRADES, ("10:00", 1, 1.0), ("10:01", 2, 2.0), ("10:01", 1, 3.0)),
            }
        ],
    )
    assert pairs(result.rows, "src", "n", "id", "nd") == [("a", 1, 1, 3.0), ("b", 2, 2, 2.0)]
