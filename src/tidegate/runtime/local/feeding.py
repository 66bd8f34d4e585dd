"""From a source into the gates that it feeds."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.errors import DataError
from tidegate.gate.source import GateSource, RowWidth
from tidegate.operators.columns import known_times
from tidegate.query.event_time import check_times
from tidegate.query.nodes import Source
from tidegate.runtime.local.core_pinning import CorePinning
from tidegate.runtime.local.figures import SourceFigures
from tidegate.runtime.local.latency import Schedule
from tidegate.runtime.local.origins import Arrival, Heartbeat, Reading, arrivals_of
from tidegate.runtime.local.origins.broken_promises import Reached, broken_promise, reached_by
from tidegate.runtime.local.origins.from_future import FutureFilter
from tidegate.sources import Rejects
from tidegate.sources.files import Files
from tidegate.watermark import START

SEGMENT_BYTES = 2 << 20


@dataclass(slots=True, eq=False)
class Inlet:
    """Where a source enters the query: all gates it feeds get the same tuples, and its end at the same place.

    `read` runs on a thread of its own. `end` may be called by any thread, at any time; what the source gives after that is
    not taken. The thread that reads it may then still be held up in the source, which nobody can interrupt; it ends when
    the source comes back.
    """

    source: Source
    ways: Sequence[GateSource]
    rejects: Rejects
    core: CorePinning
    schedule: Schedule = field(default_factory=Schedule)
    rows: int = 0
    newest: int = START
    ended: bool = False
    _due: float | None = None
    _unwanted: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def figures(self) -> SourceFigures:
        """What has been read until now."""
        return SourceFigures(self.rows, self._due, self.ended)

    def read(self, reading: Reading) -> None:
        """Read the source to its end, or until `end` is called."""
        reached: Reached | None = None
        width = RowWidth()
        future = FutureFilter(self.source, self.rejects)
        try:
            with closing(arrivals_of(self.source, reading)) as arrivals:
                # Whoever reads files may start threads; where an iterable is asked for more, that is taken care of there.
                of_files = isinstance(self.source.origin, Files)
                for arrived in self.core.each_outside(arrivals) if of_files else arrivals:
                    arrival = self._timely(future, arrived)
                    if arrival is None:
                        continue
                    if isinstance(arrival.what, Heartbeat):
                        if not self._advance(arrival.what.time):
                            return
                    elif arrival.what.num_rows:
                        times = known_times(arrival.what.column(self.source.time))
                        check_times(times, f"stream '{self.source.name}'", self.source.time)
                        try:
                            for part in _parts(arrival.what, width):
                                if not self._offer(part, arrival.due):
                                    return
                        except DataError as error:
                            raise broken_promise(self.source, arrival, reached) or error from error
                        self.core.move()
                    else:
                        continue
                    now = reached_by(self.source, arrival.what)
                    if reached is None or now.time >= reached.time:
                        reached = now
            self.end()
        except Exception:
            if not self.ended:
                raise
            # The input ended before: what the source does now concerns nobody.

    def pause(self, seconds: float) -> None:
        """Wait for so long, or until nothing more is wanted of the source."""
        self._unwanted.wait(seconds)

    def leave(self) -> None:
        """Nobody waits for the source any more."""
        self._unwanted.set()

    def end(self) -> None:
        """Take nothing more from the source. Never waits for it."""
        self.leave()
        with self._lock:
            if not self.ended:
                self.ended = True
                for way in self.ways:
                    way.end()

    def _offer(self, part: pa.RecordBatch, due: float | None) -> bool:
        """Deliver to all gates, then wait for room in each; False if the input has ended."""
        with self._lock:
            if self.ended:
                return False
            self._note(part, due)
            # All before any: what one gate waits for may have to come through another.
            full = [way for way in self.ways if way.offer(part)]
        for way in full:
            way.wait_for_room()
        return True

    def _timely(self, future: FutureFilter, arrived: Arrival) -> Arrival | None:
        """What of an arrival does not lie too far in the future; the rest counts as read, and goes nowhere."""
        kept = future.take(arrived)
        if kept is not arrived and isinstance(arrived.what, pa.RecordBatch):
            left = 0 if kept is None or isinstance(kept.what, Heartbeat) else kept.what.num_rows
            self.rows += arrived.what.num_rows - left
        return kept

    def _advance(self, time: int) -> bool:
        with self._lock:
            if not self.ended:
                for way in self.ways:
                    way.advance(time)
            return not self.ended

    def _note(self, part: pa.RecordBatch, due: float | None) -> None:
        """Remember how far the source has come, and when it was due to."""
        times = known_times(part.column(self.source.time))
        if len(times):
            latest = int(times.max() if self.source.disorder_us else times[-1])
            self.newest = max(self.newest, latest)
            if due is not None:
                self.schedule.add(latest - self.source.disorder_us, due)
        self.rows += part.num_rows
        self._due = due


def _parts(batch: pa.RecordBatch, width: RowWidth) -> Iterator[pa.RecordBatch]:
    """A batch in parts of about `SEGMENT_BYTES`, so that wide rows are spread over instances too."""
    parts = int(-(-batch.num_rows * width.of(batch) // SEGMENT_BYTES)) or 1
    rows = -(-batch.num_rows // parts)
    return (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))
