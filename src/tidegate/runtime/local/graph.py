"""The running form of a plan: gates, and between them the inlets of sources and the instances of subqueries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidegate.compile.plan import OUTPUT, Feed, Plan, Subquery
from tidegate.errors import QueryError, choices
from tidegate.gate.gate import Gate
from tidegate.gate.source import SourceSpec
from tidegate.query.nodes import BagAggregate, Join, MapBatches, Node, Running, Source
from tidegate.runtime.local.figures import SubqueryFigures
from tidegate.runtime.local.late_buffer import LateBuffer
from tidegate.runtime.local.operator import RunningSubquery, outlet
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.sources.idleness import Idleness
from tidegate.runtime.local.sources.inlet import SourceInlet
from tidegate.runtime.local.subquery_work import work_of
from tidegate.runtime.local.threads import CorePinning, ThreadPool
from tidegate.runtime.local.work import StateSize
from tidegate.sources import Rejects
from tidegate.sources.in_memory import Marked
from tidegate.sources.kafka import TopicOrigin
from tidegate.sources.positions import first_position
from tidegate.watermark import START, Watermark, is_finite


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A gate in front of each subquery and of the output, and what reads and feeds them; nothing runs until it is started.

    ``core`` is what the threads of the run share while segments are small, ``late`` holds late tuples if they are asked for,
    ``idleness`` passes over sources that have fallen silent.
    """

    plan: Plan
    gates: Mapping[int, Gate]
    subqueries: tuple[RunningSubquery, ...]
    inlets: tuple[SourceInlet, ...]
    core: CorePinning
    late: LateBuffer | None
    idleness: Idleness

    @staticmethod
    def of(plan: Plan, settings: Settings, pool: ThreadPool, fail: Callable[[BaseException], None]) -> Graph:
        """The graph of a plan. Its threads come from ``pool``; ``fail`` is called with what ends the run."""
        needs_interpreter = not any(isinstance(node, Join | MapBatches | BagAggregate) for node in _nodes(plan))
        # What a join does, and what a user's function may do, needs no interpreter, however small a segment is.
        core = CorePinning.of_caller() if needs_interpreter else CorePinning()
        epoch = RunningSubquery.first_epoch(settings.instances)
        gates: dict[int, Gate] = {}
        for subquery in plan.subqueries:
            # A join does as much for a segment of one tuple as for a hundred before it tries any pair, and its two sides
            # come one after the other.
            linger = 4 * settings.linger_seconds if isinstance(subquery.operator, Join) else 0.0
            readers = [str(instance) for instance in epoch.instances]
            specs = _specs(plan, subquery.feeds, epoch.instances)
            gates[subquery.number] = settings.gate(specs, readers, len(subquery.feeds), subquery.safety().eager, linger)
        specs = _specs(plan, plan.outputs, epoch.instances)
        gates[OUTPUT] = settings.gate(specs, ["output"], len(plan.outputs))
        late = None if settings.late_to is None else LateBuffer.of(plan, settings.late_to)
        running = []
        inlets: list[SourceInlet] = []
        for subquery in plan.subqueries:
            outlets = tuple((feed, gates[feed.target]) for feed in plan.feeds_from(subquery.number))
            work = work_of(subquery, settings, late, partial(_last_time, plan, subquery, inlets))
            sides = (feed.late_side for feed, _ in outlets)
            work.late_sides = frozenset(side for side in sides if side is not None)
            gate = gates[subquery.number]
            running.append(RunningSubquery(subquery, work, gate, outlets, pool, fail, settings.most, epoch, core))
        for source in plan.sources:
            fed = [gates[feed.target].source(spec_of(plan, feed, source).name) for feed in plan.feeds_from(source)]
            rejects = Rejects(source.name, source.dead_letters)
            first = first_position(source.origin)
            clock, clock_us = settings.clock, settings.clock_us
            inlets.append(SourceInlet(source, fed, rejects, core, position=first, clock=clock, clock_us=clock_us))
        idleness = Idleness(inlets, settings.clock, fail)
        for inlet in inlets if idleness.wanted else ():
            inlet.on_delivery = idleness.on_delivery
        return Graph(plan, gates, tuple(running), tuple(inlets), core, late, idleness)

    @property
    def states(self) -> list[StateSize]:
        """The state of each subquery that has some."""
        return [running.work.state for running in self.subqueries if running.work.state is not None]

    @property
    def rows(self) -> int:
        """Tuples read so far."""
        return sum(inlet.rows for inlet in self.inlets)

    @property
    def malformed(self) -> int:
        """Records that were set aside so far."""
        return sum(inlet.rejects.count for inlet in self.inlets)

    @property
    def ahead(self) -> int:
        """Tuples and heartbeats that were set aside for lying too far in the future."""
        return sum(inlet.rejects.ahead for inlet in self.inlets)

    @property
    def newest(self) -> Watermark:
        """The latest event time that any source has delivered."""
        return max((inlet.newest for inlet in self.inlets), default=START)

    def named(self, name: str | None) -> RunningSubquery:
        """The subquery of a name, which may be left out where there is one."""
        found = [running for running in self.subqueries if name in (None, running.subquery.name)]
        if len(found) != 1:
            names = choices(running.subquery.name for running in self.subqueries)
            raise QueryError(f"which subquery? {f'there is no {name!r}; ' if name else ''}choose one of {names}")
        return found[0]

    def measure_shards(self) -> None:
        """Begin to count the tuples of each shard."""
        for running in self.subqueries:
            running.work.meter.on = True

    def figures(self) -> tuple[SubqueryFigures, ...]:
        """What each subquery has counted until now."""
        return tuple(map(self._figures_of, self.subqueries))

    def abort(self, error: BaseException) -> None:
        """Wake all threads that wait; gates refuse those that come."""
        for gate in self.gates.values():
            gate.abort(error)
        for running in self.subqueries:
            running.work.abort()
        for inlet in self.inlets:
            inlet.leave()

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
            running.work.shard_figures(),
            running.work.join_figures(),
            {
                self.plan.subqueries[target].name: rows
                for target, rows in running.emitted.copy().items()
                if target != OUTPUT
            },
            running.emitted.get(OUTPUT, 0),
        )


