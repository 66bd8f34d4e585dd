"""Waiting for another instance is no work: what is measured does not depend on how many instances there are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.gates import batch, in_thread
from tidegate.gate import Gate, Segment
from tidegate.runtime.local.work import Work

TIME = pa.timestamp("us")
BATCH_SECONDS, BATCH_ROWS = 0.02, 40


def constant(seconds: float) -> Iterator[tuple[float, pa.RecordBatch]]:
    """2,000 tuples per second, a batch every 20 ms."""
    step = int(1e6 * BATCH_SECONDS) // BATCH_ROWS
    for number in range(int(seconds / BATCH_SECONDS)):
        times = [step * (BATCH_ROWS * number + row) for row in range(BATCH_ROWS)]
        keys = [at // step % 97 for at in times]
        columns = [pa.array(times, pa.int64()).cast(TIME), pa.array(keys, pa.int64())]
        yield (number + 1) * BATCH_SECONDS, pa.record_batch(columns, ["ts", "k"])


def waits_as_for_a_service(window: Any, tuple_: Any) -> None:
    """8 ms for each batch, which keep an instance busy for 40 % of the time, on a slow machine too."""
    if tuple_.time % int(1e6 * BATCH_SECONDS) == 0:
        time.sleep(0.4 * BATCH_SECONDS)


def applied(seconds: float) -> tg.Stream:
    stream = tg.stream(tg.paced(constant(seconds)), time="ts", schema={"ts": TIME, "k": pa.int64()}, name="load")
    windows = stream.key_by("k").window("1 second")
    return windows.apply(update=waits_as_for_a_service, state={}, returns={"n": pa.int64()}, name="applied")


def test_apply_at_a_constant_load_stays_at_what_it_needs() -> None:
    """0.4 instances' work: of four, three are given back, and none is taken again."""
    job = tg.start(applied(4.0), to=lambda table: None, instances=(4, 8), elastic=True)
    job.wait()
    assert job.scaling is not None and job.scaling.failure is None
    changes = [change.instances for change in job.scaling.changes]
    assert changes == sorted(changes, reverse=True), "nothing has grown"
    assert job.instances["applied"] == 1


class Shared(Work):
    """Work that one instance does while another waits for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(None, clock=clock)  # type: ignore[arg-type]  # it asks nothing of its subquery
        self.begun, self.go = threading.Event(), threading.Event()

    def _results(self, segment: Segment, instance: int, owned: Any, ahead: Any) -> Iterator[pa.Table]:
        segment.derive("shared", self._derived)
        return iter(())

    def _derived(self, segment: Segment) -> None:
        self.begun.set()
        assert self.go.wait(30)


def test_an_instance_that_waits_for_what_another_does_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    seconds      0          5
    instance 0   | works .. |
    instance 1   | waits .. |
    """
    now, waits = [0.0], threading.Event()

    def begins_to_wait() -> float:
        waits.set()
        return now[0]

    monkeypatch.setattr("tidegate.gate.waiting.time", SimpleNamespace(perf_counter=begins_to_wait))
    gate = Gate(["a"], ["r"])
    gate.source("a").add(batch(1))
    segment = gate.reader("r").get(0)
    assert segment is not None
    work = Shared(clock=lambda: now[0])
    for instance in (0, 1):
        work.attach(instance, 0, 0)
    with in_thread(lambda: list(work.results(segment, 0, None, iter(())))):
        assert work.begun.wait(30)
        with in_thread(lambda: list(work.results(segment, 1, None, iter(())))):
            assert waits.wait(30)
            now[0] = 5.0
            work.go.set()
    assert work.busy_seconds == {0: 5.0, 1: 0.0}


def test_instances_that_take_turns_work_one_after_the_other() -> None:
    """However many instances take turns at it, the work of a stretch is what one would do."""
    job = tg.start(applied(1.0), to=lambda table: None, instances=4)
    job.wait()
    [region] = job.figures(time.monotonic()).subqueries
    assert sum(region.busy_seconds.values()) < 2 * 0.4 * 1.0, "four that wait for one another would be busy for 1.6 s"


@pytest.mark.parametrize(("eager", "passed"), [(True, 2), (False, 5)])
def test_a_segment_is_done_when_the_last_who_has_a_share_has_passed_it(eager: bool, passed: int) -> None:
    """
    log    1 2 | 3 4 5 |
    fast               ^
    slow       ^            where one reader does a segment's work, the others need not come
    """
    gate = Gate(["a"], ["fast", "slow"], segment_rows=3, eager=eager)
    for times in ((1, 2), (3, 4, 5)):
        gate.source("a").add(batch(*times))
        gate.flush()
    for _ in range(3):
        gate.reader("fast").get(0)
    for _ in range(2):
        gate.reader("slow").get(0)
    assert gate.traffic().passed_rows == passed
    assert gate.traffic().waiting_rows == 5 - passed
