"""A query at work in this process, as its user sees it."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tidegate.compile.plan import Plan
from tidegate.errors import UserError
from tidegate.progress import Progress
from tidegate.runtime.local.epochs import Reconfiguration
from tidegate.runtime.local.figures import JobFigures, Latencies
from tidegate.runtime.local.lifecycle import RunningQuery
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.sinks import SIGNAL_SECONDS, Sink, ToIterator

if TYPE_CHECKING:
    from tidegate.elastic.scaling import Scaling
    from tidegate.runtime.local.snapshots import Durable

CANCEL_SECONDS = 1.0
"""How long to wait for threads to end after a run was cancelled or has ended; users' functions may take longer."""
READ_SECONDS = 0.5
"""How long to wait for threads that read users' iterables."""


class LocalJob:
    """A running query. Made by `tidegate.start`; every method may be called from any thread.

    As a context it waits for the end of the run; left with an error, it cancels the run. A job that is not held any more
    is cancelled too, so keep what `tidegate.start` gives for as long as it should run.

    ``scaling`` is what changes its instances with the load, if it was started with ``elastic``; it ends with the run.
    """

    def __init__(
        self,
        plan: Plan,
        sink: Sink,
        settings: Settings | None = None,
        report: Callable[[Progress], None] = lambda _: None,
        durable: Durable | None = None,
    ) -> None:
        self.running = RunningQuery(plan, sink, settings or Settings(), report, durable)
        self.scaling: Scaling | None = None

    def start(self) -> LocalJob:
        """Start all threads."""
        self.running.start()
        weakref.finalize(self, _dropped, self.running).atexit = False
        return self

    def __repr__(self) -> str:
        running = self.running
        state = "cancelled" if self.cancelled else "failed" if running.failure else "ended" if self.ended else "running"
        instances = ", ".join(f"{name} × {count}" for name, count in self.instances.items())
        return (
            f"<LocalJob, {state}: {self.rows:,} rows read, {self.results:,} results, {self.late:,} late; {instances}>"
        )

    def _repr_html_(self) -> str:
        """How far the job is, and a link to its page, for notebooks."""
        link = "" if self.page_url is None else f'<div><a href="{self.page_url}" target="_blank">its page</a></div>'
        return f"<div>{escape(repr(self))}</div>{link}"

    @property
    def page_url(self) -> str | None:
        """The address of the page about this job; None without one."""
        return None if self.scaling is None else self.scaling.page_url

    @property
    def subqueries(self) -> tuple[str, ...]:
        """The names of what has instances of its own."""
        return tuple(subquery.name for subquery in self.running.plan.subqueries)

    @property
    def instances(self) -> Mapping[str, int]:
        """How many instances each subquery has."""
        return {each.subquery.name: len(each.epoch.instances) for each in self.running.graph.subqueries}

    @property
    def state_rows(self) -> int:
        """How many states, one per key and slice, are held."""
        return sum(state.rows for state in self.running.graph.states)

    @property
    def state_bytes(self) -> int:
        """How much memory they take."""
        return sum(state.bytes for state in self.running.graph.states)

    @property
    def late(self) -> int:
        """Tuples that came too late for all of their windows."""
        return sum(running.work.late for running in self.running.graph.subqueries)

    @property
    def unfilled(self) -> int:
        """Windows in number of tuples that were not full when input ended."""
        return sum(running.work.unfilled for running in self.running.graph.subqueries)

    @property
    def rows(self) -> int:
        """Tuples read so far."""
        return self.running.graph.rows

    @property
    def malformed(self) -> int:
        """Records that could not be read and were set aside in a file."""
        return self.running.graph.malformed

    @property
    def ahead(self) -> int:
        """Tuples and heartbeats that lay too far in the future and were set aside."""
        return self.running.graph.ahead

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done in another way than one may expect, so far."""
        notices = [inlet.rejects.notice for inlet in self.running.graph.inlets]
        return tuple(notice for notice in notices if notice is not None)

    @property
    def results(self) -> int:
        """Results emitted so far."""
        return self.running.collector.results

    @property
    def segments(self) -> int:
        """Segments of results emitted so far."""
        return self.running.collector.segments

    @property
    def latencies(self) -> Latencies:
        """How late results have left so far, where a source keeps to a schedule."""
        return self.running.collector.latencies

    @property
    def ended(self) -> bool:
        """Whether the run is over, well or not."""
        return self.running.ended

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled before it was complete."""
        return self.running.cancelled

    def figures(self, now: float) -> JobFigures:
        """What has been counted until now, the present moment of the monotonic clock."""
        return self.running.figures(now)

    def reconfigure(
        self,
        *,
        instances: int | None = None,
        mapping: Sequence[int] | None = None,
        subquery: str | None = None,
        timeout_seconds: float | None = 60.0,
    ) -> Reconfiguration:
        """Change the number of instances of a subquery, or which shard each of them owns; returns when it is done.

        ``mapping`` gives for each of the 256 shards the instance that owns it, from 0. ``subquery`` may be left out where
        there is only one. The output does not depend on any of this.
        """
        return self.running.reconfigure(instances, mapping, subquery, timeout_seconds)

    def __iter__(self) -> Iterator[Any]:
        """The results, table by table, while the query runs; for jobs that were started without ``to``.

        Of several results each table comes with its name, as in ``for name, table in job``. Stopping before the last of
        them cancels the run, since nothing would take the rest.
        """
        output = self.running.sink
        if not isinstance(output, ToIterator):
            raise UserError("the results of this job go elsewhere; start it without to=... to iterate over them")
        try:
            names = self.running.plan.names
            for number, table in output:
                if self.cancelled:
                    break
                yield (names[number], table) if names else table
        except BaseException:
            self.cancel()
            raise
        self.wait()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end of the run; raises what made it fail. False if it has not ended in time.

        A run that was cancelled has ended: True, and `cancelled` tells. What interrupts the wait does not end the run.
        """
        if self._is_ours():
            raise UserError(
                "wait() was called by a function that the job itself runs, which would wait for itself; call it elsewhere, "
                "or call stop() or cancel() here"
            )
        until = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        # In steps: a signal that comes just before a wait without end would be noticed only with the next one.
        while not self.running.done.wait(min(max(until - time.monotonic(), 0.0), SIGNAL_SECONDS)):
            if time.monotonic() >= until:
                return False
        self._close()
        if self.running.failure is not None:
            raise self.running.failure
        return True

    def stop(self) -> None:
        """End the input where it is: every window is emitted, then the run ends. Does not wait for that.

        A source that is silent is not waited for either. A thread that is held up in an iterable of yours cannot be
        interrupted: it ends when that comes back, and what it brings is not read.
        """
        self.running.end_input()

    def cancel(self) -> None:
        """End the run at once; windows that are open are not emitted. Does nothing if it has ended.

        Returns when its threads have ended, after a second at the latest: functions of yours that are being called are not
        interrupted. Called by one of those, it returns at once.
        """
        self.running.cancel()
        if not self._is_ours() and self.running.done.wait(CANCEL_SECONDS):
            self._close()

    def __enter__(self) -> LocalJob:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.cancel()
            return
        if isinstance(self.running.sink, ToIterator):
            # Nobody can take what is left.
            self.cancel()
        try:
            self.wait()
        except BaseException:
            self.cancel()
            raise

    def _is_ours(self) -> bool:
        """Whether the calling thread is one of the run's own."""
        return self.running.pool.has(threading.current_thread())

    def _close(self) -> None:
        """Wait, for a while, for what ends with the run."""
        if self.scaling is not None:
            self.scaling.stop()
        self.running.pool.join(CANCEL_SECONDS, READ_SECONDS)


def _dropped(running: RunningQuery) -> None:
    """Nobody holds a job any more: end its run.

    This may be called by a garbage collection, on any thread and with any lock held, so cancelling is left to another one.
    """
    if not running.ended:
        threading.Thread(target=running.cancel, name="tidegate-dropped", daemon=True).start()
