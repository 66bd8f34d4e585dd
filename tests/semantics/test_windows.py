"""Queries whose answers were worked out by hand; every runtime must give them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tidegate.testing import difference, last_revisions

TIME = pa.timestamp("us", tz="UTC")


def at(clock: str) -> int:
    """A time of day on one day of 2024 as event time: '09:58', '10:00:00.5'."""
    whole, _, fraction = clock.partition(".")
    hours, minutes, *seconds = (int(part) for part in whole.split(":"))
    day = datetime(2024, 1, 1, hours, minutes, *seconds, tzinfo=UTC)
    return int(day.timestamp()) * 1_000_000 + int(fraction.ljust(6, "0") or 0)


def rows(schema: pa.Schema, *tuples: tuple[Any, ...]) -> pa.Table:
    """A table of tuples whose times are written as times of day."""
    columns = []
    for position, field in enumerate(schema):
        values = [tuple_[position] for tuple_ in tuples]
        if field.type == TIME:
            columns.append(pa.array([None if value is None else at(value) for value in values], pa.int64()).cast(TIME))
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)


def expect(query: tg.Stream, made: pa.Table, *tuples: tuple[Any, ...]) -> None:
    told = difference(made, rows(query.schema, *tuples))
    assert told is None, told


TWEETS = pa.schema([("ts", TIME), ("user", pa.string()), ("tweet", pa.string())])


def hashtags(batch: pa.RecordBatch) -> pa.Array:
    """The words of a tweet that begin with '#', without it."""
    tweets = batch.column("tweet").to_pylist()
    return pa.array([[w[1:] for w in t.split() if w[0] == "#"] for t in tweets], pa.list_(pa.string()))


def longest_tweet() -> tg.Stream:
    return (
        tg.stream(TWEETS, time="ts", name="tweets")
        .with_columns(length=nw.col("tweet").str.len_chars().cast(nw.Int64))
        .key_by(tg.keys(hashtags, columns={"hashtag": pa.string()}))
        .window("60 minutes", every="30 minutes")
        .aggregate(chars=tg.max("length"))
    )


def test_longest_tweet_per_hashtag(runtime: Runtime) -> None:
    """STRETCH, appendices C and E.

    The paper's results for [09:00, 10:00) are ⟨10:00, red, 13⟩ and ⟨10:00, pink, 13⟩; ours carry the end − 1 µs. The
    windows that begin at 09:30 hold the same two tweets (execution trace 1, last line).
    """
    query = longest_tweet()
    first = rows(TWEETS, ("09:50", "B", "hello #pink"))
    second = rows(TWEETS, ("09:58", "C", "hi #red #pink"))
    result = runtime.run(query, [{"tweets": first}, {"tweets": second}])
    expect(
        query,
        result.rows,
        ("09:59:59.999999", "red", "09:00", "10:00", 13),
        ("09:59:59.999999", "pink", "09:00", "10:00", 13),
        ("10:29:59.999999", "red", "09:30", "10:30", 13),
        ("10:29:59.999999", "pink", "09:30", "10:30", 13),
    )
    assert result.late == 0


def test_longest_tweet_takes_the_window_of_each_tweet(runtime: Runtime) -> None:
    """A shorter tweet that comes later wins only where the longer one is not.

    ::

        09:00 ---- 09:30 ---- 10:00 ---- 10:30 ---- 11:00
           hello #pink (09:20)   #pink (10:05)
    """
    query = longest_tweet()
    tweets = rows(TWEETS, ("09:20", "B", "hello #pink"), ("10:05", "C", "#pink"))
    result = runtime.run(query, [{"tweets": tweets}])
    expect(
        query,
        result.rows,
        ("09:29:59.999999", "pink", "08:30", "09:30", 11),
        ("09:59:59.999999", "pink", "09:00", "10:00", 11),
        ("10:29:59.999999", "pink", "09:30", "10:30", 5),
        ("10:59:59.999999", "pink", "10:00", "11:00", 5),
    )


CALLS = pa.schema([("ts", TIME), ("src", pa.string()), ("start_s", pa.int64()), ("end_s", pa.int64())])


def test_heavy_customers(runtime: Runtime) -> None:
    """StreamCloud §IV: a map, an aggregate and a filter."""
    query = (
        tg.stream(CALLS, time="ts", name="calls")
        .with_columns(duration=nw.col("end_s") - nw.col("start_s"))
        .key_by("src")
        .window("2 minutes", every="1 minute")
        .aggregate(calls=tg.count(), avg=tg.mean("duration"))
        .filter(nw.col("avg") > 300)
    )
    first = rows(CALLS, ("09:00:30", "a", 0, 500), ("09:00:40", "b", 0, 100))
    second = rows(CALLS, ("09:01:10", "a", 0, 200), ("09:01:20", "b", 0, 700))
    result = runtime.run(query, [{"calls": first}, {"calls": second}])
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", "08:59", "09:01", 1, 500.0),
        ("09:01:59.999999", "a", "09:00", "09:02", 2, 350.0),
        ("09:01:59.999999", "b", "09:00", "09:02", 2, 400.0),
        ("09:02:59.999999", "b", "09:01", "09:03", 1, 700.0),
    )


VALUES = pa.schema([("ts", TIME), ("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


@pytest.mark.dedicated
def test_every_aggregate(runtime: Runtime) -> None:
    """Nulls are left out but where a tuple counts; NaN is the greatest; ties go to all columns, left to right."""
    query = (
        tg.stream(VALUES, time="ts", name="s")
        .key_by("k")
        .window("1 minute")
        .aggregate(
            count=tg.count(),
            sum=tg.sum("n"),
            mean=tg.mean("n"),
            total=tg.sum("x"),
            low=tg.min("x"),
            high=tg.max("x"),
            first=tg.first("n"),
            last=tg.last("n"),
            all=tg.collect("n"),
            top=tg.top_k("n", 2),
            best=tg.top_k("n", 1, take="x"),
            different=tg.distinct("x"),
            xs=tg.collect("x"),
        )
    )
    nan = float("nan")
    tuples = rows(
        VALUES,
        ("09:00:02", "a", 7, 0.5),
        ("09:00:01", "a", 5, -0.0),
        ("09:00:01", "a", None, 0.0),
        ("09:00:03", "a", 7, -1.0),
        ("09:00:03", "b", None, nan),
        ("09:00:04", None, 1, None),
    )
    result = runtime.run(query, [{"s": tuples.slice(0, 2)}, {"s": tuples.slice(2)}])
    moments = ("09:00:59.999999", "09:00", "09:01")
    expect(
        query,
        result.rows,
        (
            moments[0],
            "a",
            *moments[1:],
            4,
            19,
            19 / 3,
            -0.5,
            -1.0,
            0.5,
            None,
            7,
            [None, 5, 7, 7],
            [7, 7],
            [0.5],
            3,
            [0.0, 0.0, 0.5, -1.0],
        ),
        (moments[0], "b", *moments[1:], 1, None, None, nan, nan, nan, None, None, [None], [], [], 1, [nan]),
        (moments[0], None, *moments[1:], 1, 1, 1.0, None, None, None, 1, 1, [1], [1], [None], 0, [None]),
    )


TAGGED = pa.schema([("ts", TIME), ("tags", pa.list_(pa.string()))])


@pytest.mark.parametrize(("distinct", "counted"), [(True, 2), (False, 3)])
def test_keys_of_a_list(runtime: Runtime, distinct: bool, counted: int) -> None:
    """A key that occurs twice in a tuple counts once, unless asked otherwise; null is a key; an empty list has none."""
    query = (
        tg.stream(TAGGED, time="ts", name="s")
        .key_by(tg.each("tags", name="tag", distinct=distinct))
        .window("1 minute")
        .aggregate(n=tg.count())
    )
    tuples = rows(
        TAGGED, ("09:00:01", ["a", "b", "a"]), ("09:00:02", []), ("09:00:03", None), ("09:00:04", ["a", None])
    )
    result = runtime.run(query, [{"s": tuples}])
    moments = ("09:00:59.999999", "09:00", "09:01")
    expect(
        query,
        result.rows,
        (moments[0], "a", *moments[1:], counted),
        (moments[0], "b", *moments[1:], 1),
        (moments[0], None, *moments[1:], 1),
    )


LINKS = pa.schema([("ts", TIME), ("one", pa.string()), ("other", pa.string())])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_stream_is_united_with_itself_under_other_names(runtime: Runtime, swapped: bool) -> None:
    """Tuples of both sides have their times, and nothing else, in common: each keeps its own columns."""
    stream = tg.stream(LINKS, time="ts", name="s")
    turned = stream.select("ts", one=nw.col("other"), other=nw.lit("?"))
    both = turned.union(stream) if swapped else stream.union(turned)
    query = (
        both.key_by("one")
        .window("1 minute")
        .aggregate(others=tg.collect("other"), first=tg.first("other"), last=tg.last("other"), top=tg.top_k("other", 1))
    )
    result = runtime.run(
        query,
        [
            {"s": rows(LINKS, ("09:00:01", "a", "b"), ("09:00:02", "b", "a"), ("09:00:03", "a", "c"))},
            {"s": rows(LINKS, ("09:00:04", "c", "a"), ("09:01:05", "z", "z"))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", "09:00", "09:01", ["b", "?", "c", "?"], "b", "?", ["c"]),
        ("09:00:59.999999", "b", "09:00", "09:01", ["?", "a"], "?", "a", ["a"]),
        ("09:00:59.999999", "c", "09:00", "09:01", ["?", "a"], "?", "a", ["a"]),
        ("09:01:59.999999", "z", "09:01", "09:02", ["?", "z"], "?", "z", ["z"]),
    )


def test_union_waits_for_both_sides(runtime: Runtime) -> None:
    """The watermark of a union is the least of its inputs': a side that lags makes nothing late."""
    left, right = (tg.stream(VALUES, time="ts", name=name) for name in ("left", "right"))
    query = left.union(right).filter(nw.col("n") > 0).key_by("k").window("1 minute").aggregate(sum=tg.sum("n"))
    early = rows(VALUES, ("09:00:01", "a", 1, None))
    ahead = rows(VALUES, ("09:05:00", "a", 2, None), ("09:05:01", "a", -9, None))
    lagging = rows(VALUES, ("09:00:02", "a", 4, None), ("09:06:00", "a", 8, None))
    result = runtime.run(query, [{"left": early, "right": early}, {"left": ahead}, {"right": lagging}])
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", "09:00", "09:01", 6),
        ("09:05:59.999999", "a", "09:05", "09:06", 2),
        ("09:06:59.999999", "a", "09:06", "09:07", 8),
    )
    assert result.late == 0


