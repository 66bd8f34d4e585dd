"""Dedup, whose answers were worked out by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows

pytestmark = pytest.mark.dedicated

EVENTS = pa.schema([("ts", TIME), ("k", pa.string()), ("x", pa.float64())])


def events(**settings: Any) -> tg.Stream:
    return tg.stream(EVENTS, time="ts", name="events", **settings)


def test_a_tuple_is_kept_when_it_is_far_enough_after_the_last_one_kept(runtime: Runtime) -> None:
    """What was dropped does not count: 09:40 is dropped, so 10:10 is compared with 09:00.

    ::

        a   09:00 ● ── 09:40 ○ ── 09:59:59.999999 ○ ── 10:10 ● ── 11:09 ○ ── 11:10 ●
        b              09:40 ●                          10:10 ○
    """
    query = events().dedup("k", within="1 hour")
    batches = [
        {"events": rows(EVENTS, ("09:00", "a", 1.0), ("09:40", "a", 2.0), ("09:40", "b", 3.0))},
        {"events": rows(EVENTS, ("09:59:59.999999", "a", 4.0), ("10:10", "a", 5.0), ("10:10", "b", 6.0))},
        {"events": rows(EVENTS, ("11:09", "a", 7.0), ("11:10", "a", 8.0))},
    ]
    expect(
        query,
        runtime.run(query, batches).rows,
        ("09:00", "a", 1.0),
        ("09:40", "b", 3.0),
        ("10:10", "a", 5.0),
        ("11:10", "a", 8.0),
    )


def test_of_tuples_of_one_time_the_first_in_canonical_order_is_kept(runtime: Runtime) -> None:
    query = events(disorder="1 minute").dedup(["k"], within="1us")
    batches = [
        {"events": rows(EVENTS, ("09:00:30", "a", 2.0), ("09:00", None, 7.0))},
        {"events": rows(EVENTS, ("09:00:30", "a", 1.0), ("09:00:30", "a", None), ("09:00", None, 6.0))},
    ]
    expect(query, runtime.run(query, batches).rows, ("09:00", None, 6.0), ("09:00:30", "a", None))


def test_keys_of_several_columns_among_them_floats(quick_runtime: Runtime) -> None:
    """NaN is one key, and −0.0 is 0.0."""
    query = events().dedup(["k", "x"], within="1 hour")
    nan = float("nan")
    batches = [
        {"events": rows(EVENTS, ("09:00", "a", nan), ("09:01", "a", 0.0), ("09:02", "b", nan), ("09:03", "a", None))},
        {"events": rows(EVENTS, ("09:10", "a", nan), ("09:11", "a", -0.0), ("09:12", "a", None), ("10:00", "a", nan))},
    ]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("09:00", "a", nan),
        ("09:01", "a", 0.0),
        ("09:02", "b", nan),
        ("09:03", "a", None),
        ("10:00", "a", nan),
    )


def test_a_tuple_before_the_watermark_is_late(quick_runtime: Runtime) -> None:
    query = events(disorder="10 seconds").dedup("k", within="1 hour")
    batches = [
        {"events": rows(EVENTS, ("09:00:40", "a", 1.0))},
        {"events": rows(EVENTS, ("09:00:29", "b", 2.0), ("09:00:30", "a", 3.0))},
    ]
    result = quick_runtime.run(query, batches)
    expect(query, result.rows, ("09:00:30", "a", 3.0))
    assert result.late == 1


def test_around_the_epoch(quick_runtime: Runtime) -> None:
    """A tuple kept at 0 is not mistaken for none."""
    query = events().dedup("k", within="10us")
    times = [-15, -6, -5, 0, 4, 5, 14, 15]

    def at(some: list[int]) -> pa.Table:
        moments = pa.array(some, pa.int64()).cast(TIME)
        return pa.table([moments, ["a"] * len(some), pa.array(some, pa.float64())], schema=EVENTS)

    for cut in range(1, len(times)):
        parts = [{"events": at(times[:cut])}, {"events": at(times[cut:])}]
        made = quick_runtime.run(query, parts).rows.column("x").to_pylist()
        assert sorted(made) == [-15, -5, 5, 15]
    parts = [{"events": at([0])}, {"events": at([9])}, {"events": at([10])}]
    assert sorted(quick_runtime.run(query, parts).rows.column("x").to_pylist()) == [0, 10]


def test_mistakes_are_found_when_the_query_is_built() -> None:
    with pytest.raises(tg.QueryError, match="must be longer than zero"):
        events().dedup("k", within=0)
    with pytest.raises(tg.QueryError, match="dedup takes the column, or a list of those, to compare; got \\[\\]"):
        events().dedup([], within="1 second")
    with pytest.raises(tg.QueryError, match="'y'"):
        events().dedup("y", within="1 second")
    with pytest.raises(tg.QueryError, match="within"):
        events().dedup("k")  # type: ignore[call-arg]
