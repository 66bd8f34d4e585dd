"""A source of a gate: it delivers batches and watermarks, and queues what is not ready yet.

A source that declares how far out of order it may be has the watermark max τ − bound; one that sends explicit watermarks
has those. Each of its batches is sorted when it comes; the gate holds them until the watermark passes and merges what is
ready.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.gate.flow import BlockedClock
from tidegate.gate.segment import Array, Slice
from tidegate.gate.waiting import waiting_for_others
from tidegate.watermark import END, START, Watermark

if TYPE_CHECKING:
    from tidegate.gate.gate import Gate


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What is declared about a source.

    ``disorder_us`` is how far out of order its tuples may come: 0 means sorted, None that it sends explicit watermarks.
    A source that ``may_idle`` is passed over when it is silent, so its batches may come behind its own watermark.
    """

    name: str
    input: int = 0
    time: str = "time"
    disorder_us: int | None = 0
    may_idle: bool = False


class RowWidth:
    """The bytes of a row, for batches that all have one schema.

    Where all columns have a fixed width it is known from the first batch on. Asking Arrow for the size of a batch is quick,
    but releases the interpreter lock, and it may take a thread long to get it back.
    """

    __slots__ = ("_fixed", "_known")

    def __init__(self) -> None:
        self._fixed: float | None = None
        self._known = False

    def of(self, batch: pa.RecordBatch) -> float:
        """The mean over a batch that is not empty; a little less than it takes where nulls are marked."""
        if not self._known:
            if all(pa.types.is_primitive(column.type) for column in batch.schema):
                self._fixed = float(sum(column.type.bit_width for column in batch.schema)) / 8
            self._known = True
        return batch.nbytes / batch.num_rows if self._fixed is None else self._fixed


class PendingBatch:
    """A batch in non-decreasing τ whose rows leave from the front; never empty.

    ``head`` and ``last`` are the first and last τ still held, as Python integers, so that most comparisons need no NumPy.
    ``rows_through`` and ``bytes_through`` are what its source has delivered up to its end, counted when it is queued.
    """

    __slots__ = ("batch", "bytes_through", "head", "input", "last", "low", "row_bytes", "rows_through", "times")

    def __init__(self, input_index: int, batch: pa.RecordBatch, times: Array, row_bytes: float) -> None:
        self.input = input_index
        self.batch = batch
        self.times = times
        self.low = 0
        self.head = int(times[0])
        self.last = int(times[-1])
        self.row_bytes = row_bytes
        self.rows_through = 0
        self.bytes_through = 0.0

    def __len__(self) -> int:
        return len(self.times) - self.low

    def bound(self, watermark: Watermark) -> int:
        """The position after the last row with τ ≤ watermark."""
        if self.last <= watermark:
            return len(self.times)
        return self.low + int(self.times[self.low :].searchsorted(watermark, "right"))

    def take(self, high: int) -> Slice:
        """Remove the rows before ``high``."""
        taken = Slice(self.input, self.batch, self.times, self.low, high)
        self.low = high
        if high < len(self.times):
            self.head = int(self.times[high])
        return taken


@dataclass(slots=True, eq=False)
class SourceQueue:
    """The batches of one source that wait for the watermark, and the source's own watermark. Under the merge lock.

    A row is ready when τ ≤ W, W the least of the sources' watermarks (STRETCH, definition 3). Batches of a sorted source
    follow one another in time, so what is ready is a prefix of them. Those of an unsorted source may overlap, so each is
    inspected.
    """

    watermark: Watermark = START
    in_order: bool = True
    closed: bool = False
    pending: deque[PendingBatch] = field(default_factory=deque)
    rows: int = 0
    nbytes: float = 0.0
    _rows_through: int = 0
    _bytes_through: float = 0.0

    def push(self, batch: PendingBatch) -> None:
        """Queue a batch; the watermark is the caller's business."""
        self.pending.append(batch)
        nbytes = len(batch) * batch.row_bytes
        self.rows += len(batch)
        self.nbytes += nbytes
        self._rows_through += len(batch)
        self._bytes_through += nbytes
        batch.rows_through, batch.bytes_through = self._rows_through, self._bytes_through

    def close(self) -> None:
        """Leave the minimum: nothing more will come; what was delivered stays until it is ready."""
        self.closed = True
        self.watermark = END

    def follow_with(self, later: SourceQueue) -> None:
        """Queue what came later, and be as far as that."""
        for batch in later.pending:
            self.push(batch)
        self.watermark = max(self.watermark, later.watermark)

    def ready(self, watermark: Watermark) -> tuple[int, float]:
        """How many rows and bytes are ready at a watermark."""
        if not self.in_order:
            some = [batch for batch in self.pending if batch.head <= watermark]
            counts = [batch.bound(watermark) - batch.low for batch in some]
            return sum(counts), sum([rows * batch.row_bytes for rows, batch in zip(counts, some, strict=True)])
        # By bisection: sources ask for every batch, and thousands of small ones may wait for another source.
        found = bisect_right(self.pending, watermark, key=lambda batch: batch.head)
        if not found:
            return 0, 0.0
        last = self.pending[found - 1]
        unready = len(last.times) - last.bound(watermark)
        rows = last.rows_through - unready - (self._rows_through - self.rows)
        return rows, last.bytes_through - unready * last.row_bytes - (self._bytes_through - self.nbytes)

    def take(self, watermark: Watermark) -> tuple[list[Slice], float]:
        """Remove and return what is ready at a watermark, and its size in bytes."""
        taken: list[Slice] = []
        nbytes = 0.0
        for batch in self.pending:
            if batch.head <= watermark:
                piece = batch.take(batch.bound(watermark))
                taken.append(piece)
                self.rows -= piece.high - piece.low
                nbytes += (piece.high - piece.low) * batch.row_bytes
            elif self.in_order:
                break
        if not self.in_order:
            self.pending = deque([batch for batch in self.pending if len(batch)])
        while self.pending and not len(self.pending[0]):
            self.pending.popleft()
        self.nbytes = max(self.nbytes - nbytes, 0.0) if self.rows else 0.0
        return taken, nbytes


