"""Running state per key, whose answers were worked out by hand.

The state is a trace of what was done to it: ``1,2|3`` was created from 1, then 2 was added, and merged with a later period
that held 3.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_windows import TIME, expect, rows
from tidegate.testing import difference

pytestmark = pytest.mark.dedicated

EVENTS = pa.schema([("ts", TIME), ("k", pa.string()), ("x", pa.int64())])
TAGGED = pa.schema([("ts", TIME), ("tags", pa.list_(pa.string())), ("x", pa.int64())])
TRACE = {"state": {"trace": pa.string()}, "returns": {"trace": pa.string()}}


def create(one: Any) -> Any:
    return {"trace": str(one["x"])}


def add(state: Any, one: Any) -> Any:
    return {"trace": f"{state['trace']},{one['x']}"}


def merge(carried: Any, period: Any) -> Any:
    return {"trace": f"{carried['trace']}|{period['trace']}"}


def events(schema: pa.Schema = EVENTS, name: str = "events", **settings: Any) -> tg.Stream:
    return tg.stream(schema, time="ts", name=name, **settings)


def traced(keyed: Any, every: str = "1 minute", output: Any = dict, **settings: Any) -> tg.Stream:
    made: tg.Stream = keyed.running(create, add, merge, output, every=every, **{**TRACE, **settings})
    return made


def test_every_live_key_is_emitted_at_the_end_of_every_period(runtime: Runtime) -> None:
    """A tuple at 09:03 belongs to the period that begins there. The last period is that of the last tuple, for all keys.

    ::

               09:00     09:01     09:02     09:03     09:04
        a       1  2                         3
        b          9                                         4
               ─────────┼─────────┼─────────┼─────────┼──────────
    """
    query = traced(events().key_by("k"))
    batches = [
        {"events": rows(EVENTS, ("09:00:10", "a", 1), ("09:00:50", "b", 9), ("09:00:50", "a", 2))},
        {"events": rows(EVENTS, ("09:03", "a", 3))},
        {"events": rows(EVENTS, ("09:04:59.999999", "b", 4))},
    ]
    expect(
        query,
        runtime.run(query, batches).rows,
        *[(f"09:0{minute}:59.999999", "a", "1,2") for minute in (0, 1, 2)],
        ("09:03:59.999999", "a", "1,2|3"),
        ("09:04:59.999999", "a", "1,2|3"),
        *[(f"09:0{minute}:59.999999", "b", "9") for minute in (0, 1, 2, 3)],
        ("09:04:59.999999", "b", "9|4"),
    )


def test_a_key_that_retires_is_forgotten_and_may_return(runtime: Runtime) -> None:
    """The rows of the period in which it retires are emitted; it returns as if it had never been there."""

    def output(state: Any) -> Any:
        return tg.updated(rows={"trace": state["trace"]}, retire=state["trace"].endswith("0"))

    query = traced(events().key_by("k"), output=output)
    batches = [
        {"events": rows(EVENTS, ("09:00:10", "a", 1), ("09:00:20", "b", 0))},
        {"events": rows(EVENTS, ("09:01:10", "a", 0))},
        {"events": rows(EVENTS, ("09:03:10", "c", 7), ("09:03:20", "a", 5), ("09:03:30", "b", 6))},
    ]
    expect(
        query,
        runtime.run(query, batches).rows,
        ("09:00:59.999999", "a", "1"),
        ("09:00:59.999999", "b", "0"),
        ("09:01:59.999999", "a", "1|0"),
        ("09:03:59.999999", "a", "5"),
        ("09:03:59.999999", "b", "6"),
        ("09:03:59.999999", "c", "7"),
    )


def test_periods_before_the_epoch(quick_runtime: Runtime) -> None:
    """Periods of 10 µs: [−30, −20), [−20, −10), [−10, 0), [0, 10), [10, 20)."""
    query = traced(events().key_by("k"), "10us")

    def at(times: list[int], values: list[Any], names: list[str]) -> pa.Table:
        moments = pa.array(times, pa.int64()).cast(TIME)
        return pa.table({"ts": moments, "k": ["a"] * len(times), names[2]: values})

    arriving = at([-25, -10, -1, 0, 12], [1, 2, 3, 4, 5], EVENTS.names)
    for cut in range(1, 5):
        made = quick_runtime.run(query, [{"events": arriving.slice(0, cut)}, {"events": arriving.slice(cut)}]).rows
        wanted = at([-21, -11, -1, 9, 19], ["1", "1", "1|2,3", "1|2,3|4", "1|2,3|4|5"], query.schema.names)
        assert (told := difference(made, wanted)) is None, told


def test_the_last_period_is_that_of_the_sources_last_tuple(runtime: Runtime) -> None:
    """A filter drops the last tuple, which comes with the end of input, or before it: the answer is one."""
    query = traced(events().filter(nw.col("x") > 0).key_by("k"))
    first, last = rows(EVENTS, ("09:00:10", "a", 1)), rows(EVENTS, ("09:02:30", "b", -1))
    wanted = [(f"09:0{minute}:59.999999", "a", "1") for minute in (0, 1, 2)]
    expect(query, runtime.run(query, [{"events": first}, {"events": last}]).rows, *wanted)


def test_a_tuple_without_keys_may_be_the_last(quick_runtime: Runtime) -> None:
    query = traced(events(TAGGED).key_by(tg.each("tags", name="tag")))
    batches = [
        {"events": rows(TAGGED, ("09:00:10", ["a", "b", "a"], 1), ("09:00:20", ["b"], 2))},
        {"events": rows(TAGGED, ("09:01:30", [], 3))},
    ]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("09:00:59.999999", "a", "1"),
        ("09:00:59.999999", "b", "1,2"),
        ("09:01:59.999999", "a", "1"),
        ("09:01:59.999999", "b", "1,2"),
    )


def test_a_tuple_before_the_watermark_is_late_though_its_period_is_open(runtime: Runtime) -> None:
    query = traced(events(disorder="10 seconds").key_by("k"))
    batches = [
        {"events": rows(EVENTS, ("09:00:40", "a", 1))},
        {"events": rows(EVENTS, ("09:00:30", "a", 2), ("09:00:29", "a", 3), ("09:00:35", "a", 4))},
    ]
    result = runtime.run(query, batches)
    # The watermark is at 09:00:30: a tuple of that time is not late, one before it is.
    expect(query, result.rows, ("09:00:59.999999", "a", "2,4,1"))
    assert result.late == 1


def test_output_gives_none_one_or_many_rows(quick_runtime: Runtime) -> None:
    def output(state: Any) -> Any:
        return [{"trace": part} for part in state["trace"].split("|") if part != "0"]

    query = traced(events().key_by("k"), output=output)
    arriving = rows(EVENTS, ("09:00:10", "a", 0), ("09:01:10", "a", 1), ("09:02:10", "a", 2), ("09:03:10", "b", 0))
    expect(
        query,
        quick_runtime.run(query, [{"events": arriving}]).rows,
        ("09:01:59.999999", "a", "1"),
        *[(f"09:0{minute}:59.999999", "a", trace) for minute in (2, 3) for trace in ("1", "2")],
    )


def test_several_inputs_share_a_state(quick_runtime: Runtime) -> None:
    """Tuples of one time come in the order of inputs."""

    def of(one: Any) -> Any:
        return {"trace": f"{one.input}:{one['x']}"}

    both = tg.gather(events(name="one").key_by("k"), events(name="other").key_by("k"))
    query = both.running(
        of, lambda state, one: {"trace": f"{state['trace']} {of(one)['trace']}"}, merge, dict, every="1 minute", **TRACE
    )
    batches = [
        {"one": rows(EVENTS, ("09:00:10", "a", 1)), "other": rows(EVENTS, ("09:00:10", "a", 2))},
        {"one": rows(EVENTS, ("09:01:10", "a", 3)), "other": rows(EVENTS, ("09:01:00", "a", 4))},
    ]
    expect(
        query,
        quick_runtime.run(query, batches).rows,
        ("09:00:59.999999", "a", "0:1 1:2"),
        ("09:01:59.999999", "a", "0:1 1:2|1:4 0:3"),
    )


def test_between_other_stateful_steps(runtime: Runtime) -> None:
    """Counts of two minutes, their running trace every minute, and how many rows that gave in four minutes.

    The counts at 09:01:59.999999 and 09:05:59.999999: the last is a tuple of the step, and later than any of the source.
    """
    counts = events().key_by("k").window("2 minutes").aggregate(x=tg.count())
    query = traced(counts.select("ts", "k", "x").key_by("k"))
    ended = query.key_by("trace").window("4 minutes").aggregate(n=tg.count())
    batches = [
        {"events": rows(EVENTS, ("09:00:10", "a", 1), ("09:01:10", "a", 1))},
        {"events": rows(EVENTS, ("09:04:10", "a", 1))},
    ]
    expect(
        query,
        runtime.run(query, batches).rows,
        *[(f"09:0{minute}:59.999999", "a", "2") for minute in (1, 2, 3, 4)],
        ("09:05:59.999999", "a", "2|1"),
    )
    expect(
        ended,
        runtime.run(ended, batches).rows,
        ("09:03:59.999999", "2", "09:00", "09:04", 3),
        ("09:07:59.999999", "2", "09:04", "09:08", 1),
        ("09:07:59.999999", "2|1", "09:04", "09:08", 1),
    )
