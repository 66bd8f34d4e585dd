"""The first tuples of a window, whose answers were worked out by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

BIDS = pa.schema([("ts", TIME), ("auction", pa.string()), ("bidder", pa.string()), ("price", pa.float64())])


def bids(**settings: Any) -> tg.Stream:
    return tg.stream(BIDS, time="ts", name="bids", **settings)


def test_the_highest_bids_of_each_auction_and_hour(runtime: Runtime) -> None:
    """Ties go by time, then by columns; a bid without a price is none; a window with none gives nothing."""
    query = bids(disorder="1 hour").key_by("auction").window("1 hour").top_n(2, by="price")
    assert query.schema.names == ["ts", "auction", "window_start", "window_end", "rank", "bidder", "price"]
    batches = [
        {
            "bids": rows(
                BIDS,
                ("09:30", "a", "late", 5.0),
                ("09:10", "a", "zoe", 5.0),
                ("09:10", "a", "bob", 5.0),
                ("09:05", "a", "low", 1.0),
                ("09:20", "b", "only", -1.0),
                ("09:21", "b", "none", None),
            )
        },
        {
            "bids": rows(
                BIDS, ("10:10", "a", "nan", float("nan")), ("10:20", "a", "max", 9.0), ("10:30", "c", "x", None)
            )
        },
    ]
    nine, ten = ("09:59:59.999999", "09:00", "10:00"), ("10:59:59.999999", "10:00", "11:00")
    expect(
        query,
        runtime.run(query, batches).rows,
        (nine[0], "a", *nine[1:], 1, "bob", 5.0),
        (nine[0], "a", *nine[1:], 2, "zoe", 5.0),
        (nine[0], "b", *nine[1:], 1, "only", -1.0),
        (ten[0], "a", *ten[1:], 1, "nan", float("nan")),
        (ten[0], "a", *ten[1:], 2, "max", 9.0),
    )


def test_windows_that_overlap_and_no_key(quick_runtime: Runtime) -> None:
    query = bids().window("60 minutes", every="30 minutes").top_n(1, by="price")
    assert query.schema.names == ["ts", "window_start", "window_end", "rank", "auction", "bidder", "price"]
    arriving = rows(BIDS, ("09:10", "a", "x", 3.0), ("09:50", "b", "y", 2.0), ("10:10", "a", "z", 2.0))
    expect(
        query,
        quick_runtime.run(query, [{"bids": arriving}]).rows,
        ("09:29:59.999999", "08:30", "09:30", 1, "a", "x", 3.0),
        ("09:59:59.999999", "09:00", "10:00", 1, "a", "x", 3.0),
        ("10:29:59.999999", "09:30", "10:30", 1, "b", "y", 2.0),
        ("10:59:59.999999", "10:00", "11:00", 1, "a", "z", 2.0),
    )


@pytest.mark.dedicated
def test_the_highest_bid_of_each_session(quick_runtime: Runtime) -> None:
    """Half an hour without a bid ends a session: 9:10 and 9:35 are one, 10:05 is another."""
    query = bids().key_by("auction").session("30 minutes").top_n(1, by="price")
    assert query.schema.names == ["ts", "auction", "window_start", "window_end", "rank", "bidder", "price"]
    arriving = rows(
        BIDS, ("09:10", "a", "x", 3.0), ("09:20", "b", "y", 2.0), ("09:35", "a", "z", 3.0), ("10:05", "a", "w", 1.0)
    )
    expect(
        query,
        quick_runtime.run(query, [{"bids": arriving}]).rows,
        ("09:49:59.999999", "b", "09:20", "09:50", 1, "y", 2.0),
        ("10:04:59.999999", "a", "09:10", "10:05", 1, "x", 3.0),
        ("10:34:59.999999", "a", "10:05", "10:35", 1, "w", 1.0),
    )


@pytest.mark.dedicated
def test_the_highest_of_each_two_bids(quick_runtime: Runtime) -> None:
    query = bids().key_by("auction").count_window(2).top_n(1, by="price")
    arriving = rows(
        BIDS, ("09:10", "a", "x", 3.0), ("09:20", "b", "y", 2.0), ("09:35", "a", "z", 4.0), ("10:05", "a", "w", 1.0)
    )
    result = quick_runtime.run(query, [{"bids": arriving}])
    expect(query, result.rows, ("09:35", "a", "09:10", "09:35", 1, "z", 4.0))


def test_mistakes_are_found_when_the_query_is_built() -> None:
    windowed = bids().key_by("auction").window("1 hour")
    with pytest.raises(tg.QueryError, match="a number from 1 on; got 0"):
        windowed.top_n(0, by="price")
    with pytest.raises(tg.QueryError, match="'cost'"):
        windowed.top_n(1, by="cost")
    with pytest.raises(tg.QueryError, match="so it allows no lateness"):
        bids().key_by("auction").window("1 hour", lateness="1 hour").top_n(1, by="price")
    ranked = tg.stream({"ts": TIME, "k": pa.string(), "rank": pa.int64()}, time="ts").key_by("k").window("1 hour")
    with pytest.raises(tg.QueryError, match="two columns would be called 'rank'"):
        ranked.top_n(1, by="rank")