@dataclass(slots=True, eq=False)
class GateSource:
    """A handle on one source of a gate, for one thread at a time.

    A batch costs one lock and, for all its rows together, one comparison of neighbours. It is always taken in; the thread
    that delivers it waits afterwards, until there is room again.

    ``later`` is what it delivers behind a marker that other sources have not passed yet.
    """

    _gate: Gate
    spec: SourceSpec
    queue: SourceQueue
    later: SourceQueue | None = None
    blocked: BlockedClock = field(default_factory=BlockedClock)
    _width: RowWidth = field(default_factory=RowWidth)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def watermark(self) -> Watermark:
        """No tuple with τ below this is still due from this source."""
        return self.queue.watermark

    def add(self, batch: pa.RecordBatch, watermark: Watermark = START) -> None:
        """Deliver a batch, and with it, if given, an explicit watermark that holds behind it; then wait for room.

        For a thread that feeds this source alone. Raises `DataError` if the batch breaks what was declared, `GateAborted`
        if the run has failed meanwhile.
        """
        if self.offer(batch, watermark):
            self.wait_for_room()

    def offer(self, batch: pa.RecordBatch, watermark: Watermark = START) -> bool:
        """Deliver a batch without waiting; True if too much is held now, and the caller should `wait_for_room`.

        A thread that feeds several sources offers to all of them before it waits for any: one may be held up only until
        what is offered to another has gone through.
        """
        return self._gate.admit(self, self._pending(batch), watermark)

    def deliver(self, batch: pa.RecordBatch) -> None:
        """Queue a batch before the source takes part."""
        if (pending := self._pending(batch)) is not None:
            self.queue.push(pending)

    def wait_for_room(self) -> None:
        """Wait while the gate holds too much; returns at once if it does not, or if the source has ended."""
        with waiting_for_others():
            self._gate.hold(self)

    def advance(self, watermark: Watermark) -> None:
        """A heartbeat: no tuple with τ below the watermark is still due from here. Never waits, never goes back."""
        self._gate.admit(self, None, watermark)

    def mark(self) -> None:
        """Pass the marker that the gate expects: what comes from here on is not part of its cut. Never waits."""
        self._gate.mark_source(self)

    @property
    def later_rows(self) -> int:
        """How many rows are held back behind a marker."""
        return 0 if self.later is None else self.later.rows

    @property
    def arriving(self) -> SourceQueue:
        """Where what it delivers now is queued."""
        return self.queue if self.later is None else self.later

    def end(self) -> None:
        """Nothing more will come from this source; the last one to end ends the input. Never waits."""
        self._gate.end_source(self)

    def _pending(self, batch: pa.RecordBatch) -> PendingBatch | None:
        """A batch in the order of event time; None if it is empty."""
        times = self._times(batch)
        if not len(times):
            return None
        return PendingBatch(self.spec.input, *self._sorted(batch, times), self._width.of(batch))

    def _times(self, batch: pa.RecordBatch) -> Array:
        """The τ of a batch as int64, checked for what the gate cannot order."""
        column = batch.column(self.spec.time)
        kind = column.type
        if kind != pa.int64() and not (pa.types.is_timestamp(kind) and kind.unit == "us"):
            raise DataError(
                f"source '{self.name}': time column '{self.spec.time}' has the type {column.type}; it must be int64 or "
                "timestamp[us], in microseconds since the epoch"
            )
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(f"source '{self.name}': row {row} has no time in column '{self.spec.time}'")
        times: Array = column.to_numpy().view(np.int64)
        return times

    def _sorted(self, batch: pa.RecordBatch, times: Array) -> tuple[pa.RecordBatch, Array]:
        """The batch in non-decreasing τ, equals as they were; an error that names the row if it should have been."""
        descents = times[1:] < times[:-1]
        if descents.any():
            if self.spec.disorder_us == 0:
                row = int(descents.argmax()) + 1
                raise DataError(
                    f"source '{self.name}' is declared sorted by '{self.spec.time}', but row {row} of a batch has time "
                    f"{times[row]} after {times[row - 1]}; sort it, or declare how far out of order it may be"
                )
            order = np.argsort(times, kind="stable")
            batch, times = batch.take(pa.array(order)), times[order]
        return batch, times
