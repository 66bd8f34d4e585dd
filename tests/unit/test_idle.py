"""Sources that fall silent: they hold back nobody, what they bring later is judged by the watermark then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tests.kit.check_durable import Attempt, Batches, run_once
from tests.kit.gates import until
from tests.kit.spark_driver import Batch, Driver, clock_of
from tidegate.compile.compiler import compile_query
from tidegate.errors import DataError, QueryError, UnsupportedError
from tidegate.query.nodes import Source
from tidegate.query.outputs import untagged
from tidegate.reference import Advance, Rows, interpret
from tidegate.reference.batches import batch_events
from tidegate.results import read_results
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.sinks import ToFunction
from tidegate.stream import one_query
from tidegate.testing import difference

TIME = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema({"ts": TIME, "k": pa.string()})


def tuples(*times: int) -> pa.Table:
    return pa.table({"ts": pa.array(times, TIME), "k": ["k"] * len(times)}, schema=COLUMNS)


def stream(name: str, origin: Any = None, **how: Any) -> tg.Stream:
    if origin is None:
        return tg.stream(COLUMNS, time="ts", name=name, **how)
    return tg.stream(origin, time="ts", name=name, schema=COLUMNS, **how)


def counted(*streams: tg.Stream) -> tg.Stream:
    first, *others = streams
    return first.union(*others).window("10us").aggregate(n=tg.count(), name="counts")


def both(counts: tg.Stream) -> tg.Stream:
    return one_query("test", {"counts": counts, "late": counts.late()})


# The law, and Spark's batches, which are a second of the clock apart.

BATCHES: list[dict[str, list[pa.Table]]] = [
    {"a": [tuples(5)], "b": [tuples(5)]},
    {"a": [tuples(15)]},  # b is silent for a second: not idle yet
    {"a": [tuples(25)]},  # for two: idle, so the window [0, 10) ends
    {},
    {"b": [tuples(8, 30)]},  # back: 8 is late, and so is nothing else
    {"a": [tuples(40)], "b": [tuples(41)]},
]


def lawful(query: tg.Stream, batches: list[dict[str, list[pa.Table]]]) -> list[Rows | Advance]:
    timed = [
        (clock_of(number), {name: pa.concat_tables(tables) for name, tables in batch.items()})
        for number, batch in enumerate(batches)
    ]
    return list(batch_events(query.node, timed))


def test_the_law_passes_an_idle_source_over_and_judges_it_when_it_is_back() -> None:
    query = both(counted(stream("a"), stream("b", idle_after="2 seconds")))
    events = lawful(query, BATCHES)
    assert [each.watermark for each in events[:-1] if isinstance(each, Advance)] == [5, 25, 40]
    law = interpret(query.node, events)
    assert law["late"].column("ts").cast(pa.int64()).to_pylist() == [8]
    assert sum(law["counts"].column("n").to_pylist()) == 7


def test_where_all_are_idle_nothing_moves() -> None:
    """Both fall silent at 5; an hour later no window has ended, nor when the slower one goes on alone."""
    query = counted(*(stream(name, idle_after="1 second", disorder="3us") for name in "ab"))
    silence: list[dict[str, list[pa.Table]]] = [{} for _ in range(3600)]
    events = lawful(query, [{"a": [tuples(9)], "b": [tuples(5)]}, *silence])
    assert [each.watermark for each in events[:-1] if isinstance(each, Advance)] == [2]


@pytest.mark.parametrize("cells", [1, 3])
def test_on_spark_batches_say_when_a_source_is_idle_however_often_they_are_run(cells: int) -> None:
    query = both(counted(stream("a"), stream("b", idle_after="2 seconds")))
    twice, new = {"attempts": 2}, {"restart": True, "cold": True}
    faults: list[dict[str, Any]] = [{}, twice, new | twice, new, {"zombie": True}, {}]
    outcome = Driver(query.node, cells).run(
        [Batch(parts, **fault) for parts, fault in zip(BATCHES, faults, strict=True)]
    )
    law = interpret(query.node, lawful(query, BATCHES))
    made = pa.concat_tables(outcome.tables)
    for name in ("counts", "late"):
        assert difference(untagged(made, name), law[name]) is None
    assert outcome.late == law.late == 1


def test_on_spark_a_source_that_only_an_earlier_step_reads_is_passed_over_there_too() -> None:
    """The changes reach the join through a dedup of their own: both steps know how far the orders have come."""
    changes = stream("b", idle_after="2 seconds").dedup("k", within="1us", name="changes")
    query = stream("a").join_asof(changes.select("ts", "k", at=nw.col("ts")), on="k", how="left", name="joined")
    batches = [*BATCHES[:3], {"a": [tuples(35)]}]
    outcome = Driver(query.node, 1).run([Batch(parts) for parts in batches])
    assert [each for each in outcome.events if isinstance(each, Advance)][4:8] == [
        Advance(25, "changes"),
        Advance(25, "joined"),
        Advance(35, "changes"),
        Advance(35, "joined"),
    ]
    law = interpret(query.node, lawful(query, batches))
    assert difference(pa.concat_tables(outcome.tables), law.rows) is None
    with pytest.raises(UnsupportedError, match=r"step 'changes': with idle_after a .* of 'a' do not come near"):
        compile_query(query.node, "spark", cells=2)


# In process, with a clock of the test's own.


class Clock:
    """Shows what it is set to, in seconds."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Waiting:
    """A stream that gives what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.changed = threading.Condition()
        self.given = 0

    def give(self, item: Any) -> None:
        with self.changed:
            self.items.append(item)
            self.changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: len(self.items) > self.given, 30)
                item = self.items[self.given]
                self.given += 1
            if item is None:
                return
            yield item


def started(query: tg.Stream, clock: Clock) -> tuple[LocalJob, list[pa.Table]]:
    plan, tables = compile_query(query.node, "local"), []
    settings = Settings(2, segment_rows=1, linger_seconds=0.0, clock=clock)
    job = LocalJob(plan, ToFunction(lambda name, table: tables.append((name, table)), plan.names), settings)
    job.start()
    return job, tables


def results(tables: list[Any], name: str, column: str) -> list[int]:
    found = [table.column(column) for each, table in tables if each == name]
    return [value for one in found for value in (one.cast(pa.int64()) if column == "ts" else one).to_pylist()]


def test_in_process_an_idle_source_is_passed_over_and_its_late_tuples_are_counted() -> None:
    clock, a, b = Clock(), Waiting(), Waiting()
    query = both(counted(stream("a", a), stream("b", b, idle_after="10 seconds")))
    job, tables = started(query, clock)
    inlets = {inlet.source.name: inlet for inlet in job.running.graph.inlets}
    check = job.running.graph.idleness.check
    a.give(tuples(5))
    b.give(tuples(5))
    a.give(tuples(15))
    until(lambda: (inlets["a"].newest, inlets["b"].newest) == (15, 5))
    clock.seconds = 9.0
    check()
    assert job.running.graph.subqueries[0].gate.watermark <= 5
    clock.seconds = 10.0
    check()  # both have been silent for so long, but only b may idle
    until(lambda: results(tables, "counts", "n") == [2])
    a.give(tuples(25))  # while b is idle, what others deliver moves it on
    until(lambda: results(tables, "counts", "n") == [2, 1])
    b.give(tuples(8, 30))
    until(lambda: results(tables, "late", "ts") == [8])
    for each in (a, b):
        each.give(None)
    assert job.wait(30)
    assert results(tables, "counts", "n") == [2, 1, 1, 1]
    assert job.late == 1


def test_in_process_nothing_moves_where_all_are_idle_and_one_that_is_held_up_is_not() -> None:
    clock, a, b = Clock(), Waiting(), Waiting()
    query = both(counted(*(stream(name, each, idle_after="1 second") for name, each in (("a", a), ("b", b)))))
    job, tables = started(query, clock)
    a.give(tuples(5, 50))
    b.give(tuples(5))
    inlets = {inlet.source.name: inlet for inlet in job.running.graph.inlets}
    until(lambda: (inlets["a"].newest, inlets["b"].newest) == (50, 5))
    clock.seconds = 3600.0
    job.running.graph.idleness.check()
    assert job.running.graph.subqueries[0].gate.watermark <= 5
    inlets["a"]._held_up = True
    assert inlets["a"].heard_us is None
    inlets["a"]._held_up = False
    for each in (a, b):
        each.give(None)
    assert job.wait(30)
    assert results(tables, "counts", "n") == [2, 1]


def test_a_clock_that_runs_lets_windows_end_without_being_asked() -> None:
    a, b = Waiting(), Waiting()
    counts = counted(stream("a", a), stream("b", b, idle_after="20 milliseconds"))
    seen: list[pa.Table] = []
    with tg.start(counts, to=seen.append) as job:
        for each in (tuples(5), tuples(15), tuples(25)):
            a.give(each)
        until(lambda: sum(table.num_rows for table in seen) == 2)
        for each in (a, b):
            each.give(None)
    assert job.late == 0


def test_a_run_goes_on_from_a_snapshot_in_which_a_source_was_passed_over(tmp_path: Path) -> None:
    """The clock jumps by an hour whenever it is looked at, so two of the sources are idle all the time.

    What is read on lies behind the watermark that the snapshot has for its source: every tuple is counted or late, once.
    """
    streams = [stream(name, idle_after="1 second") for name in "ab"]
    counts = counted(*streams, stream("c"))
    missed = counts.late().with_columns(late=nw.lit(True), n=nw.lit(1, nw.Int64)).select("ts", "n", "late")
    query = counts.with_columns(late=nw.lit(False)).select("ts", "n", "late").union(missed)
    ahead = {"a": 0, "b": 20, "c": 40}

    def items(_: Batches, source: Source) -> list[pa.Table]:
        return [tuples(ahead[source.name] + 10 * number) for number in range(8)]

    for last in (6, 25):
        folder, ticks = tmp_path / str(last), count()
        folder.mkdir()
        settings = Settings(2, segment_rows=1, clock=lambda ticks=ticks: 3600.0 * next(ticks))  # type: ignore[misc]
        attempt = Attempt(settings, last, 0.9, last, last % 2 == 0)
        for again in (attempt, replace(attempt, seed=last + 1), replace(attempt, last=None)):
            run_once(query, [], again, folder, items, marked=False)
        made = read_results(folder / "out", "parquet", query.schema)
        assert pc.sum(made.column("n")).as_py() == 3 * 8


def test_a_sorted_source_that_may_idle_is_still_checked_for_its_order() -> None:
    query = counted(stream("a", [tuples(5), tuples(3)], idle_after="1 hour"))
    with pytest.raises(DataError, match=r"stream 'a' is declared sorted by 'ts', but row 1 has"):
        tg.run(query, on="local", to=lambda _: None, progress=False)


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(QueryError, match=r"idle_after is how long it may be silent .* not zero"):
        stream("a", idle_after="0 seconds")


def test_explain_says_so() -> None:
    text = stream("a", idle_after="10 seconds").explain("local")
    assert "idle after 10 seconds" in " ".join(text.split())
