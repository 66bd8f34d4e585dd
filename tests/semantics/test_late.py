"""Late tuples as a result of their own; answers worked out by hand."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Runtime
from tests.semantics.test_outputs import check, run
from tests.semantics.test_windows import TIME, rows
from tidegate.testing import difference

pytestmark = pytest.mark.dedicated

CALLS = pa.schema([("ts", TIME), ("k", pa.string()), ("n", pa.int64())])


def calls(name: str = "s", **how: Any) -> tg.Stream:
    return tg.stream(CALLS, time="ts", name=name, **how)


def per_minute(stream: tg.Stream, name: str = "minutes") -> tg.Stream:
    return stream.key_by("k").window("1 minute").aggregate(calls=tg.count(), name=name)


def test_late_tuples_leave_beside_the_results_with_all_columns_and_the_watermark(runtime: Runtime) -> None:
    """The column ``n``, which the count does not read, is there too; steps and routes after it are like any others.

    ::

        09:00 a   09:05 a  |  09:02 b (late, W = 09:05)   09:06 a  |  09:05 a (late, W = 09:06)   09:06 a
    """
    minutes = per_minute(calls())
    missed = minutes.filter(nw.col("calls") > 1).late(name="missed")
    parts = missed.with_columns(n=nw.col("n") * 10).route(big=nw.col("n") > 100, rest=True)
    results = {"minutes": minutes, "late": missed, "big": parts.big.select("ts", "n")}
    found, count = run(
        runtime,
        results,
        [
            {"s": rows(CALLS, ("09:00", "a", 1), ("09:05", "a", 2))},
            {"s": rows(CALLS, ("09:02", "b", 30), ("09:06", "a", 4))},
            {"s": rows(CALLS, ("09:05", "a", 5), ("09:06", "a", 6))},
        ],
    )
    assert count == 2
    check(
        {"late": missed, "big": results["big"]},
        {name: found[name] for name in ("late", "big")},
        late=[("09:02", "b", 30, "09:05"), ("09:05", "a", 5, "09:06")],
        big=[("09:02", 300)],
    )
    assert sorted(found["minutes"].column("calls").to_pylist()) == [1, 1, 2]


def test_late_tuples_may_be_the_only_result(quick_runtime: Runtime) -> None:
    missed = per_minute(calls()).late()
    found, _ = run(
        quick_runtime,
        {"late": missed},
        [{"s": rows(CALLS, ("09:05", "a", 1))}, {"s": rows(CALLS, ("09:00", "a", 2), ("09:05", "b", 3))}],
    )
    check({"late": missed}, found, late=[("09:00", "a", 2, "09:05")])


def test_each_input_of_a_join_has_late_tuples_of_its_own(quick_runtime: Runtime) -> None:
    """What reads a step that feeds another step is told apart from the late tuples of the first."""
    right = calls("r").select("ts", "k", m=nw.col("n"))
    pairs = calls().join(right, on="k", within="1 minute", name="pairs")
    results = {"pairs": pairs.select("ts", "n", "m"), "left": pairs.late("left"), "right": pairs.late(of=1)}
    found, count = run(
        quick_runtime,
        results,
        [
            {"s": rows(CALLS, ("09:05", "a", 1)), "r": rows(CALLS, ("09:05", "a", 2))},
            {"s": rows(CALLS, ("09:04", "a", 3), ("09:05", "b", 4)), "r": rows(CALLS, ("09:04", "a", 5))},
        ],
    )
    assert count == 2
    check(
        results,
        found,
        pairs=[("09:05", 1, 2)],
        left=[("09:04", "a", 3, "09:05")],
        right=[("09:04", "a", 5, "09:05")],
    )


def test_late_tuples_of_a_step_that_another_reads_and_of_streams_brought_together(quick_runtime: Runtime) -> None:
    """The aggregate reads two streams; what is late of either is one stream, which is united with another one.

    ::

        s   09:05 a   09:00 a (late)    r   09:05 b   09:01 b (late)    W = 09:05 after the first batch
    """
    stream = calls()
    minutes = per_minute(stream.union(calls("r")))
    hours = minutes.window("1 hour").aggregate(minutes=tg.count(), name="hours")
    missed = minutes.late().select("ts", "k")
    results = {"hours": hours.select("ts", "minutes"), "all": missed.union(stream.select("ts", "k"))}
    found, count = run(
        quick_runtime,
        results,
        [
            {"s": rows(CALLS, ("09:05", "a", 1)), "r": rows(CALLS, ("09:05", "b", 1))},
            {"s": rows(CALLS, ("09:00", "a", 2)), "r": rows(CALLS, ("09:01", "b", 2))},
        ],
    )
    assert count == 2
    check(
        results,
        found,
        hours=[("09:59:59.999999", 2)],
        all=[("09:05", "a"), ("09:00", "a"), ("09:00", "a"), ("09:01", "b")],
    )


def test_one_result_that_unites_late_tuples_with_a_stream(quick_runtime: Runtime) -> None:
    both = per_minute(calls()).late().select("ts", "k").union(calls("r").select("ts", "k"))
    given = quick_runtime.run(
        both,
        [
            {"s": rows(CALLS, ("09:05", "a", 1)), "r": rows(CALLS, ("09:05", "b", 1))},
            {"s": rows(CALLS, ("09:00", "a", 2)), "r": rows(CALLS, ("09:06", "b", 2))},
        ],
    )
    wanted = rows(both.schema, ("09:05", "b"), ("09:06", "b"), ("09:00", "a"))
    assert difference(given.rows, wanted) is None
