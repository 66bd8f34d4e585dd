"""State of sessions is that of those which are open, and what is not touched is not written again."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.spark_driver import Batch, Driver
from tidegate.operators.session_runs import OpenSessions
from tidegate.operators.session_tables import SessionTables
from tidegate.operators.shared_sessions import SharedSessions
from tidegate.query.nodes import SessionAggregate
from tidegate.watermark import START

TIME = pa.timestamp("us", tz="UTC")
GAP = 1_000


def tuples(start: int, keys: range) -> pa.Table:
    """One tuple each 10 µs, each of another key."""
    times = pa.array(range(start, start + 10 * len(keys), 10), pa.int64()).cast(TIME)
    return pa.table({"ts": times, "k": [f"key {key}" for key in keys]})


def counts(most: str | None = None) -> SessionAggregate:
    stream = tg.stream(tuples(0, range(1)).schema, time="ts", name="s")
    node = stream.key_by("k").session("1ms", most=most).aggregate(n=tg.count()).node
    assert isinstance(node, SessionAggregate)
    return node


@pytest.mark.parametrize("most", [None, "3ms"])
def test_state_is_that_of_open_sessions(most: str | None) -> None:
    node = counts(most)
    shared, driver = SharedSessions(OpenSessions(SessionTables(node))), Driver(node, 1)
    before = START
    for number in range(40):
        table, watermark = tuples(number * GAP, range(100 * number, 100 * number + 100)), (number + 1) * GAP
        shared.hold(number, table)
        made = sum(results.num_rows for results in shared.advance(number, before, watermark))
        assert made == (100 if number else 1)  # those of the batch before, and the first of the first
        assert shared.rows <= 600
        driver.batch(Batch({"s": [table]}))
        assert sum(chunk.rows for chunk in driver.held()) <= 1_000
        before = watermark


def test_what_is_not_touched_is_not_written_again() -> None:
    node = counts()
    shared = SharedSessions(OpenSessions(SessionTables(node)))
    shared.hold(0, tuples(0, range(90)))
    assert not list(shared.advance(0, START, 900))
    shared.hold(1, tuples(900, range(1)))
    assert not list(shared.advance(1, 900, 901))
    assert [run.rows for run in shared._runs] == [90, 1]
    assert sum(results.num_rows for results in shared.advance(2, 901, 1_900)) == 90
    assert shared.rows == 0
