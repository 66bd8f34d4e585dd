"""Several results of one query, and streams that are routed; answers worked out by hand."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.runtimes import Batches, Lowered, OnMicro, Runtime
from tests.semantics.test_windows import TIME, expect, rows
from tidegate.query.outputs import untagged
from tidegate.stream import one_query

CALLS = pa.schema([("ts", TIME), ("k", pa.string()), ("n", pa.int64())])


def calls(name: str = "s") -> tg.Stream:
    return tg.stream(CALLS, time="ts", name=name)


def run(runtime: Runtime, results: dict[str, tg.Stream], batches: Batches) -> tuple[dict[str, pa.Table], int]:
    """The rows of each result, and how many tuples were late."""
    if isinstance(runtime, Lowered) and isinstance(runtime.runtime, OnMicro):
        pytest.skip(reason="the engine of one operator has one result")
    given = runtime.run(one_query("test", results), batches)
    return {name: untagged(given.rows, name) for name in results}, given.late


def check(results: dict[str, tg.Stream], found: dict[str, pa.Table], **expected: list[tuple[Any, ...]]) -> None:
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        expect(results[name], found[name], *wanted)


def test_a_tuple_goes_to_the_first_route_whose_predicate_is_true(runtime: Runtime) -> None:
    """Null is not true: a tuple without a value goes past every predicate to the rest.

    ::

        n       5      50      500      null
        takes   rest   some    big      rest
    """
    parts = dict(calls().route(big=nw.col("n") > 100, some=nw.col("n") > 10, rest=True))
    found, _ = run(
        runtime,
        parts,
        [
            {"s": rows(CALLS, ("09:00", "a", 5), ("09:00", "a", 50))},
            {"s": rows(CALLS, ("09:01", "a", 500), ("09:02", "b", None))},
        ],
    )
    check(
        parts,
        found,
        big=[("09:01", "a", 500)],
        some=[("09:00", "a", 50)],
        rest=[("09:00", "a", 5), ("09:02", "b", None)],
    )


@pytest.mark.dedicated
def test_a_step_two_results_and_another_step_read_is_counted_once(runtime: Runtime) -> None:
    """Counts per minute leave as they are, filtered, and counted again; a tuple that is late is late once.

    ::

        09:00 a a b    09:01 a    09:10 a    (09:00 b comes behind 09:10: late)
    """
    minutes = calls().key_by("k").window("1 minute").aggregate(n=tg.count(), name="minutes")
    results = {
        "minutes": minutes,
        "busy": minutes.filter(nw.col("n") > 1).select("ts", "k", "n"),
        "keys": minutes.window("5 minutes").aggregate(keys=tg.distinct("k"), name="keys").select("ts", "keys"),
        "same": minutes,
    }
    found, late = run(
        runtime,
        results,
        [
            {"s": rows(CALLS, ("09:00", "a", 1), ("09:00:10", "a", 1), ("09:00:20", "b", 1))},
            {"s": rows(CALLS, ("09:01", "a", 1))},
            {"s": rows(CALLS, ("09:10", "a", 1))},
            {"s": rows(CALLS, ("09:00", "b", 1))},
        ],
    )
    every = [
        ("09:00:59.999999", "a", "09:00", "09:01", 2),
        ("09:00:59.999999", "b", "09:00", "09:01", 1),
        ("09:01:59.999999", "a", "09:01", "09:02", 1),
        ("09:10:59.999999", "a", "09:10", "09:11", 1),
    ]
    check(
        results,
        found,
        minutes=every,
        busy=[("09:00:59.999999", "a", 2)],
        keys=[("09:04:59.999999", 2), ("09:14:59.999999", 1)],
        same=every,
    )
    assert late == 1


def test_results_of_two_streams_that_nothing_brings_together(quick_runtime: Runtime) -> None:
    """One stream has a stateful step, the other none, and a third result has tuples of both."""
    left, right = calls("left"), calls("right")
    results = {
        "counts": left.key_by("k").window("1 minute").aggregate(n=tg.count()).select("ts", "n"),
        "right": right.filter(nw.col("n") > 1),
        "both": left.union(right).select("ts", "n"),
    }
    found, late = run(
        quick_runtime,
        results,
        [
            {"left": rows(CALLS, ("09:00", "a", 1)), "right": rows(CALLS, ("09:00", "b", 2))},
            {"right": rows(CALLS, ("09:05", "b", 1))},
            {"left": rows(CALLS, ("09:06", "a", 3))},
        ],
    )
    check(
        results,
        found,
        counts=[("09:00:59.999999", 1), ("09:06:59.999999", 1)],
        right=[("09:00", "b", 2)],
        both=[("09:00", 1), ("09:00", 2), ("09:05", 1), ("09:06", 3)],
    )
    assert late == 0


def test_a_result_that_stays_empty(quick_runtime: Runtime) -> None:
    results = {"none": (stream := calls()).filter(nw.col("n") > 9), "all": stream.select("ts")}
    found, _ = run(quick_runtime, results, [{"s": rows(CALLS, ("09:00", "a", 1))}])
    check(results, found, none=[], all=[("09:00",)])
