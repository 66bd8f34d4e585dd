"""Reads a source and delivers it to the gates that it feeds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidegate.errors import DataError
from tidegate.gate.source import GateSource, RowWidth
from tidegate.operators.columns import known_times
from tidegate.query.arrival import stamped
from tidegate.query.event_time import check_times
from tidegate.query.nodes import Source
from tidegate.runtime.local.figures import Schedule, SourceFigures
from tidegate.runtime.local.sources.arrivals import ReadOptions, arrivals_of
from tidegate.runtime.local.sources.checks import FutureFilter, order_violation, wall_clock_us
from tidegate.runtime.local.threads import CorePinning
from tidegate.sources import ArrivingOrigin, PlacedBatch, Rejects, RowPlace
from tidegate.sources.files import Files
from tidegate.sources.growing import FolderReader
from tidegate.sources.in_memory import Heartbeat, Marked
from tidegate.sources.kafka import PartitionEnd, TopicOrigin, watermark_of
from tidegate.sources.positions import ReadPosition
from tidegate.watermark import END, START, Watermark

SEGMENT_BYTES = 4 << 20


@dataclass(slots=True, eq=False)
class SourceInlet:
    """Where a source enters the query: all gates it feeds get the same tuples, and its end at the same place.

    `read` runs on a thread of its own. `end` may be called by any thread, at any time; what the source gives after that is
    not taken. The thread that reads it may then still be held up in the source, which cannot be interrupted; it ends when
    the source returns.

    ``position`` is how far it has come: what the gates have got, or what was set aside. Times of arrival are those of
    ``clock_us``, and never go back, nor do they when the source is read on from a position. ``heard_us`` is when it
    delivered last by the ``clock``, which shows seconds; ``on_delivery`` is called after that.
    """

    source: Source
    gates: Sequence[GateSource]
    rejects: Rejects
    core: CorePinning
    schedule: Schedule = field(default_factory=Schedule)
    rows: int = 0
    position: ReadPosition = field(default_factory=lambda: ReadPosition(START, START))
    ended: bool = False
    clock_us: Callable[[], int] = field(default=wall_clock_us, kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    on_delivery: Callable[[], None] = lambda: None
    _heard_us: float | None = None
    _held_up: bool = False
    _due: float | None = None
    _unwanted: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def newest(self) -> int:
        """The latest event time of a tuple that was delivered."""
        return self.position.newest

    @property
    def heartbeat(self) -> int:
        """The latest heartbeat."""
        return self.position.heartbeat

    @property
    def reached(self) -> Watermark:
        """No tuple before this is still due, by what it has delivered."""
        if self.ended:
            return END
        is_marked = isinstance(self.source.origin, Marked | TopicOrigin)
        by_tuples = START if is_marked or self.newest == START else self.newest - self.source.disorder_us
        return max(by_tuples, self.heartbeat, self._watermark())

    @property
    def heard_us(self) -> float | None:
        """When it delivered something last, or began to be read; None where it is not silent but held up, or not read."""
        return None if self._held_up or self.ended else self._heard_us

    @property
    def figures(self) -> SourceFigures:
        """What has been read until now."""
        return SourceFigures(self.rows, self._due, self.ended)

    def read(self, options: ReadOptions) -> None:
        """Read the source to its end, or until `end` is called."""
        before = self.position
        self._heard_us = 1e6 * self.clock()
        if before.ended:
            self.end()
            return
        reached, by_heartbeat = max(before.newest, before.heartbeat), before.heartbeat > before.newest
        width = RowWidth()
        newest = reached if reached > START else None
        future = FutureFilter(self.source, self.rejects, self.clock_us, newest)
        try:
            with closing(arrivals_of(self.source, options)) as arrivals:
                # Reading files or a topic may start threads; iterables are read by `ItemReader`, which takes care of that.
                starts_threads = isinstance(self.source.origin, Files | ArrivingOrigin | TopicOrigin)
                for arrival in self.core.each_outside(arrivals) if starts_threads else arrivals:
                    if isinstance(arrival.what, PartitionEnd):
                        latest: int | None = None
                        delivered = self._end_partition(arrival.what)
                    elif isinstance(arrival.what, Heartbeat):
                        if not future.allows(arrival.what):
                            continue
                        latest = arrival.what.time
                        delivered = self._advance(arrival.what.time)
                    else:
                        placed = arrival.what
                        if self.source.stamped:
                            moment = max(self.clock_us(), reached)
                            placed = replace(placed, batch=stamped(placed.batch, self.source.time, moment))
                        timely, latest = self._timely(future, placed)
                        if timely is None:
                            self._pass_by(placed)
                            continue
                        self._check_partition(timely)
                        try:
                            self._check_order(timely, reached)
                            delivered = self._deliver(timely, latest, arrival.due, width)
                            if timely is not placed:
                                self._pass_by(placed)
                        except DataError as error:
                            raise order_violation(self.source, timely, reached, by_heartbeat) or error from error
                    if not delivered:
                        return
                    if latest is not None and latest >= reached:
                        reached, by_heartbeat = latest, isinstance(arrival.what, Heartbeat)
            self.end()
        except Exception:
            # An input that has ended before does not fail any more.
            if not self.ended:
                raise

    def pause(self, seconds: float) -> bool:
        """Wait for so long, or until nothing more is wanted of the source, which is then true."""
        return self._unwanted.wait(seconds)

    def wanted(self) -> bool:
        """Whether more is wanted of the source."""
        return not self._unwanted.is_set()

    def pass_over(self, time: Watermark) -> None:
        """Let the gates take the source to have come to a time, as it is idle. Never waits for it."""
        with self._lock:
            if not self.ended:
                for gate in self.gates:
                    gate.advance(time)

    def leave(self) -> None:
        """Do not wait for the source any more."""
        self._unwanted.set()

    def mark(self) -> ReadPosition:
        """Pass a marker, which all gates expect, to each of them; how far the source had come. Never waits for it."""
        with self._lock:
            for gate in self.gates:
                gate.mark()
            position = replace(self.position, ended=self.ended)
            origin = self.source.origin
            return origin.position(position) if isinstance(origin, FolderReader) else position

    def end(self) -> None:
        """Take nothing more from the source. Never waits for it."""
        self.leave()
        with self._lock:
            if not self.ended:
                self.ended = True
                for gate in self.gates:
                    gate.end()

    def _timely(self, future: FutureFilter, placed: PlacedBatch) -> tuple[PlacedBatch | None, int | None]:
        """The part of a batch that does not lie too far in the future, and its latest time; the rest counts as read."""
        if not placed.batch.num_rows:
            return None, None
        times = known_times(placed.batch.column(self.source.time))
        if not len(times):  # no event times at all, which the gate refuses
            return placed, None
        latest = int(times.max())
        kept = future.batch(placed, latest)
        if kept is None:
            self.rows += placed.batch.num_rows
            return None, None
        if kept is not placed:
            self.rows += placed.batch.num_rows - kept.batch.num_rows
            times = known_times(kept.batch.column(self.source.time))
            latest = int(times.max()) if len(times) else latest
        check_times(times, f"stream '{self.source.name}'", self.source.time, latest)
        return kept, latest

    def _deliver(self, placed: PlacedBatch, latest: int | None, due: float | None, width: RowWidth) -> bool:
        """Give a batch to all gates, in parts of about `SEGMENT_BYTES`; False if the input has ended."""
        # Wide rows are cut, so that they are spread over instances too.
        batch = placed.batch
        parts = int(-(-batch.num_rows * width.of(batch) // SEGMENT_BYTES)) or 1
        rows = -(-batch.num_rows // parts)
        for at in range(0, batch.num_rows, rows):
            part = batch if parts == 1 else batch.slice(at, rows)
            if parts > 1:
                times = known_times(part.column(self.source.time))
                latest = int(times.max()) if len(times) else None
            if not self._offer(part, placed.place, at, latest, due):
                return False
        self.core.move()
        return True

    def _offer(self, part: pa.RecordBatch, place: RowPlace, at: int, latest: int | None, due: float | None) -> bool:
        """Deliver rows of a batch, from a place in it on, to all gates, then wait for room; False if the input has ended."""
        with self._lock:
            if self.ended:
                return False
            self.position = self.position.after(place, at + part.num_rows - 1, START if latest is None else latest)
            if latest is not None and due is not None:
                self.schedule.add(latest - self.source.disorder_us, due)
            self.rows += part.num_rows
            self._due = due
            # All before any: what one gate waits for may have to come through another.
            watermark = self._watermark()
            full = [gate for gate in self.gates if gate.offer(part, watermark)]
        self._held_up = True
        for gate in full:
            gate.wait_for_room()
        self._delivered()
        return True

    def _check_order(self, placed: PlacedBatch, reached: Watermark) -> None:
        """Refuse a batch of a sorted source that may idle, and so be passed over, if it begins before the one before it.

        What other sources deliver out of order the gates refuse.
        """
        source = self.source
        if source.idle_us is None or source.disorder_us or isinstance(source.origin, Marked | TopicOrigin):
            return
        first = placed.batch.column(source.time)[0].value
        if first is not None and first < reached:
            raise DataError(f"stream '{source.name}': out of order")

    def _delivered(self) -> None:
        """Note that the source is not silent."""
        self._held_up, self._heard_us = False, 1e6 * self.clock()
        self.on_delivery()

    def _pass_by(self, placed: PlacedBatch) -> None:
        """Note that all records of a batch were taken or set aside."""
        if placed.batch.num_rows:
            with self._lock:
                self.position = self.position.after(placed.place, placed.batch.num_rows - 1)

    def _check_partition(self, placed: PlacedBatch) -> None:
        """Refuse what is out of order in its partition, where a topic is declared sorted; gates take what they get."""
        if isinstance(self.source.origin, TopicOrigin) and not self.source.disorder_us:
            name = placed.place.file
            reached = next((each.newest for each in self.position.partitions if each.name == name), START)
            if (error := order_violation(self.source, placed, reached, by_heartbeat=False)) is not None:
                raise error

    def _end_partition(self, end: PartitionEnd) -> bool:
        """Wait for a partition no more; False if the input has ended."""
        with self._lock:
            if not self.ended:
                self.position = self.position.behind(end)
                for gate in self.gates:
                    gate.advance(self._watermark())
            return not self.ended

    def _watermark(self) -> Watermark:
        """The watermark of a topic, which gates cannot tell from its tuples; of other sources they can."""
        of_topic = isinstance(self.source.origin, TopicOrigin)
        return watermark_of(self.position.partitions, self.source.disorder_us) if of_topic else START

    def _advance(self, time: int) -> bool:
        with self._lock:
            if not self.ended:
                self.position = replace(self.position, heartbeat=max(self.position.heartbeat, time))
                for gate in self.gates:
                    gate.advance(time)
        self._delivered()
        return not self.ended
