"""Sinks of this process: a folder, the screen, a function, or memory; and the thread that brings results to them."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidegate.gate.align import GateCut
from tidegate.gate.gate import Gate
from tidegate.gate.segment import Segment
from tidegate.operators.columns import Array, in_time_order
from tidegate.results import PartWriter
from tidegate.runtime.local.figures import Latencies, Schedule
from tidegate.runtime.local.threads import CorePinning
from tidegate.tables import show_first
from tidegate.watermark import END, Watermark

SECONDS_BETWEEN_REPORTS = 1.0
SIGNAL_SECONDS = 0.5
"""How long an interrupt may go unnoticed at worst."""

Tell = Callable[[float, int, Latencies], None]
"""Is told the time, the watermark, and the latencies since it was told last."""


class Sink(Protocol):
    """Takes results in the order of event time, from one thread."""

    def write(self, table: pa.Table, output: int = 0) -> None:
        """Take rows of one of the results of the query, by its number; a query has one or several."""
        ...

    def close(self, complete: bool) -> None:
        """Nothing more will come; ``complete`` says whether everything did."""
        ...


@dataclass(frozen=True, slots=True)
class ToFolders:
    """Parts in a folder for each result of the query; each part appears whole."""

    writers: tuple[PartWriter, ...]

    def write(self, table: pa.Table, output: int = 0) -> None:
        self.writers[output].write(table)

    def close(self, complete: bool) -> None:
        for writer in self.writers:
            if complete:
                writer.close()
            else:
                writer.discard()


@dataclass(slots=True)
class ToScreen:
    """The first rows of each result, printed when the run is complete; several are told apart by their names."""

    most: int
    names: tuple[str, ...] = ()
    _held: dict[int, list[pa.Table]] = field(default_factory=dict)
    _rows: Counter[int] = field(default_factory=Counter)

    def write(self, table: pa.Table, output: int = 0) -> None:
        parts = self._held.setdefault(output, [])
        held = sum(part.num_rows for part in parts)
        if held < self.most:
            parts.append(table.slice(0, self.most - held))
        self._rows[output] += table.num_rows

    def close(self, complete: bool) -> None:
        for output, name in enumerate(self.names or (None,) if complete else ()):
            parts = self._held.get(output)
            print(show_first(name, pa.concat_tables(parts) if parts else None, self._rows[output]))


@dataclass(frozen=True, slots=True)
class ToFunction:
    """A user's function, called with each table; of several results with the name of the result first."""

    function: Callable[..., None]
    names: tuple[str, ...] = ()

    def write(self, table: pa.Table, output: int = 0) -> None:
        self.function(*self.names[output : output + 1], table)

    def close(self, complete: bool) -> None:
        """Nothing is held."""


@dataclass(slots=True)
class ToIterator:
    """Tables to iterate over while the query runs; it waits when ``most`` of them lie unread."""

    most: int = 64
    _held: deque[tuple[int, pa.Table]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def write(self, table: pa.Table, output: int = 0) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._held) < self.most or self._closed)
            if not self._closed:
                self._held.append((output, table))
                self._changed.notify_all()

    def close(self, complete: bool) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[tuple[int, pa.Table]]:
        """The tables, each after the number of the result that it belongs to."""
        while True:
            with self._changed:
                # In steps, so that an interrupt of the thread that iterates is noticed whenever it comes.
                while not self._changed.wait_for(lambda: bool(self._held) or self._closed, SIGNAL_SECONDS):
                    pass
                if not self._held:
                    return
                held = self._held.popleft()
                self._changed.notify_all()
            yield held


@dataclass(slots=True, eq=False)
class ResultCollector:
    """Writes results to the sink, in the order of event time, and measures how late they are. Used by one thread.

    ``sides`` says for each input of the gate before the output which result of the query its rows belong to. ``settled``
    says that results lie before the watermark that releases them. ``on_cut`` is called at each marker.
    """

    sink: Sink
    sides: Sequence[int]
    schedules: Sequence[Schedule]
    settled: bool
    core: CorePinning
    on_cut: Callable[[GateCut], None] = lambda cut: None
    latencies: Latencies = field(default_factory=Latencies)
    results: int = 0
    segments: int = 0
    _recent: Latencies = field(default_factory=Latencies)
    _told: float = field(default_factory=time.monotonic)

    def collect(self, gate: Gate, tell: Tell) -> None:
        """Write all that comes, until the input has ended; report about once a second."""
        for segment in gate.reader("output"):
            self.core.move()
            if isinstance(segment.control, GateCut):
                with self.core.outside():
                    self.on_cut(segment.control)
                continue
            tables = _in_order(segment, self.sides)
            rows = sum(table.num_rows for table in tables.values())
            if rows:
                self._measure(segment, rows)
                with self.core.outside():
                    for output, table in tables.items():
                        self.sink.write(table, output)
                self.results += rows
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


def _in_order(segment: Segment, sides: Sequence[int]) -> dict[int, pa.Table]:
    """The rows of a segment in the order of event time, for each result that has some."""
    found: dict[int, list[tuple[pa.RecordBatch, Array]]] = {}
    for side, batch, times in zip(sides, segment.batches, segment.times, strict=False):
        if batch is not None and batch.num_rows:
            found.setdefault(side, []).append((batch, times))
    return {side: _merged(parts) for side, parts in sorted(found.items())}


def _merged(parts: list[tuple[pa.RecordBatch, Array]]) -> pa.Table:
    """Rows of several inputs in the order of event time."""
    table = pa.Table.from_batches([batch for batch, _ in parts])
    if len(parts) == 1:
        return table
    return in_time_order(table.combine_chunks(), np.concatenate([times for _, times in parts]))[0]
