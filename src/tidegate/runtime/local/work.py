"""The work of a subquery's instances on the segments of their log: what it has in common, its state and its time."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.compile.plan import Feed, Subquery
from tidegate.gate.segment import Segment
from tidegate.gate.waiting import waited_seconds
from tidegate.operators.columns import Array
from tidegate.operators.exchange import first_in_time, known_times_of, split_late
from tidegate.operators.readers import SharedState
from tidegate.query.late import with_missed
from tidegate.query.nodes import Source
from tidegate.runtime.local.figures import JoinFigures, ShardFigures
from tidegate.runtime.local.late_buffer import LateBuffer
from tidegate.runtime.local.shard_meter import ShardMeter
from tidegate.state.snapshot import SnapshotStore, StateCut
from tidegate.watermark import Watermark

STATE_SECONDS = 1.0
"""How old what is known of the memory of shards may be: finding out takes a millisecond where state is large."""
FedTuples: TypeAlias = Sequence[tuple[Feed, pa.Table]]
"""The tuples of a segment, each with the feed they came by, after its steps."""


class StateSize(Protocol):
    """How many rows and bytes state holds."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...


@dataclass(slots=True, eq=False)
class Claims:
    """Work on segments that is done once, ``function(segment)``, by the instance that comes first, while others go on.

    An instance that finds a segment taken takes up the next one. It waits only where it needs the result, such as at the
    end of a window, and then for all segments up to there; meanwhile it takes up what lies ahead.

    Every instance must `take_up` every segment it passes. Then `finish` knows all that is under way before a place, also
    for an instance that began behind it: the one that let it in had passed all of that.
    """

    name: str
    function: Callable[[Segment], Any]
    _under_way: dict[int, Segment] = field(default_factory=dict)

    def take_up(self, segment: Segment) -> None:
        """Do the work on a segment unless another instance has begun; raises what made it fail if that is known."""
        if not segment.claim(self.name, self.function):
            self._under_way[segment.index] = segment
        if segment.is_done(self.name):
            # Checked after it was noted: the instance that noted it or the one that did it sees both and removes it.
            self._under_way.pop(segment.index, None)
            segment.derive(self.name, self.function)

    def finish(self, number: int, ahead: Iterator[Segment]) -> None:
        """Wait until the work on all segments up to a number is done; do that on segments ahead meanwhile."""
        for segment in list(self._under_way.values()):
            if segment.index <= number:
                while not segment.is_done(self.name) and (later := next(ahead, None)) is not None:
                    self.take_up(later)
                self.result(segment)

    def result(self, segment: Segment) -> Any:
        """The result of the work on a segment, waited for if need be."""
        value = segment.derive(self.name, self.function)
        self._under_way.pop(segment.index, None)
        return value


