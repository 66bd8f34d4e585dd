"""O+ in this process: whose turn it is, what is held, and a failure while others wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from examples.inputs.logins import log_lines
from examples.network_monitoring.break_ins import ATTEMPT, BreakIns, break_ins, parsed
from tidegate.cli.queries import load_query
from tidegate.operators.settling import Settling
from tidegate.query.nodes import KeyedApply
from tidegate.runtime.local.subquery_work import ShardSequencer
from tidegate.testing import difference
from tidegate.watermark import END

EXAMPLES = Path(__file__).parents[4] / "examples"
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("ts", TIME), ("k", pa.int64())])
COUNT: dict[str, Any] = {"state": {"count": pa.int64()}, "initial": {"count": 0}, "returns": {"count": pa.int64()}}


def mask(*owned: int) -> Any:
    made = np.zeros(4, np.bool_)
    made[list(owned)] = True
    return made


def test_a_shard_is_waited_for_until_it_has_seen_all_turns_before() -> None:
    sequencer = ShardSequencer(4)
    assert sequencer.wait(0, mask(0, 1))
    sequencer.done(0, mask(0, 1))
    went: list[bool] = []
    thread = threading.Thread(target=lambda: went.append(sequencer.wait(1, mask(1, 2))), name="tidegate-test")
    thread.start()
    thread.join(0.05)
    assert not went, "shard 2 has not seen turn 0"
    sequencer.done(0, mask(2, 3))
    thread.join(10)
    assert went == [True]


def test_who_waits_for_a_shard_is_let_go_when_the_run_fails() -> None:
    sequencer = ShardSequencer(4)
    went: list[bool] = []
    thread = threading.Thread(target=lambda: went.append(sequencer.wait(1, None)), name="tidegate-test")
    thread.start()
    sequencer.abort()
    thread.join(10)
    assert went == [False]


def test_an_owner_of_nothing_waits_for_nobody() -> None:
    assert ShardSequencer(4).wait(7, mask())


def waiting_of(schema: pa.Schema, key: str) -> Settling:
    windows = tg.stream(schema, time="ts").key_by(key).window("1us")
    applied = windows.apply(update=lambda window, tuple_: None, state={}, returns={"n": pa.int64()})
    assert isinstance(applied.node, KeyedApply)
    return Settling(applied.node, 4)


def test_tuples_are_held_until_the_watermark_is_past_them() -> None:
    waiting = waiting_of(SCHEMA, "k")
    table = pa.table({"ts": pa.array([5, 5, 3], TIME), "k": [9, 2, 1]}, schema=SCHEMA)
    waiting.hold(0, 0, table, "ts")
    waiting.hold(2, 0, table.slice(0, 1), "ts")  # of a later segment
    assert waiting.rows == 4
    assert waiting.settle(0, 5).tuples[0].column("k").to_pylist() == [1]
    settled = waiting.settle(1, 6)
    assert settled.turn == 1
    assert settled.tuples[0].column("k").to_pylist() == [2, 9], "in canonical order"
    assert waiting.settle(2, END).tuples[0].num_rows == 1
    assert (waiting.rows, waiting.bytes) == (0, 0)


def test_ties_are_ordered_by_every_type_of_column() -> None:
    days = [date(2024, 1, 2), None, date(2024, 1, 1)]
    table = pa.table({"ts": pa.array([5, 5, 5], TIME), "day": pa.array(days, pa.date32()), "k": [1, 2, 3]})
    waiting = waiting_of(table.schema, "day")
    waiting.hold(0, 0, table, "ts")
    assert waiting.settle(0, 9).tuples[0].column("k").to_pylist() == [2, 3, 1]
    without_null = waiting_of(table.schema, "day")
    without_null.hold(0, 0, table.filter(table["day"].is_valid()), "ts")
    assert without_null.settle(0, 9).tuples[0].column("k").to_pylist() == [3, 1]


class Paced:
    """Batches of an hour each; after the first it waits to be told to go on."""

    def __init__(self, batches: int) -> None:
        self.batches, self.go, self.paused = batches, threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[pa.Table]:
        for hour in range(self.batches):
            times = [hour * 3_600_000_000 + at for at in range(50)]
            yield pa.table({"ts": pa.array(times, TIME), "k": list(range(50))}, schema=SCHEMA)
            if hour == 1:
                self.paused.set()
                assert self.go.wait(60)


def counting(origin: Paced) -> tg.Stream:
    return (
        tg.stream(origin, time="ts", schema=SCHEMA)
        .key_by("k")
        .unbounded()
        .apply(
            update=lambda window, one: tg.updated(
                {"count": window.state["count"] + 1}, rows={"count": window.state["count"] + 1}
            ),
            **COUNT,
        )
    )


def test_state_is_counted_and_stays_where_it_is_when_instances_change() -> None:
    origin, made = Paced(4), []
    job = tg.start(counting(origin), to=made.append, instances=(1, 8))
    assert origin.paused.wait(60)
    for instances in (8, 3, 5):
        assert job.reconfigure(instances=instances).state_bytes_moved == 0
    # 50 keys with one number each, or 50 tuples that wait, soon after the batches have come.
    patience = time.monotonic() + 60
    while (job.state_rows < 50 or job.state_bytes < 50 * 8) and time.monotonic() < patience:
        time.sleep(0.001)
    assert job.state_rows >= 50
    assert job.state_bytes >= 50 * 8
    origin.go.set()
    assert job.wait(60)
    assert (job.state_rows, job.state_bytes) == (0, 0)
    counts = pa.concat_tables(made).column("count").to_pylist()
    assert counts == [hour for hour in (1, 2, 3, 4) for _ in range(50)]


def test_a_function_that_fails_after_a_reconfiguration_ends_the_run_with_its_error() -> None:
    origin = Paced(4)

    def fail_late(window: Any, one: Any) -> Any:
        if window.state["count"] == 2 and window.key == 17:
            raise ValueError("seventeen")
        return tg.updated({"count": window.state["count"] + 1})

    query = (
        tg.stream(origin, time="ts", schema=SCHEMA).key_by("k").unbounded().apply(update=fail_late, **COUNT, name="f")
    )
    job = tg.start(query, to=lambda table: None, instances=(2, 8))
    assert origin.paused.wait(60)
    job.reconfigure(instances=7)
    origin.go.set()
    with pytest.raises(tg.DataError, match=r"step 'f': update failed for the tuple .*'k': 17.*ValueError: seventeen"):
        job.wait(60)


def results_of(query: tg.Stream) -> pa.Table:
    made: list[pa.Table] = []
    assert tg.start(query, to=made.append, instances=2).wait(200)
    return pa.concat_tables([query.schema.empty_table(), *made])


def test_the_example_in_columns_agrees_with_the_aggregate_that_says_the_same() -> None:
    words = load_query(str(EXAMPLES / "word_count_by_column.py"))
    by_aggregate = (
        tg.Stream(words.node.inputs[0])
        .key_by(tg.each("words", name="word"))
        .window("2 minutes", every="1 minute")
        .aggregate(count=tg.count())
        .select("ts", "word", "window_start", "count")
    )
    assert difference(results_of(words), results_of(by_aggregate)) is None


def test_a_class_gives_in_a_run_what_it_gives_plainly() -> None:
    lines = log_lines(20_000)
    attempts = tg.stream(lines, time="ts", name="lines").map_batches(parsed, schema=ATTEMPT)
    query = break_ins(attempts)
    plain, expected = BreakIns(), []
    for login in parsed(lines.to_batches()[0]).to_pylist():
        for row in list(plain.process(login)):
            expected.append({"ts": login["ts"], **row, "tried": sorted(row["tried"])})
    assert len(expected) > 20
    assert difference(results_of(query), pa.Table.from_pylist(expected, query.schema)) is None


def test_an_apply_explains_itself() -> None:
    stream = tg.stream(SCHEMA, time="ts", name="s").filter(nw.col("k") > 1, name="some")
    query = (
        stream.key_by("k").window("1 minute").apply(output=len, windows="single", returns={"n": pa.int64()}, name="o")
    )
    told = " ".join(query.explain(runtime="local").split())
    assert "by k, window 1 minute every 1 minute, one that slides: output = len; keeps tuples: list of (ts, k)" in told
    assert "results leave when settled; tuples that share a key (k) meet in one instance" in told
    assert "o Python the user's functions, one settled tuple at a time; by the owners of their shards" in told
    told = " ".join(query.explain().split())
    assert "o Python the user's functions, one settled tuple at a time; tuples are partitioned by their keys" in told


def test_where_order_among_inputs_does_not_matter_each_input_is_one_call() -> None:
    """Tuples of two inputs alternate: in order that is a call for each, without order one for each input and segment."""
    calls: list[int] = []

    def pass_on(batch: Any) -> Any:
        calls.append(len(batch))
        return tg.updated({}, rows={"n": batch.column("n")}, of=np.arange(len(batch)))

    def one(batch: pa.RecordBatch) -> pa.Array:
        return pa.array([[1]] * batch.num_rows, pa.list_(pa.int64()))

    def run(ordered: bool) -> list[Any]:
        streams = [
            tg.stream(
                pa.table({"ts": pa.array(range(side, 200, 2), pa.timestamp("us")), "n": list(range(side, 200, 2))}),
                time="ts",
                name=f"s{side}",
            ).key_by(tg.keys(one, columns={"k": pa.int64()}))
            for side in (0, 1)
        ]
        query = (
            tg.gather(*streams)
            .unbounded()
            .apply_columns(update=pass_on, state={}, returns={"n": pa.int64()}, ordered=ordered)
        )
        calls.clear()
        return [n for table in tg.start(query, instances=1) for n in table.column("n").to_pylist()]

    assert run(ordered=True) == list(range(200))
    assert len(calls) == 200
    assert run(ordered=False) == list(range(200))
    assert sum(calls) == 200
    assert len(calls) < 20
