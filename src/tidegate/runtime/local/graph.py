"""A query at work: its gates, subqueries, inlets and threads, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tidegate.compile.plan import OUTPUT, Feed, Plan
from tidegate.errors import QueryError, UserError, choices
from tidegate.gate.gate import Gate, GateAborted
from tidegate.gate.source import SourceSpec
from tidegate.progress import Progress
from tidegate.query.nodes import Join, MapBatches, Node, Source
from tidegate.runtime.local.epochs import Reconfiguration
from tidegate.runtime.local.figures import JobFigures, Latencies, SubqueryFigures
from tidegate.runtime.local.operator import Outlet, RunningSubquery
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.sinks import ResultCollector, Sink, ToIterator
from tidegate.runtime.local.sources.arrivals import ReadOptions
from tidegate.runtime.local.sources.inlet import SourceInlet
from tidegate.runtime.local.subquery_work import work_of
from tidegate.runtime.local.threads import CorePinning, ThreadPool
from tidegate.runtime.local.work import StateSize
from tidegate.sources import Rejects
from tidegate.sources.in_memory import Marked
from tidegate.watermark import START, Watermark, has_ended, is_finite


@dataclass(slots=True, eq=False)
class RunningQuery:
    """What the threads of a run share.

    A run ends once: complete, with the first failure, or cancelled. Its threads hold this, and never the `LocalJob` that
    its user holds, so that one can be dropped.
    """

    plan: Plan
    sink: Sink
    settings: Settings
    report: Callable[[Progress], None]
    latencies: Latencies = field(default_factory=Latencies)
    subqueries: list[RunningSubquery] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    pool: ThreadPool = field(default_factory=lambda: ThreadPool("tidegate"))
    done: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None
    cancelled: bool = False
    _inlets: list[SourceInlet] = field(default_factory=list)
    _collector: ResultCollector = field(init=False)
    _complete: bool = False
    _ending: threading.Lock = field(default_factory=threading.Lock)
    _core: CorePinning = field(default_factory=CorePinning)
    _reported: tuple[float, int] = (0.0, 0)

    def start(self) -> None:
        """Start all threads."""
        plan = self.plan
        epoch = RunningSubquery.first_epoch(self.settings.instances)
        gates: dict[int, Gate] = {}
        if not any(isinstance(node, Join | MapBatches) for node in _nodes(plan)):
            # What a join does, and what a user's function may do, needs no interpreter, however small a segment is.
            self._core = CorePinning.of_caller()
        for subquery in plan.subqueries:
            names = [str(instance) for instance in epoch.instances]
            # A join does as much for a segment of one tuple as for a hundred before it tries any pair, and its two sides
            # come one after the other.
            linger = self.settings.join_linger_seconds if isinstance(subquery.operator, Join) else 0.0
            eager = subquery.safety().eager
            gates[subquery.number] = self._gate(subquery.feeds, epoch.instances, names, eager, linger)
        gates[OUTPUT] = self._gate(plan.outputs, epoch.instances, ["output"])
        self.gates = list(gates.values())
        for subquery in plan.subqueries:
            outlets = tuple(Outlet(feed, gates[feed.target]) for feed in plan.feeds_from(subquery.number))
            self.subqueries.append(
                RunningSubquery(
                    subquery,
                    work_of(subquery, self.settings),
                    gates[subquery.number],
                    outlets,
                    self.pool,
                    self.fail,
                    self.settings.most,
                    epoch,
                    core=self._core,
                )
            )
        for source in plan.sources:
            sources = [gates[feed.target].source(self._spec(feed, source).name) for feed in plan.feeds_from(source)]
            self._inlets.append(SourceInlet(source, sources, Rejects(source.name, source.dead_letters), self._core))
        schedules = [inlet.schedule for inlet in self._inlets]
        settled = any(subquery.safety().settled for subquery in plan.subqueries)
        self._collector = ResultCollector(self.sink, schedules, settled, self._core, self.latencies)
        self._reported = (time.monotonic(), 0)
        for running in self.subqueries:
            running.start()
        for inlet in self._inlets:
            self.pool.run(lambda inlet=inlet: self._read(inlet), awaited=False)  # type: ignore[misc]
        self.pool.run(lambda: self._collect(gates[OUTPUT]))

    # Asked by whoever looks at it.

    @property
    def ended(self) -> bool:
        """Whether the run is over, well or not."""
        return self.done.is_set()

    @property
    def instances(self) -> Mapping[str, int]:
        """How many instances each subquery has."""
        return {running.subquery.name: running.instances for running in self.subqueries}

    @property
    def states(self) -> list[StateSize]:
        """The state of each subquery that has some."""
        return [running.work.state for running in self.subqueries if running.work.state is not None]

    @property
    def rows(self) -> int:
        """Tuples read so far."""
        return sum(inlet.rows for inlet in self._inlets)

    @property
    def malformed(self) -> int:
        """Records that were set aside so far."""
        return sum(inlet.rejects.count for inlet in self._inlets)

    @property
    def ahead(self) -> int:
        """Tuples and heartbeats that were set aside for lying too far in the future."""
        return sum(inlet.rejects.ahead for inlet in self._inlets)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said about them."""
        return tuple(inlet.rejects.notice for inlet in self._inlets if inlet.rejects.notice is not None)

    @property
    def emitted(self) -> tuple[int, int]:
        """Results, and segments of results, so far."""
        return self._collector.results, self._collector.segments

    def figures(self, now: float) -> JobFigures:
        """What has been counted until now, the present moment of the monotonic clock."""
        newest = max((inlet.newest for inlet in self._inlets), default=START)
        return JobFigures(
            now,
            tuple(self._figures_of(running) for running in self.subqueries),
            {inlet.source.name: inlet.figures for inlet in self._inlets},
            newest if newest > START else None,
            self.latencies.results,
            self.latencies.total_seconds,
        )

    # Called from any thread, the run's own included.

    def reconfigure(
        self, instances: int | None, mapping: Sequence[int] | None, subquery: str | None, timeout_seconds: float | None
    ) -> Reconfiguration:
        """Change the instances of a subquery, or what each of them owns; returns when it is done."""
        try:
            switch = self._subquery(subquery).ask(instances, mapping)
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
        for inlet in self._inlets:
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
        """Wake all threads that wait; gates refuse those that come."""
        for gate in self.gates:
            gate.abort(error)
        for running in self.subqueries:
            running.work.abort()
        for inlet in self._inlets:
            inlet.leave()
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
        )
        try:
            inlet.read(options)
        except GateAborted:
            pass
        except BaseException as error:
            self.fail(error)

    def _collect(self, gate: Gate) -> None:
        """Write all results to the sink; the run has ended when this returns, however it does."""
        try:
            self._collector.collect(gate, self.plan.outputs, self._tell)
            with self._ending:
                self._complete = not self.cancelled and self.failure is None
            if self._complete:
                with self._core.outside():
                    self.sink.close(complete=True)
                self._collector.report(self._tell)
        except GateAborted:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            if self.cancelled or self.failure is not None:
                # The failure is known already; whatever else goes wrong now, those who wait must learn of it.
                with suppress(Exception):
                    self.sink.close(complete=False)
            self.pool.close()
            self.done.set()
            for running in self.subqueries:
                running.ended()

    def _tell(self, now: float, watermark: Watermark, recent: Latencies) -> None:
        """Report progress."""
        before, rows_before = self._reported
        rows = self.rows
        self._reported = (now, rows)
        known = is_finite(watermark)
        newest = max((inlet.newest for inlet in self._inlets), default=START)
        results, segments = self.emitted
        states = self.states
        self.report(
            Progress(
                batch=segments,
                rows=rows - rows_before,
                rows_total=rows,
                rows_per_second=(rows - rows_before) / max(now - before, 1e-9),
                watermark=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=watermark) if known else None,
                lag_seconds=(newest - watermark) / 1e6 if known else None,
                state_rows=sum(state.rows for state in states),
                state_bytes=sum(state.bytes for state in states),
                late_total=sum(state.late for state in states),
                results_total=results,
                malformed_total=self.malformed,
                ahead_total=self.ahead,
                ended=has_ended(watermark),
                latency_p50_seconds=recent.quantile(0.5),
                latency_p99_seconds=recent.quantile(0.99),
                latency_max_seconds=recent.max_seconds,
            )
        )

    # How it is put together.

    def _subquery(self, name: str | None) -> RunningSubquery:
        found = [running for running in self.subqueries if name in (None, running.subquery.name)]
        if len(found) != 1:
            names = choices(running.subquery.name for running in self.subqueries)
            raise QueryError(f"which subquery? {f'there is no {name!r}; ' if name else ''}choose one of {names}")
        return found[0]

    def _figures_of(self, running: RunningSubquery) -> SubqueryFigures:
        epoch, subquery = running.epoch, running.subquery
        origins = [feed.origin for feed in subquery.feeds]
        watermark = running.gate.watermark
        return SubqueryFigures(
            subquery.name,
            epoch.instances,
            tuple(epoch.mapping.tolist()),
            running.work.busy_seconds,
            running.gate.traffic(),
            running.gate.blocked_times(),
            tuple(dict.fromkeys(self.plan.subqueries[each].name for each in origins if isinstance(each, int))),
            tuple(dict.fromkeys(each.name for each in origins if isinstance(each, Source))),
            watermark if is_finite(watermark) else None,
        )

    def _gate(
        self,
        feeds: Sequence[Feed],
        instances: Sequence[int],
        readers: list[str],
        eager: bool = True,
        linger_seconds: float = 0.0,
    ) -> Gate:
        """The gate in front of a subquery, or of the output, with the sources it begins with."""
        specs = []
        for feed in feeds:
            if isinstance(feed.origin, Source):
                specs.append(self._spec(feed, feed.origin))
            else:
                upstream = self.plan.subqueries[feed.origin]
                specs.extend(Outlet.spec_of(feed, upstream, instance) for instance in instances)
        return Gate(
            specs,
            readers,
            inputs=len(feeds),
            segment_rows=self.settings.segment_rows,
            linger_seconds=linger_seconds,
            eager=eager,
            limits=self.settings.limits,
        )

    def _spec(self, feed: Feed, source: Source) -> SourceSpec:
        """The source of a gate that a source of the query is."""
        first = min(other.input for other in self.plan.feeds_from(source) if other.target == feed.target)
        name = source.name if feed.input == first else f"{source.name}, input {feed.input}"
        told = isinstance(source.origin, Marked)
        return SourceSpec(name, feed.input, source.time, None if told else source.disorder_us)


def _nodes(plan: Plan) -> Iterator[Node]:
    """All that is executed."""
    yield from (subquery.operator for subquery in plan.subqueries if subquery.operator is not None)
    yield from (step.node for feed in plan.feeds for step in feed.steps)
