"""Flow control never stops a run: ways that part and meet again, with bounds far below what one step makes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.gates import all_times, batch, in_thread, until
from tidegate.gate import FlowLimits, Gate
from tidegate.reference import events_of, interpret
from tidegate.testing import difference

ROWS = 60


def table(step: int = 1, rows: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([step * at for at in range(rows)], pa.timestamp("us")),
            "k": [f"k{at % 7}" for at in range(rows)],
            "n": list(range(rows)),
        }
    )


def many(stream: tg.Stream, name: str) -> tg.Stream:
    """Twenty results for each tuple."""
    made = stream.key_by("k").window("20 us", every="1 us").aggregate(n=tg.count(), name=name)
    return made.select("ts", "k", "n")


def few(stream: tg.Stream, name: str) -> tg.Stream:
    """A result per key and thirty microseconds."""
    return stream.key_by("k").window("30 us").aggregate(n=tg.sum("n"), name=name).select("ts", "k", "n")


def a_union_of_two_branches(one: tg.Stream, two: tg.Stream) -> tg.Stream:
    return many(one, "many").union(few(one, "few"))


def a_join_of_two_branches(one: tg.Stream, two: tg.Stream) -> tg.Stream:
    return many(one, "many").join(few(one, "few"), on="k", within="3 us", name="joined")


def a_self_join(one: tg.Stream, two: tg.Stream) -> tg.Stream:
    return one.join(one, on="k", within="9 us", name="itself")


def a_stream_with_its_own_branch(one: tg.Stream, two: tg.Stream) -> tg.Stream:
    return one.join(many(one, "many"), on="k", within="2 us", name="joined")


def results_that_are_used_twice(one: tg.Stream, two: tg.Stream) -> tg.Stream:
    first = many(one, "first")
    return many(first, "second").union(few(first, "third"))


def two_streams_crosswise(one: tg.Stream, two: tg.Stream) -> tg.Stream:
    left = many(one.union(two), "left").join(two, on="k", within="2 us", name="first")
    return left.select("ts", "k", "n").union(few(two, "few"), many(one, "many"))


SHAPES: list[Callable[[tg.Stream, tg.Stream], tg.Stream]] = [
    a_union_of_two_branches,
    a_join_of_two_branches,
    a_self_join,
    a_stream_with_its_own_branch,
    results_that_are_used_twice,
    two_streams_crosswise,
]


@pytest.mark.parametrize("waiting_rows", [1, 10])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_ways_that_meet_again_end_with_the_laws_answer(
    shape: Callable[[tg.Stream, tg.Stream], tg.Stream], waiting_rows: int
) -> None:
    tables = {"one": table(), "two": table(3, ROWS // 3)}
    query = shape(*(tg.stream(rows, time="ts", name=name) for name, rows in tables.items()))
    made: list[pa.Table] = []
    job = tg.start(query, to=made.append, waiting_rows=waiting_rows, segment_rows=40)
    ended = job.wait(20)
    job.cancel()
    assert ended, "the run hangs"
    law = interpret(query.node, events_of(query.node, tables))
    assert law.rows.num_rows, "a case that shows nothing"
    told = difference(pa.concat_tables([query.schema.empty_table(), *made]), law.rows)
    assert told is None, f"results differ (left: the run, right: the law)\n{told}"


def test_an_offer_is_taken_in_at_once_and_says_whether_to_wait() -> None:
    """
    log bound 2   1 2 3 |     offered whole, as others may depend on it; then its thread waits
    """
    gate = Gate(["a"], ["r"], segment_rows=1, limits=FlowLimits(log_rows=2))
    a = gate.source("a")
    assert not a.offer(batch(1, 2))
    assert a.offer(batch(3))
    with in_thread(a.wait_for_room) as done:
        until(lambda: a.blocked.waiting)
        assert all_times(gate.reader("r")) == [1, 2, 3]
        until(lambda: bool(done))


def test_a_thread_that_offers_to_all_its_sources_waits_for_none_of_them() -> None:
    """
    a   1 2 3 4     more than may be held unready, until b has the same
    b   1 2 3 4
    """
    gate = Gate(["a", "b"], ["r"], limits=FlowLimits(unready_rows=1))
    a, b = gate.source("a"), gate.source("b")
    full = [source for source in (a, b) if source.offer(batch(1, 2, 3, 4))]
    assert full == [a]
    with in_thread(a.wait_for_room) as done:
        until(lambda: bool(done))
    assert done == [None]


def test_what_waits_in_front_of_a_subquery_is_bounded_by_a_batch_more_than_allowed() -> None:
    begun, go = threading.Event(), threading.Event()

    def held(given: pa.RecordBatch) -> pa.RecordBatch:
        if given.num_rows:
            begun.set()
            assert go.wait(30)
        return given

    stream = tg.stream(table(rows=3_000), time="ts").map_batches(held)
    job = tg.start(few(stream, "few"), instances=1, segment_rows=50, waiting_rows=200, to=lambda made: None)
    assert begun.wait(30)
    until(lambda: any(job.figures(0.0).subqueries[0].blocked.blocked_seconds.values()))
    assert job.rows <= 200 + 50, "what may wait, and the batch that was too much"
    go.set()
    assert job.wait(30)
