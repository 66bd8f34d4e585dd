"""Sessions, whose answers were worked out by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

pytestmark = pytest.mark.dedicated

CLICKS = pa.schema([("ts", TIME), ("user", pa.string()), ("page", pa.string()), ("ms", pa.int64())])


def clicks(**settings: Any) -> tg.Stream:
    return tg.stream(CLICKS, time="ts", name="clicks", **settings)


def test_tuples_that_follow_one_another_closely_are_a_session(runtime: Runtime) -> None:
    """A gap of 30 minutes; a click at exactly the end of a session opens another.

    ::

        ann   09:00 ●── 09:20 ●──────────┤ 09:50     10:00 ●──────────┤ 10:30 ●──────────┤ 11:00
        bob        09:10 ●──────────┤ 09:40                   10:20 ●──────────┤ 10:50
    """
    query = clicks(disorder="10 minutes").key_by("user").session("30 minutes").aggregate(n=tg.count(), ms=tg.sum("ms"))
    assert query.schema.names == ["ts", "user", "window_start", "window_end", "n", "ms"]
    batches = [
        {"clicks": rows(CLICKS, ("09:10", "bob", "a", 1), ("09:00", "ann", "b", 2))},
        {"clicks": rows(CLICKS, ("09:20", "ann", "c", 3))},
        {"clicks": rows(CLICKS, ("10:00", "ann", "d", 5), ("10:30", "ann", "e", 4))},
        {"clicks": rows(CLICKS, ("10:20", "bob", "f", None))},
    ]
    expect(
        query,
        runtime.run(query, batches).rows,
        ("09:39:59.999999", "bob", "09:10", "09:40", 1, 1),
        ("09:49:59.999999", "ann", "09:00", "09:50", 2, 5),
        ("10:29:59.999999", "ann", "10:00", "10:30", 1, 5),
        ("10:49:59.999999", "bob", "10:20", "10:50", 1, None),
        ("10:59:59.999999", "ann", "10:30", "11:00", 1, 4),
    )


def test_a_tuple_between_two_sessions_makes_them_one(runtime: Runtime) -> None:
    """The third click comes last, an hour out of order, and lies in the stretches of both.

    ::

        ann   09:00 ●─────────┤ 09:30
                       09:25 ●─────────┤ 09:55        comes last
                             09:50 ●─────────┤ 10:20
    """
    query = clicks(disorder="1 hour").key_by("user").session("30 minutes").aggregate(pages=tg.collect("page"))
    batches = [
        {"clicks": rows(CLICKS, ("09:00", "ann", "first", 1))},
        {"clicks": rows(CLICKS, ("09:50", "ann", "third", 1))},
        {"clicks": rows(CLICKS, ("09:25", "ann", "second", 1))},
    ]
    expect(
        query,
        runtime.run(query, batches).rows,
        ("10:19:59.999999", "ann", "09:00", "10:20", ["first", "second", "third"]),
    )


def test_what_has_expired_merges_with_nothing(quick_runtime: Runtime) -> None:
    """The watermark is at 09:40: what ends by then is late, what ends later opens a session beside the one that is gone.

    ::

        ann   09:00 ●─────────┤ 09:30        gone when the watermark is at 09:40
                  09:11 ●─────────┤ 09:41    not late: it ends after the watermark
              09:10 ○─────────┤ 09:40        late
    """
    query = clicks().key_by("user").session("30 minutes").aggregate(n=tg.count())
    batches = [
        {"clicks": rows(CLICKS, ("09:00", "ann", "a", 1))},
        {"clicks": rows(CLICKS, ("09:40", "bob", "b", 1))},
        {"clicks": rows(CLICKS, ("09:10", "ann", "c", 1), ("09:11", "ann", "d", 1))},
    ]
    result = quick_runtime.run(query, batches)
    expect(
        query,
        result.rows,
        ("09:29:59.999999", "ann", "09:00", "09:30", 1),
        ("09:40:59.999999", "ann", "09:11", "09:41", 1),
        ("10:09:59.999999", "bob", "09:40", "10:10", 1),
    )
    assert result.late == 1


def test_a_session_lasts_at_most_so_long(runtime: Runtime) -> None:
    """A click every 20 minutes, sessions of an hour at most; the one at 10:00 is at the end of the first and opens another.

    ::

        ann   09:00 ●── 09:20 ●── 09:40 ●──┤ 10:00 ●── 10:20 ●── 10:59 ●┤ 11:00   11:05 ●─ …
    """
    query = clicks(disorder="1 hour").key_by("user").session("40 minutes", most="1 hour").aggregate(ms=tg.sum("ms"))
    times = ["09:20", "09:00", "10:00", "09:40", "10:20", "10:59", "11:05"]
    batches = [{"clicks": rows(CLICKS, (time, "ann", "a", 2**at))} for at, time in enumerate(times)]
    expect(
        query,
        runtime.run(query, batches).rows,
        ("09:59:59.999999", "ann", "09:00", "10:00", 1 + 2 + 8),
        ("10:59:59.999999", "ann", "10:00", "11:00", 4 + 16 + 32),
        ("11:44:59.999999", "ann", "11:05", "11:45", 64),
    )


def test_with_most_a_tuple_before_the_watermark_is_late(quick_runtime: Runtime) -> None:
    query = clicks().key_by("user").session("30 minutes", most="8 hours").aggregate(n=tg.count())
    batches = [
        {"clicks": rows(CLICKS, ("09:40", "ann", "a", 1))},
        {"clicks": rows(CLICKS, ("09:39", "ann", "b", 1), ("09:40", "ann", "c", 1))},
    ]
    result = quick_runtime.run(query, batches)
    expect(query, result.rows, ("10:09:59.999999", "ann", "09:40", "10:10", 2))
    assert result.late == 1


def test_all_aggregates(quick_runtime: Runtime) -> None:
    spread = tg.monoid(
        "ms",
        state={"low": pa.int64(), "high": pa.int64()},
        lift=lambda ms: {"low": ms, "high": ms},
        merge=lambda a, b: {
            "low": pc.min_element_wise(a["low"], b["low"]),
            "high": pc.max_element_wise(a["high"], b["high"]),
        },
        finish=lambda low, high: pc.subtract(high, low),
        returns=pa.int64(),
    )
    query = (
        clicks(disorder="1 hour")
        .key_by("user")
        .session("30 minutes")
        .aggregate(
            n=tg.count(),
            mean=tg.mean("ms"),
            least=tg.min("ms"),
            most=tg.max("page"),
            first=tg.first("page"),
            last=tg.last("page"),
            top=tg.top_k("ms", 2, take="page"),
            pages=tg.distinct("page"),
            spread=spread,
        )
    )
    batches = [
        {"clicks": rows(CLICKS, ("09:10", None, "b", 1), ("09:00", None, "a", 9))},
        {"clicks": rows(CLICKS, ("09:20", None, "b", 5))},
    ]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("09:49:59.999999", None, "09:00", "09:50", 3, 5.0, 1, "b", "a", "b", ["a", "b"], 2, 8),
    )


def test_sessions_of_all_tuples_and_of_each_element(quick_runtime: Runtime) -> None:
    """Without a key there are sessions of the whole stream; `each` gives a tuple to a session of each of its keys."""
    schema = pa.schema([("ts", TIME), ("tags", pa.list_(pa.string()))])
    posts = tg.stream(schema, time="ts", name="posts")
    arriving = rows(schema, ("09:00", ["a", "b", "a"]), ("09:20", ["b"]), ("09:40", []), ("10:20", ["a"]))
    whole = posts.session(gap="30 minutes").aggregate(n=tg.count())
    assert whole.schema.names == ["ts", "window_start", "window_end", "n"]
    expect(
        whole,
        quick_runtime.run(whole, [{"posts": arriving}]).rows,
        ("10:09:59.999999", "09:00", "10:10", 3),
        ("10:49:59.999999", "10:20", "10:50", 1),
    )
    tagged = posts.key_by(tg.each("tags", name="tag")).session("30 minutes").aggregate(n=tg.count())
    expect(
        tagged,
        quick_runtime.run(tagged, [{"posts": arriving}]).rows,
        ("09:29:59.999999", "a", "09:00", "09:30", 1),
        ("09:49:59.999999", "b", "09:00", "09:50", 2),
        ("10:49:59.999999", "a", "10:20", "10:50", 1),
    )


def test_sessions_of_counts(quick_runtime: Runtime) -> None:
    """What windows give is read on: their results carry the end − 1 µs."""
    counts = clicks().key_by("user").window("10 minutes").aggregate(n=tg.count())
    query = counts.key_by("user").session("10 minutes", most="1 hour").aggregate(n=tg.sum("n"))
    times = ["09:00", "09:01", "09:11", "09:40"]
    batches = [{"clicks": rows(CLICKS, (time, "ann", "a", 1))} for time in times]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("09:19:59.999998", "ann", "09:09:59.999999", "09:19:59.999999", 2),
        ("09:29:59.999998", "ann", "09:19:59.999999", "09:29:59.999999", 1),
        ("09:59:59.999998", "ann", "09:49:59.999999", "09:59:59.999999", 1),
    )


def test_mistakes_are_found_when_the_query_is_built() -> None:
    keyed = clicks().key_by("user")
    with pytest.raises(tg.QueryError, match=r"gap \(0.*must be longer than zero"):
        keyed.session(gap=0)
    with pytest.raises(tg.QueryError, match=r"most .* must be longer than zero"):
        keyed.session("1 minute", most=0)
    with pytest.raises(tg.QueryError, match=r"session: there is no 'lateness'.*emitted once"):
        keyed.session("1 minute", lateness="1 hour")  # type: ignore[call-arg]
    with pytest.raises(tg.QueryError, match="name at least one aggregate"):
        keyed.session("1 minute").aggregate()
    with pytest.raises(tg.QueryError, match="'cost'"):
        keyed.session("1 minute").aggregate(cost=tg.sum("cost"))
    with pytest.raises(tg.QueryError, match="allows lateness"):
        refined = keyed.window("1 hour", lateness="1 hour").aggregate(n=tg.count())
        refined.key_by("user").session("1 minute").aggregate(n=tg.count())
    with pytest.raises(tg.QueryError, match="sessions have aggregates alone"):
        keyed.session("1 minute").apply(update=None)  # type: ignore[attr-defined]
    with pytest.raises(tg.QueryError, match="'visits' in its body is an aggregate of sessions"):
        clicks().loop(
            lambda each: (each, each.key_by("user").session("1us").aggregate(n=tg.count(), name="visits")), rounds=2
        )
