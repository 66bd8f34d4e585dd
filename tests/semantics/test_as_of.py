"""As-of joins, whose answers were worked out by hand."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

pytestmark = pytest.mark.dedicated

TRADES = pa.schema([("ts", TIME), ("share", pa.string()), ("n", pa.int64())])
QUOTES = pa.schema([("ts", TIME), ("share", pa.string()), ("bid", pa.float64())])


def trades(**settings: Any) -> tg.Stream:
    return tg.stream(TRADES, time="ts", name="trades", **settings)


def quotes(**settings: Any) -> tg.Stream:
    return tg.stream(QUOTES, time="ts", name="quotes", **settings)


def test_a_tuple_gets_the_last_one_at_or_before_it(runtime: Runtime) -> None:
    """A quote of the same time counts, one after it does not, though it comes before; the trade of b has no quote yet.

    ::

        quotes a  09:00 ●1.0       09:05 ●2.0                     09:20 ●3.0
        trades a       09:04 ○1.0  09:05 ○2.0       09:15 ○2.0    (10 min: 09:15 is in reach, 09:16 is not)
                                                     09:16 ○–
        trades b            09:04 ○–
    """
    query = trades(disorder="1 hour").join_asof(quotes(disorder="1 hour"), on="share", tolerance="10 minutes")
    assert query.schema.names == ["ts", "share", "n", "ts_right", "bid"]
    batches = [
        {"quotes": rows(QUOTES, ("09:05", "a", 2.0)), "trades": rows(TRADES, ("09:04", "a", 1), ("09:16", "a", 4))},
        {"quotes": rows(QUOTES, ("09:20", "a", 3.0), ("09:00", "a", 1.0)), "trades": rows(TRADES, ("09:04", "b", 9))},
        {"quotes": rows(QUOTES, ("09:05", "b", 7.0)), "trades": rows(TRADES, ("09:15", "a", 3), ("09:05", "a", 2))},
    ]
    matched = [
        ("09:04", "a", 1, "09:00", 1.0),
        ("09:05", "a", 2, "09:05", 2.0),
        ("09:15", "a", 3, "09:05", 2.0),
    ]
    expect(query, runtime.run(query, batches).rows, *matched)
    kept = trades(disorder="1 hour").join_asof(
        quotes(disorder="1 hour"), on="share", tolerance="10 minutes", how="left"
    )
    expect(
        kept, runtime.run(kept, batches).rows, *matched, ("09:04", "b", 9, None, None), ("09:16", "a", 4, None, None)
    )


def test_without_tolerance_what_was_last_stays_for_ever(quick_runtime: Runtime) -> None:
    query = trades().join_asof(quotes(), on="share", name="priced")
    batches = [
        {"quotes": rows(QUOTES, ("09:00", "a", 1.0), ("09:00", "b", 5.0)), "trades": rows(TRADES, ("09:01", "c", 1))},
        {"quotes": rows(QUOTES, ("09:30", "a", None)), "trades": rows(TRADES, ("09:29", "a", 2))},
        {"quotes": rows(QUOTES, ("17:00", "c", 3.0)), "trades": rows(TRADES, ("17:00", "a", 3), ("17:00", "b", 4))},
    ]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("09:29", "a", 2, "09:00", 1.0),
        ("17:00", "a", 3, "09:30", None),
        ("17:00", "b", 4, "09:00", 5.0),
    )


def test_of_tuples_of_one_time_the_last_in_canonical_order_is_taken(quick_runtime: Runtime) -> None:
    """Without keys all meet; of the quotes of 09:00 the one of the greatest share, then bid, is last."""
    query = trades().join_asof(quotes(), how="left").select("ts", "n", "share_right", "bid")
    batches = [
        {
            "quotes": rows(
                QUOTES, ("09:00", "a", 9.0), ("09:00", "b", 2.0), ("09:00", "b", None), ("09:01", None, 1.0)
            ),
            "trades": rows(TRADES, ("08:59", "x", 0), ("09:00", "x", 1), ("09:00", None, 1), ("09:02", "x", 2)),
        }
    ]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("08:59", 0, None, None),
        ("09:00", 1, "b", 2.0),
        ("09:00", 1, "b", 2.0),
        ("09:02", 2, None, 1.0),
    )


def test_null_equals_nothing_and_nan_is_nan(quick_runtime: Runtime) -> None:
    nan = float("nan")
    left = tg.stream(QUOTES, time="ts", name="left")
    query = left.join_asof(quotes(), on=["share", "bid"], how="left")
    assert query.schema.names == ["ts", "share", "bid", "ts_right"]
    given = rows(QUOTES, ("09:00", "a", nan), ("09:00", None, 1.0), ("09:00", "a", None), ("09:00", "a", -0.0))
    asked = rows(QUOTES, ("09:01", "a", nan), ("09:01", None, 1.0), ("09:01", "a", None), ("09:01", "a", 0.0))
    expect(
        query,
        quick_runtime.run(query, [{"quotes": given}, {"left": asked}]).rows,
        ("09:01", "a", nan, "09:00"),
        ("09:01", None, 1.0, None),
        ("09:01", "a", None, None),
        ("09:01", "a", 0.0, "09:00"),
    )


def test_a_tuple_before_the_watermark_is_late_on_either_side(quick_runtime: Runtime) -> None:
    query = trades(disorder="10 seconds").join_asof(quotes(disorder="10 seconds"), on="share", how="left")
    batches = [
        {"quotes": rows(QUOTES, ("09:00:40", "a", 1.0)), "trades": rows(TRADES, ("09:00:40", "a", 1))},
        {
            "quotes": rows(QUOTES, ("09:00:29", "a", 2.0)),
            "trades": rows(TRADES, ("09:00:29", "a", 2), ("09:00:30", "a", 3)),
        },
    ]
    result = quick_runtime.run(query, batches)
    expect(query, result.rows, ("09:00:30", "a", 3, None, None), ("09:00:40", "a", 1, "09:00:40", 1.0))
    assert result.late == 2


def test_a_stream_as_of_itself_finds_itself(quick_runtime: Runtime) -> None:
    stream = trades()
    query = stream.join_asof(stream, on="share", suffix="_before")
    batches = [
        {"trades": rows(TRADES, ("09:00", "a", 1), ("09:00", "a", 2))},
        {"trades": rows(TRADES, ("09:01", "a", 3))},
    ]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("09:00", "a", 1, "09:00", 2),
        ("09:00", "a", 2, "09:00", 2),
        ("09:01", "a", 3, "09:01", 3),
    )


def test_mistakes_are_found_when_the_query_is_built() -> None:
    left: Any = trades()
    with pytest.raises(tg.QueryError, match="join_asof takes another stream; got str"):
        left.join_asof("quotes")
    with pytest.raises(tg.QueryError, match=r"how is 'inner'.*or 'left'.*got 'outer'"):
        left.join_asof(quotes(), on="share", how="outer")
    with pytest.raises(tg.QueryError, match=r"keys are named with on=..."):
        left.join_asof(quotes(), by="share")
    with pytest.raises(tg.QueryError, match=r"looks back.*at or before"):
        left.join_asof(quotes(), on="share", direction="nearest")
    with pytest.raises(tg.QueryError, match=r"'bid' .* cannot be compared as keys"):
        left.join_asof(quotes(), on=[("n", "bid")])
    with pytest.raises(tg.QueryError, match="suffix is a text"):
        left.join_asof(quotes(), suffix=("_l", "_r"))
    with pytest.raises(tg.QueryError, match="ts_right"):
        left.with_columns(ts_right=nw.col("n")).join_asof(quotes(), on="share")
