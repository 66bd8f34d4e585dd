"""Joins over the last tuples of the other side, whose answers were worked out by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

pytestmark = pytest.mark.dedicated

BIDS = pa.schema([("ts", TIME), ("share", pa.string()), ("bid", pa.int64())])
ASKS = pa.schema([("ts", TIME), ("share", pa.string()), ("ask", pa.int64())])


def bids(**settings: Any) -> tg.Stream:
    return tg.stream(BIDS, time="ts", name="bids", **settings)


def asks(**settings: Any) -> tg.Stream:
    return tg.stream(ASKS, time="ts", name="asks", **settings)


def test_a_tuple_meets_the_last_two_of_the_other_side_before_it(runtime: Runtime) -> None:
    """However long ago they came, and in whatever order they are read; each pair is there once, at the later time.

    ::

        bids  a  09:00 ●1   09:01 ●2   09:02 ●3               09:20 ●4
        asks  a                                  09:10 ○7                  11:00 ○8
                                                 2, 3         7            3, 4
        b has a bid and no ask; the ask of c has no bid.
    """
    query = bids(disorder="3 hours").join(asks(disorder="3 hours"), on="share", last=2)
    assert query.schema.names == ["ts", "ts_left", "share", "bid", "ts_right", "ask"]
    batches = [
        {"bids": rows(BIDS, ("09:20", "a", 4), ("09:00", "a", 1)), "asks": rows(ASKS, ("11:00", "a", 8))},
        {"bids": rows(BIDS, ("09:02", "a", 3), ("09:00", "b", 9)), "asks": rows(ASKS, ("09:10", "a", 7))},
        {"bids": rows(BIDS, ("09:01", "a", 2)), "asks": rows(ASKS, ("09:10", "c", 5))},
    ]
    expect(
        query,
        runtime.run(query, batches).rows,
        ("09:10", "09:01", "a", 2, "09:10", 7),
        ("09:10", "09:02", "a", 3, "09:10", 7),
        ("09:20", "09:20", "a", 4, "09:10", 7),
        ("11:00", "09:02", "a", 3, "11:00", 8),
        ("11:00", "09:20", "a", 4, "11:00", 8),
    )


def test_a_predicate_is_asked_of_the_last_ones_alone(quick_runtime: Runtime) -> None:
    """The ask meets the bids 6 and 2; the bid 9 would fit, and is too far back."""
    query = bids().join(asks(), last=2, where=lambda l, r: l.bid >= r.ask).select("ts", "bid", "ask")
    batches = [
        {"bids": rows(BIDS, ("09:00", "a", 9), ("09:01", "b", 6))},
        {"bids": rows(BIDS, ("09:02", "a", 2)), "asks": rows(ASKS, ("09:03", "a", 5))},
    ]
    expect(query, quick_runtime.run(query, batches).rows, ("09:03", 6, 5))


def test_of_tuples_of_one_time_the_left_ones_are_first(quick_runtime: Runtime) -> None:
    """The ask of 09:00 meets the greater of the bids of 09:00, none of which meets it; then each order is by columns."""
    query = bids().join(asks(), on="share", last=1).select("ts", "bid", "ask")
    batches = [
        {"bids": rows(BIDS, ("09:00", "a", 2), ("09:00", "a", 1)), "asks": rows(ASKS, ("09:00", "a", 7))},
        {"bids": rows(BIDS, ("09:05", "a", 3)), "asks": rows(ASKS, ("09:01", "a", 9), ("09:01", "a", None))},
    ]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("09:00", 2, 7),
        ("09:01", 2, 9),
        ("09:01", 2, None),
        ("09:05", 3, 9),
    )


def test_a_stream_meets_itself(quick_runtime: Runtime) -> None:
    """As the right one a tuple comes behind itself as the left one."""
    stream = bids()
    query = stream.join(stream, on="share", last=1).select("ts", "bid", "bid_right")
    batches = [{"bids": rows(BIDS, ("09:00", "a", 1))}, {"bids": rows(BIDS, ("09:01", "a", 2))}]
    expect(query, quick_runtime.run(query, batches).rows, ("09:00", 1, 1), ("09:01", 2, 1), ("09:01", 2, 2))


def test_null_equals_nothing_and_takes_no_place(quick_runtime: Runtime) -> None:
    query = bids().join(asks(), on=["share", ("bid", "ask")], last=1).select("ts", "share", "ts_left")
    batches = [
        {
            "bids": rows(BIDS, ("09:00", "a", 1), ("09:01", "a", None), ("09:02", None, 1)),
            "asks": rows(ASKS, ("09:03", "a", 1), ("09:03", None, 1), ("09:03", "a", None)),
        }
    ]
    expect(query, quick_runtime.run(query, batches).rows, ("09:03", "a", "09:00"))


def test_a_tuple_before_the_watermark_is_late_and_meets_nothing(quick_runtime: Runtime) -> None:
    query = bids(disorder="10 seconds").join(asks(disorder="10 seconds"), on="share", last=5)
    batches = [
        {"bids": rows(BIDS, ("09:00:40", "a", 1)), "asks": rows(ASKS, ("09:00:40", "b", 1))},
        {"bids": rows(BIDS, ("09:00:30", "a", 2)), "asks": rows(ASKS, ("09:00:29", "a", 3), ("09:00:50", "a", 4))},
    ]
    result = quick_runtime.run(query, batches)
    expect(
        query,
        result.rows,
        ("09:00:50", "09:00:30", "a", 2, "09:00:50", 4),
        ("09:00:50", "09:00:40", "a", 1, "09:00:50", 4),
    )
    assert result.late == 1


def test_many_pairs_leave_some_at_a_time(quick_runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty left and thirty right tuples in turn; the i-th right one meets all i + 1 left ones before it, at most 20."""
    monkeypatch.setattr("tidegate.operators.count_join_rows.MOST_PAIRS", 7)
    query = bids().join(asks(), last=20, where=lambda l, r: l.bid <= r.ask).select("ts", "bid", "ask")
    minutes = range(30)
    left = rows(BIDS, *((f"09:{minute:02}:00", "a", minute) for minute in minutes))
    right = rows(ASKS, *((f"09:{minute:02}:30", "b", minute) for minute in minutes))
    found = quick_runtime.run(query, [{"bids": left, "asks": right}]).rows
    wanted = [(f"09:{ask:02}:30", bid, ask) for ask in minutes for bid in minutes if ask - 20 < bid <= ask]
    expect(query, found, *wanted)


def test_mistakes_are_found_when_the_query_is_built() -> None:
    left: Any = bids()
    with pytest.raises(tg.QueryError, match=r"say which tuples may meet: within=.*window=.*last=100"):
        left.join(asks())
    with pytest.raises(tg.QueryError, match=r"say which tuples may meet"):
        left.join(asks(), last=3, within="1 second")
    with pytest.raises(tg.QueryError, match=r"every='1 second' goes with window=..., not with last="):
        left.join(asks(), last=3, every="1 second")
    with pytest.raises(tg.QueryError, match=r"last of a join is a number of tuples, from 1 to .*; got 0"):
        left.join(asks(), last=0)
    with pytest.raises(tg.QueryError, match=r"got '3'; windows in time are window='1 minute'"):
        left.join(asks(), last="3")
    with pytest.raises(tg.QueryError, match=r"how='left' goes with within=... or window=...;"):
        left.join(asks(), on="share", last=3, how="left")
