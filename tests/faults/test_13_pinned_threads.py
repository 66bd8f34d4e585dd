"""Threads that share a core keep that to themselves: what users start in their functions may run anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.query.forms import Updated
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.threads import CoreChoice, CorePinning

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="there is no choice of cores here"
)

TIME = pa.timestamp("us")
SCHEMA = {"ts": TIME, "k": pa.int64()}
BATCHES, ENOUGH = 40, 5


@pytest.fixture(autouse=True)
def always_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share a core from the first segment on, whatever that is good for."""
    monkeypatch.setattr(CoreChoice, "seen", lambda self, rows: setattr(self, "together", True))


class Seen:
    """The cores that threads, and a process, may use which are started where this is called."""

    def __init__(self) -> None:
        self.own: list[frozenset[int]] = []
        self.threads: list[frozenset[int]] = []
        self.processes: list[str] = []
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._look()

    def _look(self) -> None:
        self.own.append(frozenset(os.sched_getaffinity(0)))
        thread = threading.Thread(target=lambda: self.threads.append(frozenset(os.sched_getaffinity(0))))
        thread.start()
        thread.join()
        if len(self.threads) == ENOUGH:
            ask = "import os; print(len(os.sched_getaffinity(0)))"
            done = subprocess.run([sys.executable, "-S", "-c", ask], capture_output=True, text=True, check=True)
            self.processes.append(done.stdout.strip())


def batches() -> Iterator[pa.RecordBatch]:
    for number in range(BATCHES):
        times = pa.array(np.arange(10 * number, 10 * number + 10)).cast(TIME)
        yield pa.record_batch([times, pa.array([number % 3] * 10)], ["ts", "k"])


def stream(items: Any = None) -> tg.Stream:
    """Each batch by itself, so that there are as many segments."""
    paced = tg.paced(batches() if items is None else items, every="2 ms")
    return tg.stream(paced, time="ts", schema=SCHEMA, name="in")


def in_output(seen: Seen) -> tuple[tg.Stream, Callable[[pa.Table], None]]:
    return stream().key_by("k").window("10 us").aggregate(n=tg.count()), lambda table: seen()


def in_source(seen: Seen) -> tuple[tg.Stream, Callable[[pa.Table], None]]:
    def items() -> Iterator[pa.RecordBatch]:
        for batch in batches():
            seen()
            yield batch

    return stream(items()).key_by("k").window("10 us").aggregate(n=tg.count()), lambda table: None


def in_keys(seen: Seen) -> tuple[tg.Stream, Callable[[pa.Table], None]]:
    def keys(batch: pa.RecordBatch) -> pa.ListArray:
        seen()
        return pa.ListArray.from_arrays(np.arange(batch.num_rows + 1, dtype=np.int32), batch.column("k"))

    made = tg.keys(keys, columns={"key": pa.int64()}, reads=["k"])
    return stream().key_by(made).window("10 us").aggregate(n=tg.count()), lambda table: None


def in_apply(seen: Seen) -> tuple[tg.Stream, Callable[[pa.Table], None]]:
    def update(window: Any, arriving: Any) -> None:
        if arriving.time % 10 == 0:
            seen()

    windows = stream().key_by("k").window("10 us")
    return windows.apply(update=update, state={}, returns={"n": pa.int64()}), lambda table: None


def in_apply_columns(seen: Seen) -> tuple[tg.Stream, Callable[[pa.Table], None]]:
    def update(batch: Any) -> Updated:
        seen()
        return tg.updated({})

    windows = stream().key_by("k").unbounded()
    return windows.apply_columns(update=update, state={}, returns={"n": pa.int64()}), lambda table: None


def in_monoid(seen: Seen) -> tuple[tg.Stream, Callable[[pa.Table], None]]:
    def lift(k: pa.Array) -> dict[str, pa.Array]:
        seen()
        return {"most": k}

    def merge(one: dict[str, pa.Array], other: dict[str, pa.Array]) -> dict[str, pa.Array]:
        return {"most": one["most"]}

    state = {"most": pa.int64()}
    most = tg.monoid("k", state=state, lift=lift, merge=merge, finish=lambda most: most, returns=pa.int64())
    return stream().key_by("k").window("10 us").aggregate(most=most), lambda table: None


PLACES = [in_output, in_source, in_keys, in_apply, in_apply_columns, in_monoid]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_what_users_start_in_their_functions_may_run_on_every_core(
    place: Callable[[Seen], tuple[tg.Stream, Callable[[pa.Table], None]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere, narrowed, seen = frozenset(os.sched_getaffinity(0)), [0], Seen()
    setter = os.sched_setaffinity

    def counted(pid: int, cores: frozenset[int]) -> None:
        narrowed[0] += len(cores) == 1
        setter(pid, cores)

    monkeypatch.setattr(os, "sched_setaffinity", counted)
    query, output = place(seen)
    tg.start(query, to=output, segment_rows=10).wait()
    assert narrowed[0] > ENOUGH, "threads were on one core in between"
    assert len(seen.threads) >= ENOUGH and set(seen.own + seen.threads) == {everywhere}
    assert seen.processes == [str(len(everywhere))]


def test_jobs_of_one_process_take_different_cores() -> None:
    cores = frozenset(os.sched_getaffinity(0))
    taken = [CorePinning.of_caller() for _ in range(len(cores))]
    assert {core for pinning in taken for core in pinning.one} == cores


def test_the_thread_that_starts_a_job_stays_where_it_may_be() -> None:
    everywhere = os.sched_getaffinity(0)
    job: LocalJob
    with tg.start(stream().key_by("k").window("10 us").aggregate(n=tg.count()), to=lambda table: None) as job:
        pass
    assert job.ended and os.sched_getaffinity(0) == everywhere
