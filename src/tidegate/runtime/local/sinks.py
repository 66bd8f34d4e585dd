"""Sinks of this process: a folder, the screen, a function, or memory; and the thread that brings results to them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidegate.gate.gate import Gate
from tidegate.gate.segment import Segment
from tidegate.operators.columns import in_time_order
from tidegate.results import PartWriter, show_count, show_rows
from tidegate.runtime.local.figures import Latencies, Schedule
from tidegate.runtime.local.threads import CorePinning
from tidegate.watermark import END, Watermark

SECONDS_BETWEEN_REPORTS = 1.0
SIGNAL_SECONDS = 0.5
"""How long an interrupt may go unnoticed at worst."""

Tell = Callable[[float, int, Latencies], None]
"""Is told the time, the watermark, and the latencies since it was told last."""


class Sink(Protocol):
    """Takes results in the order of event time, from one thread."""

    def write(self, table: pa.Table) -> None: ...

    def close(self, complete: bool) -> None:
        """Nothing more will come; ``complete`` says whether everything did."""
        ...


class ToFolder(PartWriter):
    """Parts in a folder, each of which appears whole."""

    def close(self, complete: bool = True) -> None:
        if complete:
            super().close()
        else:
            self.discard()


@dataclass(slots=True)
class ToScreen:
    """The first rows, printed when the run ends."""

    most: int
    _held: list[pa.Table] = field(default_factory=list)
    _rows: int = 0

    def write(self, table: pa.Table) -> None:
        held = sum(part.num_rows for part in self._held)
        if held < self.most:
            self._held.append(table.slice(0, self.most - held))
        self._rows += table.num_rows

    def close(self, complete: bool) -> None:
        if self._held:
            rows = pa.concat_tables(self._held)
            print(f"{show_rows(rows)}\n{show_count(self._rows, rows.num_rows)}")
        else:
            print("(no rows)")


@dataclass(frozen=True, slots=True)
class ToFunction:
    """A user's function, called with each table."""

    function: Callable[[pa.Table], None]

    def write(self, table: pa.Table) -> None:
        self.function(table)

    def close(self, complete: bool) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class ToIterator:
    """Tables to iterate over while the query runs; it waits when ``most`` of them lie unread."""

    most: int = 64
    _held: deque[pa.Table] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def write(self, table: pa.Table) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) < self.most or self._closed)
            if not self._closed:
                self._held.append(table)
                self._changed.notify_all()

    def close(self, complete: bool) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[pa.Table]:
        while True:
            with self._changed:
                # In steps, so that an interrupt of the thread that iterates is noticed whenever it comes.
                while not self._changed.wait_for(lambda: bool(self._held) or self._closed, SIGNAL_SECONDS):
                    pass
                if not self._held:
                    return
                table = self._held.popleft()
                self._changed.notify_all()
            yield table


@dataclass(slots=True, eq=False)
class ResultCollector:
    """Writes results to the sink, in the order of event time, and measures how late they are. Used by one thread.

    ``settled`` says that results lie before the watermark that releases them.
    """

    sink: Sink
    schedules: Sequence[Schedule]
    settled: bool
    core: CorePinning
    latencies: Latencies = field(default_factory=Latencies)
    results: int = 0
    segments: int = 0
    _recent: Latencies = field(default_factory=Latencies)
    _told: float = field(default_factory=time.monotonic)

    def collect(self, gate: Gate, tell: Tell) -> None:
        """Write all that comes, until the input has ended; report about once a second."""
        for segment in gate.reader("output"):
            self.core.move()
            table = _in_order(segment)
            if table is not None:
                self._measure(segment, table.num_rows)
                with self.core.outside():
                    self.sink.write(table)
                self.results += table.num_rows
                self.segments += 1
            if time.monotonic() - self._told >= SECONDS_BETWEEN_REPORTS:
                self.report(tell, segment.watermark)

    def report(self, tell: Tell, watermark: Watermark = END) -> None:
        """Tell how far things have come."""
        self._told = time.monotonic()
        recent, self._recent = self._recent, Latencies()
        with self.core.outside():
            tell(self._told, watermark, recent)

    def _measure(self, segment: Segment, results: int) -> None:
        """Note how long after its due time the results of a segment left."""
        latest = max((int(times[-1]) for times in segment.times if len(times)), default=None)
        if latest is None or latest < segment.since or not self.schedules:
            return
        # What settled lies at least 1 µs before the watermark that releases it; what passes through, at it.
        due = [schedule.due(latest + self.settled) for schedule in self.schedules]
        if all(moment is not None for moment in due):
            seconds = time.monotonic() - max(moment for moment in due if moment is not None)
            self.latencies.add(seconds, results)
            self._recent.add(seconds, results)


def _in_order(segment: Segment) -> pa.Table | None:
    """The rows of a segment in the order of event time; None if there are none."""
    batches = [batch for batch in segment.batches if batch is not None and batch.num_rows]
    if not batches:
        return None
    table = pa.Table.from_batches(batches)
    return table if len(batches) == 1 else in_time_order(table.combine_chunks(), np.concatenate(segment.times))[0]