def _last_time(plan: Plan, subquery: Subquery, inlets: Sequence[SourceInlet]) -> int:
    """How far the sources before a running state have come when all of them have ended: the last period is one of theirs.

    A heartbeat ends the periods before it and says nothing of its own.
    """
    node = subquery.operator
    if not isinstance(node, Running):
        return START
    before = plan.sources_before(subquery.number)
    mine = [inlet for inlet in inlets if any(inlet.source is source for source in before)]
    return max([START, *(max(inlet.newest, inlet.heartbeat - node.period.size) for inlet in mine)])


def _specs(plan: Plan, feeds: Sequence[Feed], instances: Sequence[int]) -> list[SourceSpec]:
    """The sources that a gate begins with."""
    specs = []
    for feed in feeds:
        if isinstance(feed.origin, Source):
            specs.append(spec_of(plan, feed, feed.origin))
        else:
            specs += [outlet(feed, plan.subqueries[feed.origin], instance) for instance in instances]
    return specs


def spec_of(plan: Plan, feed: Feed, source: Source) -> SourceSpec:
    """What a source of the query is to the gate that a feed leads to."""
    first = min(other.input for other in plan.feeds_from(source) if other.target == feed.target)
    name = source.name if feed.input == first else f"{source.name}, input {feed.input}"
    # What of a topic is still due is known from its partitions, each of which the inlet has seen.
    marked = isinstance(source.origin, Marked | TopicOrigin)
    disorder_us = None if marked else source.disorder_us
    return SourceSpec(name, feed.input, source.time, disorder_us, source.idle_us is not None)


def _nodes(plan: Plan) -> Iterator[Node]:
    """All that is executed."""
    yield from (subquery.operator for subquery in plan.subqueries if subquery.operator is not None)
    yield from (step.node for feed in plan.feeds for step in feed.steps)