@dataclass(slots=True, eq=False)
class Work(ABC):
    """The work of a subquery; shared by its instances, called from all of their threads.

    An instance takes the segments in order. It calls `attach` before its first, asks for the `results` of each and then
    calls `acknowledge`, for control segments too, and may `detach` at a control segment.

    The seconds that each instance works are added up. Waiting for input, for room in the next gate, or for what another
    instance has begun is no work. What a user's function waits for is: another instance could wait beside it. That costs
    four readings of the clock per segment and instance; only its own thread writes an instance's figure.

    ``late`` counts the tuples that came too late for it, and ``late_tuples`` takes them where they are asked for. Those of
    the inputs ``late_sides`` leave beside the results: the instance that takes a segment in has them from `take_late`.
    ``meter`` counts the tuples of each shard.
    """

    subquery: Subquery
    state: StateSize | None = None
    late: int = field(init=False, default=0)
    clock: Callable[[], float] = field(default=time.perf_counter, kw_only=True)
    late_tuples: LateBuffer | None = field(default=None, kw_only=True)
    late_sides: frozenset[int] = field(default=frozenset(), kw_only=True)
    meter: ShardMeter = field(init=False, default_factory=ShardMeter)
    _claims: Claims = field(init=False)
    _leaving_late: dict[int, list[tuple[int, pa.Table]]] = field(init=False, default_factory=dict)
    _seconds: dict[int, float] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _shard_state: tuple[float, Array | None] | None = field(init=False, default=None)
    _counts_before: Array | float = field(init=False, default=0.0)
    _busiest: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._claims = Claims("taken in", self._receive)

    @property
    def busy_seconds(self) -> Mapping[int, float]:
        """The seconds that each instance has worked so far; those that left are forgotten."""
        return dict(self._seconds)

    @property
    def worked_seconds(self) -> float:
        """The seconds that the instances there are have worked so far, added up."""
        return sum(self._seconds.copy().values())

    @property
    def pooled(self) -> bool:
        """Whether any instance may do the work of any shard: then neither the mapping nor one shard limits anything."""
        return True

    @property
    def unfilled(self) -> int:
        """How many windows in number of tuples were not full when input ended."""
        return 0

    def shard_figures(self) -> ShardFigures:
        """What is known of the shards; that of their memory is up to a second old. Nothing while they are not measured."""
        if not self.meter.on:
            return ShardFigures(pooled=self.pooled)
        now = self.clock()
        if self._shard_state is None or now - self._shard_state[0] >= STATE_SECONDS:
            self._shard_state = now, self._shard_bytes()
        counts = self.meter.counts
        if counts is None:
            return ShardFigures(None, self._shard_state[1], self.pooled)
        if (recent := counts - self._counts_before).any():
            self._busiest, self._counts_before = int(np.argmax(recent)), counts
        return ShardFigures(counts, self._shard_state[1], self.pooled, self.meter.hot_key(self._busiest))

    def join_figures(self) -> JoinFigures | None:
        """What a join has compared and holds; None for anything else."""
        return None

    def results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        """Do an instance's part of the work on a segment; its results, in the order of event time.

        What needs to be done once is done by the instance that comes first. Every instance consumes this to its end, for
        every segment it passes. Instead of waiting for another instance it may begin on the segments ``ahead``.
        """
        began = self._worked_until()
        try:
            for table in self._results(segment, instance, owned, ahead):
                self._add(instance, began)
                yield table
                began = self._worked_until()
        finally:
            self._add(instance, began)

    def take_late(self) -> list[tuple[int, pa.Table]]:
        """The late tuples that the calling thread has found and that are to leave, each after the input they came by.

        To be asked for after the `results` of every segment: then those of what lies before a marker leave before it, as no
        instance begins on a segment behind one.
        """
        return self._leaving_late.pop(threading.get_ident(), [])

    def may_emit(self, segment: Segment) -> bool:
        """Whether some instance may have results for a segment; where none has, its watermark can wait."""
        return True

    def last_results(self, instance: int) -> Iterator[pa.Table]:
        """What is left for an instance to emit before it detaches: results for which the others need not wait any more."""
        return iter(())

    def attach(self, instance: int, number: int, watermark: Watermark) -> None:
        """Add an instance that begins behind a segment."""
        self._seconds[instance] = 0.0
        if isinstance(self.state, SharedState):
            self.state.attach(instance, number, watermark)

    def detach(self, instance: int) -> None:
        """Remove an instance."""
        self._seconds.pop(instance, None)
        if isinstance(self.state, SharedState):
            self.state.detach(instance)

    def acknowledge(self, instance: int, number: int, watermark: Watermark) -> None:
        """Note that an instance has passed a segment."""
        if isinstance(self.state, SharedState):
            began = self._worked_until()
            self.state.acknowledge(instance, number, watermark)
            self.state.compact()
            self._add(instance, began)

    def abort(self) -> None:
        """Wake instances that wait for another: the run has failed."""
        return

    def cut(self, segment: Segment) -> StateCut | None:
        """The state at a marker, None where there is none.

        Called by the first instance to get there; no instance goes on before it has returned.
        """
        self._claims.finish(segment.index, iter(()))
        return self._cut(segment)

    def restore(self, store: SnapshotStore, watermark: Watermark) -> None:
        """Begin with the state of a snapshot, taken at a watermark; before any instance is attached."""
        return

    def _cut(self, segment: Segment) -> StateCut | None:
        """The state at a marker, when all segments before it are taken in."""
        return None

    @abstractmethod
    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        """An instance's part of the results of a segment."""

    def _shard_bytes(self) -> Array | None:
        """How many bytes each shard holds; None where there is no state."""
        return None

    def _take_in(self, segment: Segment, tuples: FedTuples) -> Any:
        """What is done once with the tuples of a segment that are not late; nothing where there is no state."""
        return None

    def _receive(self, segment: Segment) -> Any:
        """Take in the tuples of a segment; those that are late are counted, and kept if they are asked for."""
        operator = self.subquery.operator
        assert operator is not None
        least = first_in_time(operator, segment.since)
        timely: list[tuple[Feed, pa.Table]] = []
        for feed, table in self._tuples(segment):
            rest, late = split_late(table, known_times_of(table, feed.time, operator.name), least)
            timely.append((feed, rest))
            if late is not None:
                with self._lock:
                    self.late += late.num_rows
                if isinstance(feed.origin, Source):
                    self._keep_late(feed, late, segment.since)
        return self._take_in(segment, timely)

    def _keep_late(self, feed: Feed, late: pa.Table, watermark: Watermark) -> None:
        """Pass late tuples on to those who ask for them."""
        if self.late_tuples is not None:
            self.late_tuples.add(self.subquery.name, feed.input, with_missed(late, feed.time, watermark))
        if feed.side in self.late_sides:
            mine = self._leaving_late.setdefault(threading.get_ident(), [])
            mine.append((feed.side, with_missed(late, feed.time, watermark)))

    def _tuples(self, segment: Segment) -> Iterator[tuple[Feed, pa.Table]]:
        """The tuples of a segment, late ones too."""
        for feed in self.subquery.feeds:
            batch = segment.batches[feed.input]
            if batch is not None and batch.num_rows:
                table = pa.Table.from_batches([batch])
                # A subquery applies the steps to its own results; a source passes on what it reads.
                yield feed, table if isinstance(feed.origin, int) else feed.apply(table)

    def _worked_until(self) -> float:
        """A clock that stands still while the calling thread waits for another."""
        return self.clock() - waited_seconds()

    def _add(self, instance: int, began: float) -> None:
        if instance in self._seconds:
            self._seconds[instance] += self._worked_until() - began
