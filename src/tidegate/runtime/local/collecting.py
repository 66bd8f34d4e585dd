"""From the last gate to the output, and what is reported on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.compile.plan import Feed
from tidegate.errors import InternalError
from tidegate.gate.gate import Gate
from tidegate.gate.segment import Segment
from tidegate.runtime.local.core_pinning import CorePinning
from tidegate.runtime.local.latency import Latencies, Schedule
from tidegate.runtime.local.outputs import Output
from tidegate.watermark import END, Watermark

SECONDS_BETWEEN_REPORTS = 1.0

Tell = Callable[[float, int, Latencies], None]
"""Is told the time, the watermark, and the latencies since it was told last."""


@dataclass(slots=True, eq=False)
class Collector:
    """Hands results to the output, in the order of event time, and measures how late they are. Used by one thread.

    ``settled`` says that results lie before the watermark that releases them.
    """

    output: Output
    schedules: Sequence[Schedule]
    settled: bool
    core: CorePinning
    latencies: Latencies
    results: int = 0
    segments: int = 0
    _recent: Latencies = field(default_factory=Latencies)
    _told: float = field(default_factory=time.monotonic)

    def collect(self, gate: Gate, feeds: Sequence[Feed], tell: Tell) -> None:
        """Hand out all that comes, until the input has ended; report about once a second."""
        for segment in gate.reader("output"):
            self.core.move()
            table = _in_order(segment, feeds)
            if table is not None:
                self._measure(segment, table.num_rows)
                with self.core.outside():
                    self.output.write(table)
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
        if latest is None or not self.schedules:
            return
        # What settled lies at least 1 µs before the watermark that releases it; what passes through, at it.
        due = [schedule.due(latest + self.settled) for schedule in self.schedules]
        if all(moment is not None for moment in due):
            seconds = time.monotonic() - max(moment for moment in due if moment is not None)
            self.latencies.add(seconds, results)
            self._recent.add(seconds, results)


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
