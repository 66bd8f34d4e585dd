"""Instances: threads that take a cell's work, and what happens when one of them fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.operators.cells import Instances
from tidegate.operators.window_state import WindowState
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import WindowAggregate
from tidegate.runtime.spark.control import END, SetInstances, SetMapping, for_step, parse
from tidegate.testing import difference


def test_one_instance_is_the_callers_thread() -> None:
    with Instances(1) as instances:
        assert instances.spread(lambda _: threading.current_thread(), [0, 1]) == [threading.main_thread()] * 2


def test_tasks_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3)

    def task(number: int) -> Iterator[int]:
        meeting.wait(timeout=30)
        yield number

    with Instances(3) as instances:
        assert list(instances.run([task(number) for number in range(3)])) == [0, 1, 2]
    assert instances.busy_seconds > 0


def test_what_tasks_give_comes_in_turn_until_each_has_ended() -> None:
    for number in (1, 2, 3):
        with Instances(number) as instances:
            made = list(instances.run([iter("ad"), iter(""), iter("bef")]))
        assert sorted(made) == list("abdef")
        assert number == 1 or made == list("abdef")[:2] + list("def")


def test_the_error_of_a_task_reaches_the_caller_and_no_thread_is_left() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"), Instances(2) as instances:
        list(instances.run([failing(), iter(range(100))]))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tidegate")]


def test_every_shard_has_an_owner_and_every_instance_a_shard() -> None:
    for number in (1, 2, 3, 256):
        shares = Instances(number).shares()
        owned = np.array([np.ones(256) if share is None else share for share in shares], np.int64)
        assert (owned.sum(axis=0) == 1).all() and (owned.sum(axis=1) > 0).all()


@pytest.mark.parametrize("number", [2, 3, 7])
def test_spread_work_gives_what_one_instance_gives(number: int) -> None:
    source = np.random.default_rng(number)
    times = np.sort(source.integers(0, 10_000_000, 5_000))
    rows = pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us")),
            "a": pa.array([f"w{v}" for v in source.integers(0, 300, 5_000)]),
            "b": pa.array([None if v == 0 else f"v{v}" for v in source.integers(0, 9, 5_000)]),
            "x": source.integers(-8, 8, 5_000),
        }
    )
    stream = tg.stream(rows, time="ts").key_by("a", "b").window("3 seconds", every="2 seconds")
    node = stream.aggregate(n=tg.count(), x=tg.sum("x"), top=tg.max("x")).node
    assert isinstance(node, WindowAggregate)
    panes = Panes(node)
    tables = [panes.lift(rows.slice(at, 1_000)) for at in range(0, 5_000, 1_000)]
    alone = pa.concat_tables(panes.results(pa.concat_tables(tables), -2, 4))
    windows = WindowState(panes)
    runs = [run for table in tables for run in windows.runs(table)]
    with Instances(number) as instances:
        tasks = [windows.results(runs, range(-2, 5), {}, owned) for owned in instances.shares()]
        assert difference(pa.concat_tables(instances.run(tasks)), alone) is None
    merged = [panes.piece(run.panes, run.low, run.high) for run in windows.runs(panes.merge(tables))]
    held = pa.concat_tables([panes.decode(piece.data, piece.low) for piece in merged])
    assert held.column("__tg_slice").to_pylist() == sorted(held.column("__tg_slice").to_pylist())
    assert difference(pa.concat_tables(panes.results(held, -2, 4)), alone) is None


def test_messages_come_to_the_steps_they_name_in_the_order_in_which_they_were_sent() -> None:
    sent = [SetInstances(sent_ns, number) for sent_ns, number in ((30, 2), (200, 5), (100, 9))]
    to_one, to_other = SetInstances(150, {0: 4, 2: 1}, "hourly"), SetMapping(40, cells=3, step="2:daily")
    noise = "control file x.json holds something that is no message"
    texts = [END, noise, *map(str, (*sent, to_one, to_other))]
    assert for_step(texts, 0, "hourly") == ([sent[0], sent[2], to_one, sent[1]], [])
    assert for_step(texts, 1, "daily") == ([sent[0], sent[2], sent[1]], [to_other])
    assert for_step([END], 0, "hourly") == ([], [])
    assert [to_one.of(cell) for cell in range(3)] == [4, None, 1]


def test_a_message_is_what_it_was_and_anything_else_is_none() -> None:
    for message in (SetMapping(7, moves={3: 1, 1023: 0}), SetMapping(8, mapping=(0, 1) * 512), SetInstances(9, {1: 2})):
        assert parse(str(message)) == message
    good = str(SetMapping(7, cells=3))
    for odd in ("", "end", "instances 3 5", good[:-3], good.replace("3", "0"), good.replace("adopt", "carry"), "[1]"):
        assert parse(odd) is None, odd