def doubled(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch, batch])


def test_batch_functions_before_and_after(runtime: Runtime) -> None:
    """A function over batches may multiply rows, on either side of a window."""
    query = (
        tg.stream(VALUES, time="ts", name="s")
        .map_batches(doubled)
        .key_by("k", "n")
        .window("1 minute")
        .aggregate(c=tg.count())
        .map_batches(doubled)
    )
    tuples = rows(VALUES, ("09:00:01", "a", 1, None), ("09:00:02", "a", None, None))
    result = runtime.run(query, [{"s": tuples}])
    moments = ("09:00:59.999999", "09:00", "09:01")
    one, other = (moments[0], "a", 1, *moments[1:], 2), (moments[0], "a", None, *moments[1:], 2)
    expect(query, result.rows, one, one, other, other)


@pytest.mark.dedicated
def test_late_tuples_are_counted_and_left_out(runtime: Runtime) -> None:
    """Ties with the watermark are in time; a tuple is late when even its last window has expired."""
    query = tg.stream(VALUES, time="ts", name="s").key_by("k").window("1 minute").aggregate(n=tg.count())
    batches = [
        rows(VALUES, ("09:02:00", "a", 1, None)),
        rows(VALUES, ("09:02:00", "a", 1, None), ("09:01:59.999", "a", 1, None), ("09:00:00", "a", 1, None)),
    ]
    result = runtime.run(query, [{"s": batch} for batch in batches])
    expect(query, result.rows, ("09:02:59.999999", "a", "09:02", "09:03", 2))
    assert result.late == 2


