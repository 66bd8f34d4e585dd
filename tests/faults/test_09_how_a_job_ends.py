"""However a job is ended, by whom and how often, it ends: nobody waits for ever and no thread stays."""

from __future__ import annotations

import gc
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.gates import until
from tidegate.errors import UserError
from tidegate.runtime.local.job import LocalJob

TIME = pa.timestamp("us")
SCHEMA = {"ts": TIME, "k": pa.string()}
LONG_SECONDS = 20


def calls(times: range | list[int]) -> pa.Table:
    return pa.table({"ts": pa.array(times, pa.int64()).cast(TIME), "k": ["a"] * len(times)})


def counts(stream: tg.Stream) -> tg.Stream:
    return stream.key_by("k").window("10 us").aggregate(n=tg.count())


def endless() -> Iterator[pa.Table]:
    at = 0
    while True:
        yield calls(range(at, at + 100))
        at += 100


def unending() -> tg.Stream:
    return tg.stream(endless(), time="ts", schema=SCHEMA)


class Fed:
    """An origin that waits on a queue, as one that reads from a service does; None ends it."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[pa.Table | None] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[pa.Table]:
        while (table := self.items.get()) is not None:
            yield table

    def stream(self, **options: Any) -> tg.Stream:
        return tg.stream(self, time="ts", schema=SCHEMA, **options)


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tidegate")]


def told_in_time(function: Callable[[], object]) -> list[object]:
    """What a function gives on a thread of its own; a failure if it does not come back."""
    told: list[object] = []

    def run() -> None:
        try:
            told.append(function())
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LONG_SECONDS)
    assert not thread.is_alive(), "it waits for ever"
    return told


def test_cancel_in_the_output_function() -> None:
    jobs: queue.SimpleQueue[LocalJob] = queue.SimpleQueue()
    called = []

    def output(table: pa.Table) -> None:
        called.append(table)
        jobs.get().cancel()

    job = tg.start(counts(unending()), to=output)
    jobs.put(job)
    assert told_in_time(job.wait) == [True]
    assert job.cancelled and len(called) == 1, "nothing is handed out after that"


def test_cancel_in_a_report_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.runtime.local.sinks.SECONDS_BETWEEN_REPORTS", 0.0)
    jobs: queue.SimpleQueue[LocalJob] = queue.SimpleQueue()
    job = tg.start(counts(unending()), to=lambda table: None, progress=lambda told: jobs.get().cancel())
    jobs.put(job)
    assert told_in_time(job.wait) == [True]
    assert job.cancelled


@pytest.mark.parametrize("place", ["a step", "a source"])
def test_cancel_in_a_users_function(place: str) -> None:
    """It is called again, any number of times, until the run has ended."""
    jobs: list[LocalJob] = []
    started = threading.Event()

    def cancel(given: Any) -> Any:
        if place == "a source" or given.num_rows:
            assert started.wait(LONG_SECONDS)
            jobs[0].cancel()
        return given

    items = map(cancel, endless()) if place == "a source" else endless()
    stream = tg.stream(items, time="ts", schema=SCHEMA)
    job = tg.start(counts(stream.map_batches(cancel) if place == "a step" else stream), to=lambda table: None)
    jobs.append(job)
    started.set()
    assert told_in_time(job.wait) == [True]
    assert job.cancelled
    until(lambda: not our_threads())


def test_cancel_from_many_threads_and_twice() -> None:
    job = tg.start(counts(unending()), to=lambda table: None)
    until(lambda: job.results > 0)
    threads = [threading.Thread(target=job.cancel) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    job.cancel()
    assert job.wait() and job.cancelled and job.ended


def test_cancel_after_the_end_changes_nothing(tmp_path: Path) -> None:
    job = tg.start(counts(tg.stream(calls(range(100)), time="ts")), to=tmp_path / "out")
    assert job.wait()
    job.cancel()
    assert job.wait() and not job.cancelled
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1


def test_a_failure_stays_what_it_was_after_cancel() -> None:
    def fails(table: pa.Table) -> None:
        raise OSError("no space left")

    job = tg.start(counts(tg.stream(calls(range(100)), time="ts")), to=fails)
    for _ in range(2):
        with pytest.raises(OSError, match="no space left"):
            job.wait()
        job.cancel()
    assert not job.cancelled


def test_what_cannot_be_done_after_cancel_is_said_in_public_words() -> None:
    job = tg.start(counts(unending()), to=lambda table: None, instances=(1, 4))
    job.cancel()
    with pytest.raises(UserError, match=r"^the run was cancelled$"):
        job.reconfigure(instances=2)


def test_cancel_does_not_wait_for_a_users_function_that_does_not_return() -> None:
    begun, go = threading.Event(), threading.Event()

    def output(table: pa.Table) -> None:
        begun.set()
        go.wait(LONG_SECONDS)

    job = tg.start(counts(unending()), to=output)
    assert begun.wait(LONG_SECONDS)
    began = time.monotonic()
    job.cancel()
    assert time.monotonic() - began < LONG_SECONDS / 2 and not job.ended
    go.set()
    assert job.wait(LONG_SECONDS) and job.cancelled


def test_wait_in_a_function_of_the_job_is_refused() -> None:
    jobs: queue.SimpleQueue[LocalJob] = queue.SimpleQueue()
    job = tg.start(counts(unending()), to=lambda table: jobs.get().wait())
    jobs.put(job)
    [told] = told_in_time(job.wait)
    assert isinstance(told, UserError) and "would wait for itself" in str(told)


@pytest.mark.parametrize("origin", ["iterable", "iterable without lingering", "marked", "paced"])
def test_stop_hands_out_every_window_although_a_source_is_silent(origin: str) -> None:
    fed = Fed()
    items: Any = fed
    if origin == "marked":
        items = tg.marked(fed)
    elif origin == "paced":
        items = tg.paced(((0.0, table) for table in fed), every=None)
    query = counts(tg.stream(items, time="ts", schema=SCHEMA))
    made: list[pa.Table] = []
    lingers = 0.0 if origin == "iterable without lingering" else 0.001
    job = tg.start(query, to=made.append, linger_seconds=lingers)
    fed.items.put(calls(range(25)))
    until(lambda: job.rows == 25)
    job.stop()
    job.stop()
    assert told_in_time(job.wait) == [True]
    assert not job.cancelled
    assert sum(sum(table["n"].to_pylist()) for table in made) == 25
    fed.items.put(calls([9_999]))
    fed.items.put(None)
    until(lambda: not our_threads())
    assert job.rows == 25, "what comes after stop is not read any more"


@pytest.mark.parametrize("ends", [LocalJob.stop, LocalJob.cancel], ids=["stop", "cancel"])
def test_a_source_whose_next_batch_is_not_due_for_an_hour_holds_no_thread(ends: Callable[[LocalJob], None]) -> None:
    paced = tg.paced([(0.0, calls(range(5))), (3600.0, calls(range(5, 9)))])
    job = tg.start(counts(tg.stream(paced, time="ts", schema=SCHEMA)), to=lambda table: None)
    until(lambda: job.rows == 5)
    ends(job)
    assert job.wait(LONG_SECONDS)
    until(lambda: not our_threads())


def test_stop_ends_all_ways_of_a_stream_at_the_same_place() -> None:
    """A stream that two steps read is cut once: both have seen the same tuples."""
    stream = unending()
    both = counts(stream).join(
        stream.key_by("k").window("10 us").aggregate(m=tg.count(), name="again"), within="0 us", on="k"
    )
    made: list[pa.Table] = []
    job = tg.start(both, to=made.append, waiting_rows=100)
    until(lambda: job.results > 50)
    job.stop()
    assert told_in_time(job.wait) == [True]
    pairs = pa.concat_tables(made)
    assert pairs["n"].to_pylist() == pairs["m"].to_pylist()
    assert sum(pairs["n"].to_pylist()) == job.rows


def test_an_iterable_that_fails_after_stop_is_not_the_jobs_failure() -> None:
    closed = threading.Event()

    def origin() -> Iterator[pa.Table]:
        yield calls(range(5))
        closed.wait(LONG_SECONDS)
        raise ConnectionError("closed")

    job = tg.start(counts(tg.stream(origin(), time="ts", schema=SCHEMA)), to=lambda table: None, linger_seconds=0.0)
    until(lambda: job.rows == 5)
    job.stop()
    closed.set()
    assert job.wait(LONG_SECONDS)
    until(lambda: not our_threads())
    assert job.wait()


def test_a_job_is_a_context_that_waits_for_the_end() -> None:
    made: list[pa.Table] = []
    with tg.start(counts(tg.stream(calls(range(100)), time="ts")), to=made.append) as job:
        assert isinstance(job, LocalJob)
    assert job.ended and sum(table.num_rows for table in made) == 10


def test_leaving_the_context_with_an_error_cancels() -> None:
    with pytest.raises(ZeroDivisionError), tg.start(counts(unending()), to=lambda table: None) as job:
        raise ZeroDivisionError
    assert job.ended and job.cancelled


def test_leaving_the_context_raises_what_made_the_run_fail() -> None:
    def fails(table: pa.Table) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"), tg.start(counts(unending()), to=fails):
        pass


def test_leaving_the_context_cancels_a_job_whose_results_nobody_can_take_any_more() -> None:
    with tg.start(counts(unending()), segment_rows=10) as job:
        taken = next(iter(job)).num_rows
    assert taken and job.ended and job.cancelled


def test_breaking_out_of_the_results_ends_the_run() -> None:
    job = tg.start(counts(unending()))
    for table in job:
        assert table.num_rows
        break
    until(lambda: not our_threads())
    assert job.ended and job.cancelled
    assert list(job) == []


def test_an_error_while_iterating_ends_the_run_when_it_is_forgotten() -> None:
    job = tg.start(counts(unending()))
    with pytest.raises(ZeroDivisionError):
        for table in job:
            raise ZeroDivisionError(table.num_rows)
    until(lambda: not our_threads())
    assert job.ended


@pytest.mark.parametrize(
    "options",
    [{}, {"to": lambda table: None}, {"elastic": True, "instances": (1, 2)}],
    ids=["nobody reads", "a function", "elastic"],
)
def test_dropping_a_job_ends_its_threads(options: dict[str, Any]) -> None:
    jobs = [tg.start(counts(unending()), **options)]
    until(lambda: jobs[0].rows > 0)
    jobs.clear()
    until(lambda: not our_threads())


def test_dropping_a_job_that_is_part_of_a_circle_ends_its_threads() -> None:
    class Owner:
        """Knows its job, and is known by it."""

    owner: Any = Owner()
    owner.itself = owner
    owner.job = tg.start(counts(unending()))
    del owner
    gc.collect()
    until(lambda: not our_threads())


def test_dropping_a_job_that_has_ended_leaves_no_thread() -> None:
    made: list[pa.Table] = []
    jobs = [tg.start(counts(tg.stream(calls(range(100)), time="ts")), to=made.append)]
    until(lambda: jobs[0].ended)
    jobs.clear()
    until(lambda: not our_threads())
    assert sum(table.num_rows for table in made) == 10


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_an_interrupt_ends_a_run_and_its_threads(request: pytest.FixtureRequest) -> None:
    # A process that a shell put into the background ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    told: list[pa.Table] = []

    def output(table: pa.Table) -> None:
        told.append(table)
        if len(told) == 20:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tg.run(counts(unending()), on="local", to=output, progress=False)
    until(lambda: not our_threads())


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_an_interrupt_before_the_wait_has_begun_is_not_lost() -> None:
    """A signal between the last bytecode and the system call that waits does not interrupt that call."""
    job = tg.start(counts(unending()), to=lambda table: None)
    inner, waits = job.running.done.wait, []

    def wait(timeout: float | None = None) -> bool:
        waits.append(timeout)
        return inner(timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.running.done, "wait", wait)
        assert not job.wait(0.01)
        threading.Timer(0.2, job.cancel).start()
        assert job.wait()
    assert all(timeout is not None and timeout <= 1.0 for timeout in waits)
