"""The merger: moves what is ready from the sources' intakes into the log. Everything here is under the merge lock."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tidegate.errors import DataError
from tidegate.gate.log import Log
from tidegate.gate.merge import first_time, groups, join
from tidegate.gate.ready import Run, Slice
from tidegate.gate.reorder import bounded_watermark
from tidegate.gate.source import Source
from tidegate.watermark import END


class Merger:
    """The sources that take part, what they hold, and the log they are merged into.

    Writing is left to whoever needs it: a reader at the end of the log, or a source that fills a segment. So small
    batches that come while all readers are busy end up in one segment, and none waits while a reader does.
    """

    def __init__(self, log: Log, segment_rows: int, segment_bytes: int, settled: bool, forward_late: bool) -> None:
        self.log = log
        self.sources: list[Source] = []
        self.held_rows = 0
        self.held_bytes = 0.0
        self._segment_rows = segment_rows
        self._segment_bytes = segment_bytes
        self._settled = settled
        self._forward_late = forward_late
        self._late: list[list[pa.RecordBatch]] = [[] for _ in range(log.inputs)]
        self._schemas: list[pa.Schema | None] = [None] * log.inputs
        self._opened = False

    def open(self, source: Source) -> None:
        """Let a source take part."""
        self.sources.append(source)
        self._opened = True

    def push(self, source: Source, run: Run) -> pa.RecordBatch | None:
        """Take a run in; returns the rows that came too late to be put in order, if there are any."""
        self._check_schema(source, run)
        intake = source.intake
        if source.spec.disorder_us == 0 and run.head < intake.watermark:
            raise DataError(
                f"source '{source.name}' is declared sorted by '{source.spec.time}', but row 0 of a batch has time "
                f"{run.head}, and nothing below {intake.watermark} was due any more (its last time, its last heartbeat, or "
                "the watermark at which it was added); sort it, or declare how far out of order it may be"
            )
        if source.spec.disorder_us is not None:
            intake.watermark = max(intake.watermark, bounded_watermark(run.last, source.spec.disorder_us))
        late = self._split_late(source, run)
        if len(run):
            intake.push(run)
            self.held_rows += len(run)
            self.held_bytes += len(run) * run.row_bytes
        return late

    def ready_watermark(self, is_idle: Callable[[Source], bool] | None) -> int:
        """The least watermark of the sources that take part; +∞ when all have ended."""
        reached = self.log.watermark
        least = END
        heard = silent = False
        for source in self.sources:
            if source.intake.closed:
                continue
            if is_idle is not None and is_idle(source):
                silent = True
                continue
            heard = True
            least = min(least, source.intake.watermark)
        if not heard and (silent or not self._opened):
            return reached
        return max(least, reached)

    def has_something(self, watermark: int) -> bool:
        """Whether there is anything to write at a watermark."""
        return (
            watermark > self.log.watermark
            or any(self._late)
            or any(source.intake.has_ready(watermark, self._settled) for source in self.sources)
        )

    def fills(self, watermark: int, share: int) -> bool:
        """Whether what is ready makes 1/share of a segment, in rows or in bytes."""
        worth_rows, worth_bytes = self._segment_rows / share, self._segment_bytes / share
        if self.held_rows < worth_rows and self.held_bytes < worth_bytes:
            return False
        rows, nbytes = 0, 0.0
        for source in self.sources:
            ready_rows, ready_bytes = source.intake.ready(watermark, self._settled)
            rows += ready_rows
            nbytes += ready_bytes
            if rows >= worth_rows or nbytes >= worth_bytes:
                return True
        return False

    def write(self, watermark: int) -> bool:
        """Write what is ready at a watermark, and the watermark itself; False if there was nothing to write."""
        log = self.log
        if log.ended:
            return False
        slices, nbytes, one_run_after_another = self._take(watermark)
        late = self._take_late()
        if not slices:
            if watermark <= log.watermark and late is None:
                return False
            log.append(watermark, late=late)
            return True
        rows = sum([piece.high - piece.low for piece in slices])
        self.held_rows -= rows
        self.held_bytes = self.held_bytes - nbytes if self.held_rows else 0.0
        row_bytes = nbytes / rows
        limit = min(self._segment_rows, max(int(self._segment_bytes / max(row_bytes, 1.0)), 1))
        before: list[Slice] | None = None
        for group in groups(slices, limit, self._settled, one_run_after_another):
            if before is not None:
                self._append(first_time(group), before, late, row_bytes)
                late = None
            before = group
        if before is not None:
            self._append(watermark, before, late, row_bytes)
        return True

    def _append(
        self, watermark: int, group: list[Slice], late: tuple[pa.RecordBatch | None, ...] | None, row_bytes: float
    ) -> None:
        inputs = self.log.inputs
        rows = sum([piece.high - piece.low for piece in group])
        if inputs == 1:
            parts: tuple[Slice | None, ...] = (join(group),)
        else:
            parts = tuple([join([piece for piece in group if piece.input == place]) for place in range(inputs)])
        self.log.append(watermark, parts, late, nbytes=int(rows * row_bytes))

    def _take(self, watermark: int) -> tuple[list[Slice], float, bool]:
        """Remove what is ready from all intakes: slices, their bytes, and whether they follow one another in time."""
        slices: list[Slice] = []
        nbytes = 0.0
        gave = 0
        ordered = True
        drained = False
        for source in self.sources:
            intake = source.intake
            if intake.runs:
                taken, taken_bytes = intake.take(watermark, self._settled)
                if taken:
                    slices += taken
                    nbytes += taken_bytes
                    gave += 1
                    ordered = ordered and intake.in_order
            drained = drained or (intake.closed and not intake.runs)
        if drained:
            self.sources = [source for source in self.sources if source.intake.runs or not source.intake.closed]
        return slices, nbytes, gave == 1 and ordered

    def _split_late(self, source: Source, run: Run) -> pa.RecordBatch | None:
        """Take the rows off a run that lie before what has been handed out already."""
        if run.head >= self.log.watermark:
            return None
        late = run.take(run.bound(self.log.watermark, settled=True))
        batch: pa.RecordBatch = late.batch.slice(late.low, late.high - late.low)
        source.late_rows += batch.num_rows
        if self._forward_late:
            self._late[source.spec.input].append(batch)
        return batch

    def _take_late(self) -> tuple[pa.RecordBatch | None, ...] | None:
        """The late rows to forward with the next segment."""
        if not any(self._late):
            return None
        taken = tuple([pa.concat_batches(batches) if batches else None for batches in self._late])
        self._late = [[] for _ in self._late]
        return taken

    def _check_schema(self, source: Source, run: Run) -> None:
        known = self._schemas[run.input]
        if known is None:
            self._schemas[run.input] = run.batch.schema
        elif known is not run.batch.schema and not known.equals(run.batch.schema):
            raise DataError(
                f"source '{source.name}': a batch has the columns {_columns(run.batch.schema)}, but input {run.input} has "
                f"{_columns(known)}; all batches of an input have the same columns and types"
            )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
