"""O+ queries whose answers were worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, TWEETS, expect, hashtags, rows

pytestmark = pytest.mark.dedicated

EVENTS = pa.schema([("ts", TIME), ("k", pa.string()), ("x", pa.int64())])
COUNT = {"state": {"count": pa.int64()}, "initial": {"count": 0}}


def events(name: str = "events", **settings: Any) -> tg.Stream:
    return tg.stream(EVENTS, time="ts", name=name, **settings)


def longer(window: Any, tweet: Any) -> Any:
    return tg.updated({"count": max(window.state["count"], len(tweet["tweet"]))})


def test_longest_tweet_per_hashtag(runtime: Runtime) -> None:
    """STRETCH, operator 2 and execution trace 1 of appendix E.

    Before the tweet of 09:58 the state is ⟨11, 09:00, pink⟩, ⟨11, 09:30, pink⟩; after it ⟨13⟩ for both windows of pink
    and red. The paper's results for [09:00, 10:00) are at 10:00; ours carry the end − 1 µs.
    """
    query = (
        tg.stream(TWEETS, time="ts", name="tweets")
        .key_by(tg.keys(hashtags, columns={"hashtag": pa.string()}))
        .window("60 minutes", every="30 minutes")
        .apply(
            update=longer,
            output=lambda window: {"hashtag": window.key, "chars": window.state["count"]},
            **COUNT,
            returns={"hashtag": pa.string(), "chars": pa.int64()},
        )
    )
    first = rows(TWEETS, ("09:50", "B", "hello #pink"))
    second = rows(TWEETS, ("09:58", "C", "hi #red #pink"))
    result = runtime.run(query, [{"tweets": first}, {"tweets": second}])
    expect(
        query,
        result.rows,
        ("09:59:59.999999", "red", 13),
        ("09:59:59.999999", "pink", 13),
        ("10:29:59.999999", "red", 13),
        ("10:29:59.999999", "pink", 13),
    )


def test_forward_hands_every_tuple_out_once_per_key(runtime: Runtime) -> None:
    """STRETCH, operator 6: two inputs, no state, n copies."""
    keys = tg.keys(
        lambda batch: pa.array([[1, 2, 3]] * batch.num_rows, pa.list_(pa.int64())), columns={"copy": pa.int64()}
    )
    query = (
        tg.gather(events("one").key_by(keys), events("other").key_by(keys))
        .window("1us")
        .apply(
            update=lambda window, arriving: tg.updated(rows={"copy": window.key, "x": arriving["x"]}),
            state={},
            windows="single",
            returns={"copy": pa.int64(), "x": pa.int64()},
        )
    )
    batches = [
        {"one": rows(EVENTS, ("09:00", "a", 1)), "other": rows(EVENTS, ("09:00", "b", 2))},
        {"other": rows(EVENTS, ("09:02", "b", 3))},
    ]
    result = runtime.run(query, batches)
    times = [("09:00", 1), ("09:00", 2), ("09:02", 3)]
    expect(query, result.rows, *[(time, copy, x) for time, x in times for copy in (1, 2, 3)])


def test_by_default_tuples_are_stored_and_purged_when_the_window_slides(runtime: Runtime) -> None:
    """Table 1. Windows of an hour that slide by half an hour, one per key.

    ::

                  09:10      09:50
        09:00 ─────●──────────●──── 10:00   both
               09:30 ─────────●──────── 10:30   the second
                      10:00 ──────…   none: the window ends
    """
    query = (
        events()
        .key_by("k")
        .window("1 hour", every="30 minutes")
        .apply(
            output=lambda window: {"k": window.key, "xs": [one["x"] for one in window.state["tuples"]]},
            windows="single",
            returns={"k": pa.string(), "xs": pa.list_(pa.int64())},
        )
    )
    result = runtime.run(
        query, [{"events": rows(EVENTS, ("09:10", "a", 1))}, {"events": rows(EVENTS, ("09:50", "a", 2))}]
    )
    # Before 09:10 the earliest window that holds it begins at 08:30.
    expect(
        query,
        result.rows,
        ("09:29:59.999999", "a", [1]),
        ("09:59:59.999999", "a", [1, 2]),
        ("10:29:59.999999", "a", [2]),
    )


def test_a_window_that_slides_carries_its_state_on(runtime: Runtime) -> None:
    """slide gets the window where it has arrived; an empty state ends it before its last tuple has left."""
    query = (
        events()
        .key_by("k")
        .window("3 minutes", every="1 minute")
        .apply(
            update=lambda window, arriving: tg.updated({"count": window.state["count"] + arriving["x"]}),
            output=lambda window: {"k": window.key, "count": window.state["count"]},
            slide=lambda window: tg.updated({"count": window.state["count"] // 2}),
            **COUNT,
            windows="single",
            returns={"k": pa.string(), "count": pa.int64()},
        )
    )
    result = runtime.run(query, [{"events": rows(EVENTS, ("09:00", "a", 8), ("09:00", "b", 1))}])
    # a: [08:58, 09:01) 8, [08:59, 09:02) 4, [09:00, 09:03) 2, then the tuple has left. b: 1, then the state is empty.
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", 8),
        ("09:00:59.999999", "b", 1),
        ("09:01:59.999999", "a", 4),
        ("09:02:59.999999", "a", 2),
    )


def test_an_unbounded_window_lasts_until_its_key_is_retired(runtime: Runtime) -> None:
    """Sessions that end with x = 0; the next tuple of the key finds no state."""

    def total(window: Any, arriving: Any) -> Any:
        count = window.state["count"] + arriving["x"]
        ended = arriving["x"] == 0
        return tg.updated({"count": count}, rows={"k": window.key, "count": count} if ended else None, retire=ended)

    query = (
        events().key_by("k").unbounded().apply(update=total, **COUNT, returns={"k": pa.string(), "count": pa.int64()})
    )
    result = runtime.run(
        query,
        [
            {"events": rows(EVENTS, ("09:00", "a", 3), ("09:01", "b", 4), ("11:00", "a", 2))},
            {"events": rows(EVENTS, ("12:00", "a", 0), ("13:00", "a", 1), ("14:00", "a", 0))},
        ],
    )
    expect(query, result.rows, ("12:00", "a", 5), ("14:00", "a", 1))


def test_tuples_come_in_canonical_order_whatever_the_batches(runtime: Runtime) -> None:
    """By time, then input, then columns from left to right; null first."""
    query = (
        tg.gather(events("one", disorder="1 hour").key_by("k"), events("other", disorder="1 hour").key_by("k"))
        .window("1 hour")
        .apply(
            update=lambda window, arriving: tg.updated(
                *[{"seen": [*window.states[0]["seen"], f"{arriving.input}{arriving['x']}"]}] * 2
            ),
            output=lambda window: {"seen": window.states[0]["seen"]},
            state={"seen": pa.list_(pa.string())},
            returns={"seen": pa.list_(pa.string())},
        )
    )
    batches = [
        {"other": rows(EVENTS, ("09:10", "a", 1), ("09:20", "a", 9))},
        {"one": rows(EVENTS, ("09:10", "a", 7), ("09:10", "a", 3)), "other": rows(EVENTS, ("09:10", "a", None))},
        {"one": rows(EVENTS, ("09:10", "a", 5), ("09:05", "a", 6))},
    ]
    result = runtime.run(query, batches)
    expect(query, result.rows, ("09:59:59.999999", ["06", "03", "05", "07", "1None", "11", "19"]))


def test_a_tuple_before_the_watermark_is_late_though_its_window_is_open(runtime: Runtime) -> None:
    """The tuples after it were handled already; it is counted, not slipped in."""
    query = (
        events(disorder="1 minute")
        .key_by("k")
        .window("1 hour")
        .apply(
            update=lambda window, arriving: tg.updated({"count": window.state["count"] + 1}),
            output=lambda window: {"count": window.state["count"]},
            **COUNT,
            returns={"count": pa.int64()},
        )
    )
    first = rows(EVENTS, ("09:20", "a", 2), ("09:19", "a", 1))
    # The watermark is at 09:19: a tuple of that time is not late, one before it is.
    second = rows(EVENTS, ("09:19", "a", 3), ("09:10", "a", 1))
    result = runtime.run(query, [{"events": first}, {"events": second}])
    assert result.late == 1
    expect(query, result.rows, ("09:59:59.999999", 3))


def test_inputs_of_different_columns_meet_by_key(runtime: Runtime) -> None:
    """A join written by hand: bids under the ask that came last."""
    asks = tg.stream({"at": TIME, "share": pa.string(), "ask": pa.int64()}, time="at", name="asks")
    bids = tg.stream({"ts": TIME, "bid": pa.float64(), "of": pa.string()}, time="ts", name="bids")

    def meet(window: Any, arriving: Any) -> Any:
        ask, bid = window.states
        if arriving.input == 0:
            return tg.updated({"last": arriving["ask"], "bids": 0}, bid)
        under = ask["last"] is not None and arriving["bid"] < ask["last"]
        rows = [{"share": window.key, "ask": ask["last"], "bid": arriving["bid"]}] if under else []
        return tg.updated(ask, {"last": None, "bids": (bid["bids"] or 0) + 1}, rows=rows)

    query = (
        tg.gather(asks.key_by("share"), bids.key_by("of"))
        .unbounded()
        .apply(
            update=meet,
            state={"last": pa.int64(), "bids": pa.int64()},
            returns={"share": pa.string(), "ask": pa.int64(), "bid": pa.float64()},
        )
    )
    asked = rows(asks.schema, ("09:00", "t", 10), ("09:02", "t", 8))
    bid = rows(bids.schema, ("09:01", 9.5, "t"), ("09:02", 9.0, "t"), ("09:03", 7.0, "t"), ("09:03", 1.0, "g"))
    result = runtime.run(query, [{"asks": asked, "bids": bid}])
    # At 09:02 the ask comes first: it is input 0.
    expect(query, result.rows, ("09:01", "t", 10, 9.5), ("09:03", "t", 8, 7.0))


def test_the_columnar_form_means_the_same(runtime: Runtime) -> None:
    """Running and final counts of words; one tweet is in two windows and under several keys."""

    def count(batch: Any) -> Any:
        before = np.asarray(batch.windows.states["count"])
        return tg.updated({"count": before + np.bincount(batch.slots, minlength=len(before))})

    schema = pa.schema([("ts", TIME), ("words", pa.list_(pa.string()))])
    query = (
        tg.stream(schema, time="ts", name="tweets")
        .key_by(tg.each("words", name="word"))
        .window("2 minutes", every="1 minute")
        .apply_columns(
            update=count,
            output=lambda expired: {
                "word": expired.keys["word"],
                "start": expired.starts,
                "count": expired.states["count"],
            },
            **COUNT,
            returns={"word": pa.string(), "start": TIME, "count": pa.int64()},
        )
    )
    batches = [
        {"tweets": rows(schema, ("09:00:10", ["a", "b", "a"]), ("09:00:50", ["a"]))},
        {"tweets": rows(schema, ("09:01:20", ["b", None]), ("09:01:30", None))},
    ]
    result = runtime.run(query, batches)
    expect(
        query,
        result.rows,
        ("09:00:59.999999", "a", "08:59", 2),
        ("09:00:59.999999", "b", "08:59", 1),
        ("09:01:59.999999", "a", "09:00", 2),
        ("09:01:59.999999", "b", "09:00", 2),
        ("09:01:59.999999", None, "09:00", 1),
        ("09:02:59.999999", "b", "09:01", 1),
        ("09:02:59.999999", None, "09:01", 1),
    )


def test_rows_of_a_columnar_update_carry_the_time_of_what_made_them(runtime: Runtime) -> None:
    """A row for every contribution that makes a key's sum reach 10; keys retire then."""

    def reach(batch: Any) -> Any:
        sums, retired = batch.windows.states["count"].to_pylist(), [False] * len(batch.windows)
        keys, of = batch.windows.keys["k"].to_pylist(), []
        for at, (slot, x) in enumerate(zip(batch.slots.to_pylist(), batch.column("x").to_pylist(), strict=True)):
            # A key that comes again after it retired begins anew.
            sums[slot] = (0 if retired[slot] else sums[slot]) + x
            retired[slot] = sums[slot] >= 10
            of += [at] if retired[slot] else []
        made = pa.array([keys[batch.slots[at].as_py()] for at in of], pa.string())
        return tg.updated(
            {"count": sums}, rows={"k": made}, of=pa.array(of, pa.int64()), retire=pa.array(retired, pa.bool_())
        )

    query = events().key_by("k").unbounded().apply_columns(update=reach, **COUNT, returns={"k": pa.string()})
    batch = rows(
        EVENTS,
        ("09:00", "a", 6),
        ("09:01", "b", 9),
        ("09:02", "a", 6),
        ("09:03", "a", 9),
        ("09:04", "b", 1),
        ("09:05", "a", 2),
    )
    result = runtime.run(query, [{"events": batch}])
    expect(query, result.rows, ("09:02", "a"), ("09:04", "b"), ("09:05", "a"))
