"""A query at work in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InternalError, QueryError, UserError, choices
from tidegate.files import Rejects
from tidegate.gate.aborted import GateAborted
from tidegate.gate.gate import Gate
from tidegate.gate.ready import END, START
from tidegate.gate.segment import Segment
from tidegate.gate.source import SourceSpec
from tidegate.progress import Progress
from tidegate.query.nodes import Join, MapBatches, Node, Source, WindowAggregate, sources, walk
from tidegate.runtime.local.epochs import Reconfiguration
from tidegate.runtime.local.feeding import read_into
from tidegate.runtime.local.figures import JobFigures, RegionFigures, SourceFigures
from tidegate.runtime.local.latency import Latencies, Schedule
from tidegate.runtime.local.metered import MeteredWork
from tidegate.runtime.local.origins import Marked, Reading
from tidegate.runtime.local.outputs import Output, ToIterator
from tidegate.runtime.local.pool import Pool
from tidegate.runtime.local.region_work import work_of
from tidegate.runtime.local.regions import OUTPUT, Feed, Region, Regions, regions_of
from tidegate.runtime.local.running_region import Outlet, RunningRegion
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.shared_core import SharedCore
from tidegate.runtime.local.work import Held

if TYPE_CHECKING:
    from tidegate.elastic.scaling import Scaling

SECONDS_BETWEEN_REPORTS = 1.0


@dataclass(slots=True, eq=False)
class LocalJob:
    """A running query. Made by `tidegate.start`; every method may be called from any thread.

    ``scaling`` is what changes its instances with the load, if it was started with ``elastic``; it ends with the run.
    """

    query: Node
    output: Output
    settings: Settings = field(default_factory=Settings)
    report: Callable[[Progress], None] = lambda _: None
    latencies: Latencies = field(default_factory=Latencies)
    _recent: Latencies = field(default_factory=Latencies)
    scaling: Scaling | None = None
    _plan: Regions = field(init=False)
    _regions: list[RunningRegion] = field(default_factory=list)
    _gates: list[Gate] = field(default_factory=list)
    _schedules: list[Schedule] = field(default_factory=list)
    _pool: Pool = field(default_factory=lambda: Pool("tidegate"))
    _failure: BaseException | None = None
    _stopping: bool = False
    _done: threading.Event = field(default_factory=threading.Event)
    _rows: dict[str, int] = field(default_factory=dict)
    _due: dict[str, float | None] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)
    _rejects: dict[str, Rejects] = field(default_factory=dict)
    _newest: int = START
    _core: SharedCore = field(default_factory=SharedCore)
    _results: int = 0
    _segments: int = 0
    _reported: tuple[float, int] = (0.0, 0)

    def __post_init__(self) -> None:
        self._plan = regions_of(self.query)

    def start(self) -> LocalJob:
        """Start all threads."""
        plan = self._plan
        epoch = RunningRegion.first_epoch(self.settings.instances)
        gates: dict[int, Gate] = {}
        if not any(isinstance(node, Join | MapBatches) for node in walk(self.query)):
            # What a join does, and what a user's function may do, needs no interpreter, however small a segment is.
            self._core = SharedCore.of_caller()
        for region in plan.regions:
            names = [str(instance) for instance in epoch.instances]
            # A join does as much for a segment of one tuple as for a hundred before it tries any pair, and its two sides
            # come one after the other.
            linger = self.settings.join_linger_seconds if isinstance(region.operator, Join) else 0.0
            gates[region.number] = self._gate(region.inputs, epoch.instances, names, self._is_eager(region), linger)
        gates[OUTPUT] = self._gate(plan.outputs, epoch.instances, ["output"])
        self._gates = list(gates.values())
        for region in plan.regions:
            outlets = tuple(Outlet(feed, gates[feed.target]) for feed in plan.feeds_from(region.number))
            self._regions.append(
                RunningRegion(
                    region,
                    MeteredWork(work_of(region, self.settings)),
                    gates[region.number],
                    outlets,
                    self._pool,
                    self._fail,
                    self.settings.most,
                    epoch,
                    alone=self._is_alone(region),
                    core=self._core,
                )
            )
        self._reported = (time.monotonic(), 0)
        for running in self._regions:
            running.start()
        for source in sources(self.query):
            feeds = plan.feeds_from(source)
            self._rows[source.name], self._due[source.name] = 0, None
            self._rejects[source.name] = Rejects(source.name, source.dead_letters)
            schedule = Schedule()
            self._schedules.append(schedule)
            self._pool.run(
                lambda source=source, feeds=feeds, schedule=schedule: self._guard(  # type: ignore[misc]
                    lambda: self._feed(source, feeds, gates, schedule)
                )
            )
        self._pool.run(lambda: self._guard(lambda: self._collect(gates[OUTPUT], plan.outputs), last=True))
        return self

    @property
    def subqueries(self) -> tuple[str, ...]:
        """The names of what has instances of its own."""
        return tuple(region.name for region in self._plan.regions)

    @property
    def instances(self) -> Mapping[str, int]:
        """How many instances each subquery has."""
        return {running.region.name: running.instances for running in self._regions}

    @property
    def state_rows(self) -> int:
        """How many states, one per key and slice, are held."""
        return sum(state.rows for state in self._states())

    @property
    def state_bytes(self) -> int:
        """How much memory they take."""
        return sum(state.bytes for state in self._states())

    @property
    def late(self) -> int:
        """Tuples that came too late for all of their windows."""
        return sum(state.late for state in self._states())

    @property
    def rows(self) -> int:
        """Tuples read so far."""
        return sum(self._rows.values())

    @property
    def malformed(self) -> int:
        """Records that could not be read and were set aside in a file."""
        return sum(rejects.count for rejects in list(self._rejects.values()))

    @property
    def results(self) -> int:
        """Results handed out so far."""
        return self._results

    @property
    def segments(self) -> int:
        """Segments of results handed out so far."""
        return self._segments

    @property
    def ended(self) -> bool:
        """Whether the run is over, well or not."""
        return self._done.is_set()

    def figures(self, now: float) -> JobFigures:
        """What has been counted until now, the present moment of the monotonic clock."""
        return JobFigures(
            now,
            tuple(self._figures_of(running) for running in self._regions),
            {name: SourceFigures(rows, self._due[name], name in self._read) for name, rows in self._rows.items()},
            self._newest if self._newest > START else None,
            self.latencies.results,
            self.latencies.total_seconds,
        )

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
        switch = self._region(subquery).ask(instances, mapping)
        done = switch.wait(timeout_seconds)
        if done is not None:
            return done
        if self._failure is not None:
            raise self._failure
        if self._done.is_set():
            raise UserError("the input ended before the reconfiguration took effect")
        raise UserError(
            f"the reconfiguration did not complete in {timeout_seconds} s: an instance is still at work before it"
        )

    def __iter__(self) -> Iterator[pa.Table]:
        """The results, table by table, while the query runs; for jobs that were started without ``to``."""
        if not isinstance(self.output, ToIterator):
            raise UserError("the results of this job go elsewhere; start it without to=... to iterate over them")
        yield from self.output
        self.wait()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end of the run; raises what made it fail. False if it has not ended in time."""
        if not self._done.wait(timeout_seconds):
            return False
        self._close()
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """End the input where it is: every window is handed out, then the run ends."""
        self._stopping = True

    def cancel(self) -> None:
        """End the run at once; windows that are open are not handed out."""
        self._fail(_Cancelled())
        self._done.wait()
        self._close()

    def _close(self) -> None:
        if self.scaling is not None:
            self.scaling.stop()
        self._pool.close()

    def _figures_of(self, running: RunningRegion) -> RegionFigures:
        epoch, region = running.epoch, running.region
        origins = [feed.origin for feed in region.inputs]
        watermark = running.gate.watermark
        return RegionFigures(
            region.name,
            epoch.instances,
            tuple(epoch.mapping.tolist()),
            running.work.busy_seconds if isinstance(running.work, MeteredWork) else {},
            running.gate.traffic(),
            running.gate.blocked_times(),
            tuple(dict.fromkeys(self._plan.regions[each].name for each in origins if isinstance(each, int))),
            tuple(dict.fromkeys(each.name for each in origins if isinstance(each, Source))),
            watermark if START < watermark < END else None,
        )

    def _region(self, name: str | None) -> RunningRegion:
        found = [running for running in self._regions if name in (None, running.region.name)]
        if len(found) != 1:
            names = choices(running.region.name for running in self._regions)
            raise QueryError(f"which subquery? {f'there is no {name!r}; ' if name else ''}choose one of {names}")
        return found[0]

    def _states(self) -> list[Held]:
        return [running.work.held for running in self._regions if running.work.held is not None]

    def _is_alone(self, region: Region) -> bool:
        """Whether a region leads to the output and nowhere else, and nothing else leads there."""
        return self._plan.feeds_from(region.number) == self._plan.outputs and len(self._plan.outputs) == 1

    def _is_eager(self, region: Region) -> bool:
        """Whether every instance has to see every segment at once: where somebody waits for each of its watermarks."""
        windows = isinstance(region.operator, WindowAggregate) and not region.operator.window.lateness
        return not (windows and self._is_alone(region))

    def _gate(
        self,
        feeds: Sequence[Feed],
        instances: Sequence[int],
        readers: list[str],
        eager: bool = True,
        linger_seconds: float = 0.0,
    ) -> Gate:
        """The gate in front of a region, or of the output, with the sources it begins with."""
        specs = []
        for feed in feeds:
            if isinstance(feed.origin, Source):
                specs.append(self._spec(feed, feed.origin))
            else:
                upstream = self._plan.regions[feed.origin]
                specs.extend(Outlet.spec_of(feed, upstream, instance) for instance in instances)
        rows = self.settings.segment_rows
        return Gate(
            specs,
            readers,
            inputs=len(feeds),
            segment_rows=rows,
            forward_late=True,
            linger_seconds=linger_seconds,
            eager=eager,
            limits=self.settings.limits,
        )

    def _spec(self, feed: Feed, source: Source) -> SourceSpec:
        """The source of a gate that a source of the query is."""
        first = min(other.input for other in self._plan.feeds_from(source) if other.target == feed.target)
        name = source.name if feed.input == first else f"{source.name}, input {feed.input}"
        told = isinstance(source.origin, Marked)
        return SourceSpec(name, feed.input, source.time, None if told else source.disorder_us)

    def _feed(self, source: Source, feeds: Sequence[Feed], gates: Mapping[int, Gate], schedule: Schedule) -> None:
        """Read a source to its end, into every gate that it feeds."""
        ways = [gates[each.target].source(self._spec(each, source).name) for each in feeds]
        rejects = self._rejects[source.name]
        reading = Reading(self.settings.segment_rows, rejects, self.settings.linger_seconds, self._pool.run)

        def note(batch: pa.RecordBatch, due: float | None) -> None:
            """Remember how far the source has come, and when it was due to."""
            times = batch.column(source.time)
            latest = pc.max(times).value if source.disorder_us else times[-1].value
            if latest is not None:
                self._newest = max(self._newest, latest)
                if due is not None:
                    schedule.add(latest - source.disorder_us, due)
            self._rows[source.name] += batch.num_rows
            self._due[source.name] = due

        read_into(source, reading, ways, note, lambda: self._stopping, self._core)
        self._read.add(source.name)

    def _collect(self, gate: Gate, feeds: Sequence[Feed]) -> None:
        """Hand results to the output, in the order of event time."""
        for segment in gate.reader("output"):
            self._core.move()
            table = _in_order(segment, feeds)
            if table is not None:
                self._measure(segment, table.num_rows)
                self.output.write(table)
                self._results += table.num_rows
                self._segments += 1
            now = time.monotonic()
            if now - self._reported[0] >= SECONDS_BETWEEN_REPORTS:
                self._tell(now, segment.watermark)
        self.output.close(complete=True)
        self._tell(time.monotonic(), END)

    def _measure(self, segment: Segment, results: int) -> None:
        """Note how long after its due time the results of a segment left."""
        latest = max((int(times[-1]) for times in segment.times if len(times)), default=None)
        if latest is None or not self._schedules:
            return
        # What settles lies at least 1 µs before the watermark that releases it; what passes through, at it.
        settles = any(running.work.settles for running in self._regions)
        due = [schedule.due(latest + settles) for schedule in self._schedules]
        if all(moment is not None for moment in due):
            seconds = time.monotonic() - max(moment for moment in due if moment is not None)
            self.latencies.add(seconds, results)
            self._recent.add(seconds, results)

    def _tell(self, now: float, watermark: int) -> None:
        """Report progress."""
        before, rows_before = self._reported
        rows = self.rows
        self._reported = (now, rows)
        recent, self._recent = self._recent, Latencies()
        known = START < watermark < END
        self.report(
            Progress(
                batch=self._segments,
                rows=rows - rows_before,
                rows_total=rows,
                rows_per_second=(rows - rows_before) / max(now - before, 1e-9),
                watermark=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=watermark) if known else None,
                lag_seconds=(self._newest - watermark) / 1e6 if known else None,
                state_rows=self.state_rows,
                state_bytes=self.state_bytes,
                late_total=self.late,
                results_total=self._results,
                malformed_total=self.malformed,
                ended=watermark == END,
                latency_p50_seconds=recent.quantile(0.5),
                latency_p99_seconds=recent.quantile(0.99),
                latency_max_seconds=recent.max_seconds,
            )
        )

    def _guard(self, function: Callable[[], None], last: bool = False) -> None:
        """Run a thread's function; its failure ends the run. The last thread ends it in any case."""
        try:
            function()
        except GateAborted:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            if last:
                if self._failure is not None:
                    # Whatever else goes wrong now, the failure is known and whoever waits must be told.
                    with suppress(Exception):
                        self.output.close(complete=False)
                    if isinstance(self._failure, _Cancelled):
                        self._failure = None
                self._done.set()
                for running in self._regions:
                    running.ended()

    def _fail(self, error: BaseException) -> None:
        """End the run with an error; the first one counts."""
        if self._failure is None:
            self._failure = error
        for gate in self._gates:
            gate.abort(error)
        for running in self._regions:
            running.work.abort()
        if isinstance(self.output, ToIterator):
            # Nobody may come to take what it holds.
            self.output.close(complete=False)


class _Cancelled(Exception):
    """Not a failure: the run was cancelled."""


def _in_order(segment: Segment, feeds: Sequence[Feed]) -> pa.Table | None:
    """The rows of a segment in the order of event time, revisions of earlier windows first; None if there are none."""
    late = [batch for batch in segment.late if batch is not None and batch.num_rows]
    timely = [batch for batch in segment.batches if batch is not None and batch.num_rows]
    if not late and not timely:
        return None
    if len(timely) > 1:
        inputs, rows = segment.order()
        sizes = [0 if batch is None else batch.num_rows for batch in segment.batches]
        starts = [sum(sizes[:position]) for position in range(len(sizes))]
        places = pa.array([starts[which] for which in range(len(starts))]).take(pa.array(inputs))
        merged = pa.Table.from_batches(timely).combine_chunks().take(pc.add(places, pa.array(rows)))
        timely = merged.to_batches()
    table = pa.Table.from_batches([*late, *timely])
    if table.schema.names != feeds[0].schema.names:
        raise InternalError(f"results have the columns {table.schema.names}, not {feeds[0].schema.names}")
    return table