@pytest.mark.dedicated
def test_allowed_lateness_refines(runtime: Runtime) -> None:
    """A late tuple within the lateness refines the window it missed; only the last revision is compared."""
    query = (
        tg.stream(VALUES, time="ts", name="s")
        .key_by("k")
        .window("1 minute", lateness="2 minutes")
        .aggregate(sum=tg.sum("n"))
    )
    batches = [
        rows(VALUES, ("09:00:10", "a", 1, None), ("09:00:20", "b", 1, None)),
        rows(VALUES, ("09:02:30", "a", 2, None)),
        rows(VALUES, ("09:00:30", "a", 4, None)),
        rows(VALUES, ("09:02:40", "a", 8, None)),
    ]
    result = runtime.run(query, [{"s": batch} for batch in batches])
    last = last_revisions(result.rows, ["k"])
    wanted = [
        ("09:00:59.999999", "a", "09:00", "09:01", 5),
        ("09:00:59.999999", "b", "09:00", "09:01", 1),
        ("09:02:59.999999", "a", "09:02", "09:03", 10),
    ]
    told = difference(last, rows(pa.schema([f for f in query.schema if f.name != "revision"]), *wanted))
    assert told is None, told
    assert result.late == 0


def test_windows_without_a_key_hold_all_tuples(runtime: Runtime) -> None:
    """One result per window that holds a tuple, without a column for the key.

    ::

        09:00 ──1──────2── 10:00
               09:30 ──2──────3── 10:30
                      10:00 ──3──────── 11:00
    """
    query = tg.stream(TWEETS, time="ts", name="tweets").window("60 minutes", every="30 minutes")
    counted = query.aggregate(n=tg.count(), users=tg.collect("user"))
    assert counted.schema.names == ["ts", "window_start", "window_end", "n", "users"]
    batches = [
        {"tweets": rows(TWEETS, ("09:10", "B", "one"), ("09:50", "A", "two"))},
        {"tweets": rows(TWEETS, ("10:10", "C", "three"))},
    ]
    expect(
        counted,
        runtime.run(counted, batches).rows,
        ("09:29:59.999999", "08:30", "09:30", 1, ["B"]),
        ("09:59:59.999999", "09:00", "10:00", 2, ["B", "A"]),
        ("10:29:59.999999", "09:30", "10:30", 2, ["A", "C"]),
        ("10:59:59.999999", "10:00", "11:00", 1, ["C"]),
    )


@pytest.mark.dedicated
def test_functions_on_windows_without_a_key(quick_runtime: Runtime) -> None:
    query = (
        tg.stream(TWEETS, time="ts", name="tweets")
        .window("60 minutes")
        .apply(
            output=lambda window: {"key": repr(window.key), "users": [one["user"] for one in window.state["tuples"]]},
            returns={"key": pa.string(), "users": pa.list_(pa.string())},
        )
    )
    arriving = rows(TWEETS, ("09:10", "B", "one"), ("09:50", "A", "two"), ("10:10", "C", "three"))
    expect(
        query,
        quick_runtime.run(query, [{"tweets": arriving}]).rows,
        ("09:59:59.999999", "None", ["B", "A"]),
        ("10:59:59.999999", "None", ["C"]),
    )
