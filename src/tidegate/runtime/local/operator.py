"""A subquery at work: its gate, its instances, and its reconfigurations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.compile.plan import Feed, Subquery, apply_all
from tidegate.errors import QueryError
from tidegate.gate.align import GateCut
from tidegate.gate.gate import Gate, GateAborted
from tidegate.gate.log import Reader
from tidegate.gate.segment import Segment
from tidegate.gate.source import GateSource, SourceSpec
from tidegate.operators.cells import SHARDS
from tidegate.runtime.local.epochs import Epoch, Switch, checked_mapping, even_mapping
from tidegate.runtime.local.threads import CorePinning, ThreadPool
from tidegate.runtime.local.work import Work
from tidegate.state.snapshot import StateCut
from tidegate.watermark import START, Watermark

AHEAD = 4
"""On how many segments ahead an instance may begin while it would wait for another one."""


def outlet(feed: Feed, subquery: Subquery, instance: int) -> SourceSpec:
    """The source that an instance is for a feed: in order, except for revisions, and with explicit watermarks."""
    name = f"{subquery.name}/{instance} to {feed.target}.{feed.input}"
    return SourceSpec(name, feed.input, feed.time, disorder_us=None)


@dataclass(slots=True, eq=False)
class RunningSubquery:
    """One subquery and the instances that work on it.

    Instances are threads of the pool, each with a reader of the gate and a source in every gate the subquery feeds. A
    failure of one ends the run through ``fail``. ``outlets`` are the feeds of its results, each with the gate it leads to;
    ``emitted`` counts the rows that each target has got. A watermark that no reader awaits is passed on only where results
    may wait for it. ``core`` is what its threads share while segments are small. ``on_cut`` is told the state at each
    marker, and ``on_end`` that no marker comes any more.
    """

    subquery: Subquery
    work: Work
    gate: Gate
    outlets: tuple[tuple[Feed, Gate], ...]
    pool: ThreadPool
    fail: Callable[[BaseException], None]
    most: int
    epoch: Epoch
    core: CorePinning = field(default_factory=CorePinning)
    on_cut: Callable[[int, GateCut, StateCut | None], None] = lambda number, cut, state: None
    on_end: Callable[[int], None] = lambda number: None
    _asked: Epoch = field(init=False)
    _next_instance: int = field(init=False)
    _switches: list[Switch] = field(default_factory=list)
    emitted: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    def __post_init__(self) -> None:
        self._asked = self.epoch
        self._next_instance = len(self.epoch.instances)

    @staticmethod
    def first_epoch(instances: int) -> Epoch:
        """The epoch a subquery begins with."""
        return Epoch(0, tuple(range(instances)), even_mapping(SHARDS, instances))

    def start(self) -> None:
        """Start the instances of the first epoch."""
        for instance in self.epoch.instances:
            self.work.attach(instance, -1, START)
        for instance in self.epoch.instances:
            self._begin(instance, self.epoch)

    def ask(self, instances: int | None, mapping: Sequence[int] | None) -> Switch:
        """Write the next epoch into the log; what is not given stays as it is.

        The mapping of a new number of instances is even unless one is given.
        """
        with self._lock:
            before = self._asked
            count = len(before.instances) if instances is None else instances
            if not 1 <= count <= self.most:
                raise QueryError(
                    f"subquery '{self.subquery.name}': {count} instances; it may have 1 to {self.most} "
                    "(start with instances=(first, most) to allow more)"
                )
            if mapping is not None:
                owners = checked_mapping(mapping, SHARDS, count)
            else:
                owners = before.mapping if count == len(before.instances) else even_mapping(SHARDS, count)
            fresh = range(self._next_instance, self._next_instance + count - len(before.instances))
            after = Epoch(before.number + 1, (*before.instances[:count], *fresh), np.asarray(owners))
            switch = Switch(before, after)
            self.gate.append_control(switch)
            self._next_instance += len(fresh)
            self._asked = after
            self._switches.append(switch)
            if self._ended:
                switch.give_up()
        return switch

    def ended(self) -> None:
        """The run is over: no switch will complete any more, and failures are ignored."""
        # The job and its subqueries know each other; without this, what the job holds would stay until a garbage collection.
        self.fail = lambda error: None
        self.on_cut, self.on_end = lambda number, cut, state: None, lambda number: None
        with self._lock:
            self._ended = True
            for switch in self._switches:
                switch.give_up()

    def _begin(self, instance: int, epoch: Epoch, switch: Switch | None = None) -> None:
        reader = self.gate.reader(str(instance))
        sources = [gate.source(outlet(feed, self.subquery, instance).name) for feed, gate in self.outlets]
        self.pool.run(lambda: self._run(instance, reader, sources, epoch, switch))

    def _run(
        self, instance: int, reader: Reader, sources: Sequence[GateSource], epoch: Epoch, switch: Switch | None
    ) -> None:
        """An instance's whole life; ``switch`` is the one that brought it in."""
        try:
            if switch is not None:
                self._switched(instance, switch)
            self._follow(instance, reader, sources, epoch)
        except GateAborted:
            pass
        except BaseException as error:
            self.fail(error)

    def _follow(self, instance: int, reader: Reader, sources: Sequence[GateSource], epoch: Epoch) -> None:
        """Read the log to its end, or to the epoch in which this instance has no place."""
        # It begins with the cores of the thread that added it.
        self.core.move()
        region = self.subquery.safety()
        owned = epoch.owned(instance)
        for segment in reader:
            if isinstance(segment.control, Switch):
                epoch = segment.control.after
                self._switch(instance, reader, segment, segment.control, sources)
                if instance not in epoch.instances:
                    for source in sources:
                        source.end()
                    return
                owned = epoch.owned(instance)
                continue
            if isinstance(segment.control, GateCut):
                self._pass_marker(instance, segment, segment.control, sources)
                continue
            self.core.begin(segment.written_at)
            expected = self.work.may_emit(segment)
            if expected:
                # Results leave when every instance has passed the watermark on.
                self.gate.rouse()
            made: list[pa.Table] = []
            for table in self.work.results(segment, instance, owned, reader.following(AHEAD)):
                if made and region.settled:
                    # Results come in the order of time: what is there leaves while the rest is being made.
                    self._emit(made, sources, pc.min(table.column(self.subquery.time)).value)
                    made.clear()
                made.append(table)
            late = self.work.take_late()
            if made or late or region.awaited or expected:
                self._emit(made, sources, segment.watermark, late)
            self.work.acknowledge(instance, segment.index, segment.watermark)
            self.core.seen(segment.rows)
            for switch in tuple(self._switches):
                switch.moved()
        self.on_end(self.subquery.number)

    def _pass_marker(self, instance: int, segment: Segment, cut: GateCut, sources: Sequence[GateSource]) -> None:
        """Hand over the state at a marker, which the first instance does for all; then pass the marker on."""
        segment.derive("state", lambda each: self.on_cut(self.subquery.number, cut, self.work.cut(each)))
        for source in sources:
            source.advance(segment.watermark)
            source.mark()
        self.work.acknowledge(instance, segment.index, segment.watermark)

    def _emit(
        self,
        tables: list[pa.Table],
        sources: Sequence[GateSource],
        watermark: Watermark,
        late: Sequence[tuple[int, pa.Table]] = (),
    ) -> None:
        """Offer results to every gate the subquery feeds, then the watermark, with or without results; then wait for room.

        Late tuples go by feeds of their own, each after the input it is late for. All before any: what one gate waits for
        may have to come through another.
        """
        full = []
        own: list[list[pa.Table]] = [[] for _ in self.outlets]
        leaving: list[tuple[int | None, pa.Table]] = [*((None, table) for table in tables), *late]
        for side, table in leaving:
            places = [place for place, (feed, _) in enumerate(self.outlets) if feed.late_side == side]
            for place, (_, made) in zip(places, apply_all((self.outlets[at][0] for at in places), table), strict=True):
                own[place].append(made)
        for (feed, _), source, mine in zip(self.outlets, sources, own, strict=True):
            batches = [batch for table in mine for batch in table.combine_chunks().to_batches() if batch.num_rows]
            if batches:
                with self._counting:
                    rows = sum(batch.num_rows for batch in batches)
                    self.emitted[feed.target] = self.emitted.get(feed.target, 0) + rows
            for batch in batches[:-1]:
                source.offer(batch)
            if batches and source.offer(batches[-1], watermark):
                full.append(source)
            elif not batches:
                source.advance(watermark)
        for source in full:
            source.wait_for_room()

    def _switch(
        self, instance: int, reader: Reader, segment: Segment, switch: Switch, sources: Sequence[GateSource]
    ) -> None:
        """Go over to the next epoch, at the same place of the log as every other instance.

        Whoever is first adds the new instances: they read on from here. Nobody has to wait for the others, since what is
        shared is never changed, only added to.
        """
        after = switch.after
        if fresh := switch.take_newcomers():
            self.gate.add_readers([str(number) for number in fresh], reader)
            for number in fresh:
                self.work.attach(number, segment.index, segment.watermark)
                for (feed, gate), mine in zip(self.outlets, sources, strict=True):
                    gate.add_sources([outlet(feed, self.subquery, number)], segment.watermark, by=mine)
                self._begin(number, after, switch)
        if instance in after.instances:
            self.work.acknowledge(instance, segment.index, segment.watermark)
        else:
            self._emit(list(self.work.last_results(instance)), sources, segment.watermark)
            self.gate.remove_readers([str(instance)])
            self.work.detach(instance)
        self._switched(instance, switch)

    def _switched(self, instance: int, switch: Switch) -> None:
        """One more instance is in the new epoch, or out of it."""
        if switch.switched(instance):
            with self._lock:
                self._switches.remove(switch)
                if switch.after.number > self.epoch.number:
                    self.epoch = switch.after
