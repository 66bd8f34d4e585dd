"""The life of a run: how its threads are started, and how it ends, once: complete, with a failure, or cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tidegate.compile.plan import OUTPUT, Plan
from tidegate.errors import UserError
from tidegate.gate.gate import GateAborted
from tidegate.progress import Progress
from tidegate.runtime.local.epochs import Reconfiguration
from tidegate.runtime.local.figures import JobFigures, Latencies
from tidegate.runtime.local.graph import Graph
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.sinks import ResultCollector, Sink, ToIterator
from tidegate.runtime.local.snapshots import Durable, Snapshots
from tidegate.runtime.local.sources.arrivals import ReadOptions
from tidegate.runtime.local.sources.assignment import assigned
from tidegate.runtime.local.sources.inlet import SourceInlet
from tidegate.runtime.local.threads import ThreadPool
from tidegate.watermark import START, Watermark, has_ended, is_finite


@dataclass(slots=True, eq=False)
class RunningQuery:
    """What the threads of a run share. They hold this, and never the `LocalJob` that a user holds and may drop."""

    plan: Plan
    sink: Sink
    settings: Settings
    report: Callable[[Progress], None]
    durable: Durable | None = None
    snapshots: Snapshots | None = field(init=False, default=None)
    graph: Graph = field(init=False)
    collector: ResultCollector = field(init=False)
    pool: ThreadPool = field(default_factory=lambda: ThreadPool("tidegate"))
    done: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None
    cancelled: bool = False
    _complete: bool = False
    _ending: threading.Lock = field(default_factory=threading.Lock)
    _reported: tuple[float, int] = (0.0, 0)

    def __post_init__(self) -> None:
        self.plan = self.plan.reading(assigned) if self.durable is None else self.durable.plan(self.plan)
        self.graph = Graph.of(self.plan, self.settings, self.pool, self.fail)
        schedules = [inlet.schedule for inlet in self.graph.inlets]
        settled = any(subquery.safety().settled for subquery in self.plan.subqueries)
        sides = [feed.side for feed in self.plan.outputs]
        self.collector = ResultCollector(self.sink, sides, schedules, settled, self.graph.core)
        if self.durable is not None:
            self.snapshots = self.durable.snapshots(self.graph, self.fail)
            self.snapshots.restore()
            self.collector.on_cut = self.snapshots.on_output_cut

    def start(self) -> None:
        """Start all threads."""
        self._reported = (time.monotonic(), 0)
        for running in self.graph.subqueries:
            running.start()
        for inlet in self.graph.inlets:
            self.pool.run(lambda inlet=inlet: self._read(inlet), awaited=False)  # type: ignore[misc]
        if self.graph.idleness.wanted:
            self.pool.run(self.graph.idleness.run)
        if self.snapshots is not None:
            self.pool.run(self.snapshots.run)
        self.pool.run(self._collect)

    @property
    def ended(self) -> bool:
        """Whether the run is over, well or not."""
        return self.done.is_set()

    def figures(self, now: float) -> JobFigures:
        """What has been counted until now, the present moment of the monotonic clock."""
        newest, latencies = self.graph.newest, self.collector.latencies
        return JobFigures(
            now,
            self.graph.figures(),
            {inlet.source.name: inlet.figures for inlet in self.graph.inlets},
            newest if newest > START else None,
            latencies.results,
            latencies.total_seconds,
        )

    # Called from any thread, the run's own included.

    def reconfigure(
        self, instances: int | None, mapping: Sequence[int] | None, subquery: str | None, timeout_seconds: float | None
    ) -> Reconfiguration:
        """Change the instances of a subquery, or what each of them owns; returns when it is done."""
        try:
            switch = self.graph.named(subquery).ask(instances, mapping)
            done = switch.wait(timeout_seconds)
        except GateAborted:
            done = None
        if done is not None:
            return done
        if self.failure is not None:
            raise self.failure
        if self.cancelled:
            raise UserError("the run was cancelled")
        if self.done.is_set():
            raise UserError("the input ended before the reconfiguration took effect")
        raise UserError(
            f"the reconfiguration did not complete in {timeout_seconds} s: an instance is still at work before it"
        )

    def end_input(self) -> None:
        """Read no more from any source; results of what has been read are emitted, then the run ends."""
        for inlet in self.graph.inlets:
            inlet.end()

    def cancel(self) -> None:
        """End the run at once, unless it has ended. Does not wait for anything but locks."""
        with self._ending:
            if self._complete or self.cancelled or self.failure is not None:
                return
            self.cancelled = True
        self._abort(InterruptedError("the run was cancelled"))

    def fail(self, error: BaseException) -> None:
        """End the run with an error; the first one counts, and none that comes of cancelling."""
        with self._ending:
            if self.cancelled:
                return
            if self.failure is None:
                self.failure = error
        self._abort(error)

    def _abort(self, error: BaseException) -> None:
        self.graph.abort(error)
        if isinstance(self.sink, ToIterator):
            # What it holds may never be taken.
            self.sink.close(complete=False)

    # On threads of the pool.

    def _read(self, inlet: SourceInlet) -> None:
        options = ReadOptions(
            self.settings.segment_rows,
            inlet.rejects,
            self.settings.linger_seconds,
            lambda function: self.pool.run(function, awaited=False),
            pause=inlet.pause,
            position=None if self.snapshots is None else inlet.position,
            wanted=inlet.wanted,
            partitions=lambda: inlet.position.partitions,
        )
        try:
            inlet.read(options)
        except GateAborted:
            pass
        except BaseException as error:
            self.fail(error)

    def _collect(self) -> None:
        """Write all results to the sink; the run has ended when this returns, however it does."""
        try:
            self.collector.collect(self.graph.gates[OUTPUT], self._report)
            with self._ending:
                self._complete = not self.cancelled and self.failure is None
            if self._complete:
                with self.graph.core.outside():
                    self._close_late()
                    self.sink.close(complete=True)
                    if self.snapshots is not None:
                        self.snapshots.finish()
                self.collector.report(self._report)
        except GateAborted:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            if self.cancelled or self.failure is not None:
                # The failure is known already; whatever else goes wrong now, those who wait must learn of it.
                with suppress(Exception):
                    self.sink.close(complete=False)
                with suppress(Exception):
                    self._close_late()
            self.graph.idleness.stop()
            if self.snapshots is not None:
                self.snapshots.close()
            self.pool.close()
            self.done.set()
            for running in self.graph.subqueries:
                running.ended()

    def _close_late(self) -> None:
        if self.graph.late is not None:
            self.graph.late.close()

    def _report(self, now: float, watermark: Watermark, recent: Latencies) -> None:
        """Report progress, and write the late tuples that have come."""
        if self.graph.late is not None:
            self.graph.late.flush()
        before, rows_before = self._reported
        rows = self.graph.rows
        self._reported = (now, rows)
        known = is_finite(watermark)
        states = self.graph.states
        self.report(
            Progress(
                batch=self.collector.segments,
                rows=rows - rows_before,
                rows_total=rows,
                rows_per_second=(rows - rows_before) / max(now - before, 1e-9),
                watermark=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=watermark) if known else None,
                lag_seconds=(self.graph.newest - watermark) / 1e6 if known else None,
                state_rows=sum(state.rows for state in states),
                state_bytes=sum(state.bytes for state in states),
                late_total=sum(running.work.late for running in self.graph.subqueries),
                unfilled_total=sum(running.work.unfilled for running in self.graph.subqueries),
                results_total=self.collector.results,
                malformed_total=self.graph.malformed,
                ahead_total=self.graph.ahead,
                ended=has_ended(watermark),
                latency_p50_seconds=recent.quantile(0.5),
                latency_p99_seconds=recent.quantile(0.99),
                latency_max_seconds=recent.max_seconds,
            )
        )
