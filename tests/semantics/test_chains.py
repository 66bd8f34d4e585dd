"""Stateful steps one after the other and side by side; answers worked out by hand."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import OnDriver, OnReference, Runtime
from tests.semantics.test_windows import TIME, expect, rows

CALLS = pa.schema([("ts", TIME), ("k", pa.string()), ("n", pa.int64())])


def calls(name: str = "s") -> tg.Stream:
    return tg.stream(CALLS, time="ts", name=name)


def test_the_busiest_minute_of_five(runtime: Runtime) -> None:
    """Counts per minute, then their maximum per five minutes; the second step reads what the first hands out.

    ::

        09:00 a a      09:01 a        09:04 a a a    09:05 a
                       09:01 b
    """
    per_minute = calls().key_by("k").window("1 minute").aggregate(n=tg.count(), name="per_minute")
    query = per_minute.key_by("k").window("5 minutes").aggregate(most=tg.max("n"), minutes=tg.count(), name="busiest")
    result = runtime.run(
        query,
        [
            {"s": rows(CALLS, ("09:00", "a", 1), ("09:00:59", "a", 1))},
            {"s": rows(CALLS, ("09:01", "a", 1), ("09:01:30", "b", 1))},
            {"s": rows(CALLS, ("09:04", "a", 1), ("09:04:10", "a", 1), ("09:04:59.999999", "a", 1))},
            {"s": rows(CALLS, ("09:05", "a", 1))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:04:59.999999", "a", "09:00", "09:05", 3, 3),
        ("09:04:59.999999", "b", "09:00", "09:05", 1, 1),
        ("09:09:59.999999", "a", "09:05", "09:10", 1, 1),
    )
    assert result.late == 0


@pytest.mark.dedicated
def test_a_stream_is_read_by_steps_that_need_different_columns(runtime: Runtime) -> None:
    """The counts, over a union, read the keys alone; the join reads ``n`` too."""
    stream = calls()
    counts = stream.union(calls("t")).key_by("k").window("1 minute").aggregate(calls=tg.count(), name="per_minute")
    query = counts.join(stream, on="k", within="10 seconds").select("ts", "k", "calls", "n")
    result = runtime.run(
        query,
        [
            {"s": rows(CALLS, ("09:00:10", "a", 1), ("09:00:55", "a", 2)), "t": rows(CALLS, ("09:00:20", "a", 9))},
            {"s": rows(CALLS, ("09:01:05", "a", 3), ("09:05", "b", 4)), "t": rows(CALLS, ("09:05", "b", 9))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", 3, 2),
        ("09:01:05", "a", 3, 3),
    )


@pytest.mark.dedicated
def test_what_a_filter_takes_away_has_moved_the_watermark(runtime: Runtime) -> None:
    """The watermark is the source's: for both branches it is 09:10 after the first batch, though one never sees that tuple.

    ::

        09:00 a 1      09:10 a -1   |   09:00:30 a 2 (late in both)   |   09:20 a 3
    """

    def counted(stream: tg.Stream, name: str) -> tg.Stream:
        return stream.key_by("k").window("1 minute").aggregate(calls=tg.count(), name=name).select("ts", "k", "calls")

    stream = calls()
    query = counted(stream.filter(nw.col("n") > 0), "some").union(counted(stream, "all"))
    result = runtime.run(
        query,
        [
            {"s": rows(CALLS, ("09:00", "a", 1), ("09:10", "a", -1))},
            {"s": rows(CALLS, ("09:00:30", "a", 2))},
            {"s": rows(CALLS, ("09:20", "a", 3))},
        ],
    )
    expect(
        query,
        result.rows,
        *[("09:00:59.999999", "a", 1)] * 2,
        ("09:10:59.999999", "a", 1),
        *[("09:20:59.999999", "a", 1)] * 2,
    )
    assert result.late == 2


def test_steps_between_stateful_ones_see_whole_results(runtime: Runtime) -> None:
    """A filter and a list column between the two; the second step has many keys per tuple."""
    words = pa.schema([("ts", TIME), ("user", pa.string()), ("text", pa.string())])
    users = (
        tg.stream(words, time="ts", name="s")
        .key_by("user")
        .window("1 minute")
        .aggregate(texts=tg.collect("text"), name="texts")
    )
    query = (
        users.with_columns(seen=nw.col("texts"))
        .key_by(tg.each("seen", name="text"))
        .window("2 minutes")
        .aggregate(users=tg.distinct("user"), name="users")
    )
    result = runtime.run(
        query,
        [
            {"s": rows(words, ("09:00", "x", "hi"), ("09:00:01", "x", "hi"), ("09:00:02", "y", "hi"))},
            {"s": rows(words, ("09:01", "y", "ho"), ("09:02", "x", "ho"))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:01:59.999999", "hi", "09:00", "09:02", 2),
        ("09:01:59.999999", "ho", "09:00", "09:02", 1),
        ("09:03:59.999999", "ho", "09:02", "09:04", 1),
    )


def test_two_windows_of_one_stream_side_by_side(runtime: Runtime) -> None:
    stream = calls()
    one = stream.key_by("k").window("1 minute").aggregate(n=tg.sum("n"), name="one")
    two = stream.key_by("k").window("2 minutes").aggregate(n=tg.sum("n"), name="two")
    query = one.union(two)
    result = runtime.run(query, [{"s": rows(CALLS, ("09:00", "a", 1), ("09:01", "a", 2), ("09:03", "b", 4))}])
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", "09:00", "09:01", 1),
        ("09:01:59.999999", "a", "09:01", "09:02", 2),
        ("09:01:59.999999", "a", "09:00", "09:02", 3),
        ("09:03:59.999999", "b", "09:03", "09:04", 4),
        ("09:03:59.999999", "b", "09:02", "09:04", 4),
    )


def test_a_step_whose_results_two_others_read(runtime: Runtime) -> None:
    """Sums per minute, summed again per two minutes and, beside that, their maximum per four."""
    sums = calls().key_by("k").window("1 minute").aggregate(n=tg.sum("n"), name="sums")
    twos = sums.key_by("k").window("2 minutes").aggregate(n=tg.sum("n"), name="twos")
    query = twos.union(sums.key_by("k").window("4 minutes").aggregate(n=tg.max("n"), name="fours"))
    result = runtime.run(
        query,
        [
            {"s": rows(CALLS, ("09:00", "a", 1), ("09:00:30", "a", 2), ("09:00:40", "b", 5))},
            {"s": rows(CALLS, ("09:01", "a", 4), ("09:03", "a", 8))},
            {"s": rows(CALLS, ("09:04", "b", 16))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:01:59.999999", "a", "09:00", "09:02", 7),
        ("09:01:59.999999", "b", "09:00", "09:02", 5),
        ("09:03:59.999999", "a", "09:02", "09:04", 8),
        ("09:05:59.999999", "b", "09:04", "09:06", 16),
        ("09:03:59.999999", "a", "09:00", "09:04", 8),
        ("09:03:59.999999", "b", "09:00", "09:04", 5),
        ("09:07:59.999999", "b", "09:04", "09:08", 16),
    )
    assert result.late == 0


@pytest.mark.dedicated
def test_results_that_are_also_joined_with_what_comes_of_them(runtime: Runtime) -> None:
    """Each minute's sum beside the sum of its two minutes: one step feeds a join on both sides, once directly."""
    sums = calls().key_by("k").window("1 minute").aggregate(n=tg.sum("n"), name="sums").select("ts", "k", "n")
    twos = sums.key_by("k").window("2 minutes").aggregate(total=tg.sum("n"), name="twos").select("ts", "k", "total")
    query = sums.join(twos, on="k", within="1 minute", name="shares").select("ts", "k", "n", "total")
    result = runtime.run(
        query,
        [
            {"s": rows(CALLS, ("09:00", "a", 1), ("09:01:30", "a", 2))},
            {"s": rows(CALLS, ("09:02", "a", 4), ("09:05", "a", 8))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:01:59.999999", "a", 1, 3),
        ("09:01:59.999999", "a", 2, 3),
        ("09:02:59.999999", "a", 4, 3),
        ("09:03:59.999999", "a", 4, 4),
        ("09:05:59.999999", "a", 8, 8),
    )


def sums_and_tuples() -> tg.Stream:
    """Sums per minute of one stream and the plain tuples of another, summed per five minutes."""
    sums = calls("s").key_by("k").window("1 minute").aggregate(n=tg.sum("n"), name="sums").select("ts", "k", "n")
    return sums.union(calls("t")).key_by("k").window("5 minutes").aggregate(n=tg.sum("n"), rows=tg.count(), name="all")


def test_results_and_tuples_meet_in_one_step(runtime: Runtime) -> None:
    query = sums_and_tuples()
    result = runtime.run(
        query,
        [
            {"s": rows(CALLS, ("09:00", "a", 1), ("09:00:30", "a", 2)), "t": rows(CALLS, ("09:00:10", "a", 10))},
            {"s": rows(CALLS, ("09:10", "a", 4)), "t": rows(CALLS, ("09:10", "b", 20))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:04:59.999999", "a", "09:00", "09:05", 13, 2),
        ("09:14:59.999999", "a", "09:10", "09:15", 4, 1),
        ("09:14:59.999999", "b", "09:10", "09:15", 20, 1),
    )
    assert result.late == 0


@pytest.mark.parametrize("runtime", [OnReference(), OnDriver(2)])
def test_where_results_and_tuples_meet_only_tuples_are_late(runtime: Runtime) -> None:
    """The watermark is at 09:10 when the plain tuple of 09:01 arrives: its window, [09:00, 09:05), has been handed out.

    In process each step has a watermark of its own, which follows the one before it at its own pace, so there the tuple
    may still be in time.
    """
    query = sums_and_tuples()
    result = runtime.run(
        query,
        [
            {"s": rows(CALLS, ("09:00", "a", 1), ("09:00:30", "a", 2)), "t": rows(CALLS, ("09:00:10", "a", 10))},
            {"s": rows(CALLS, ("09:10", "a", 4)), "t": rows(CALLS, ("09:10", "b", 20))},
            {"s": rows(CALLS, ("09:11", "a", 8)), "t": rows(CALLS, ("09:01", "a", 40), ("09:11", "b", 80))},
        ],
    )
    expect(
        query,
        result.rows,
        ("09:04:59.999999", "a", "09:00", "09:05", 13, 2),
        ("09:14:59.999999", "a", "09:10", "09:15", 12, 2),
        ("09:14:59.999999", "b", "09:10", "09:15", 100, 2),
    )
    assert result.late == 1
