"""A source: the side of a gate that delivers batches and watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError, QueryError, choices
from tidegate.gate.congestion import Blocked
from tidegate.gate.intake import Intake
from tidegate.gate.ready import Array, Run
from tidegate.gate.reorder import first_descent, in_order
from tidegate.gate.row_width import RowWidth
from tidegate.gate.waits import waiting_for_others
from tidegate.watermark import END, START, Watermark

if TYPE_CHECKING:
    from tidegate.gate.core import Core


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What is declared about a source.

    ``disorder_us`` is how far out of order its tuples may come: 0 means sorted, None that only explicit watermarks tell.
    ``idle_after_seconds`` leaves the source out of the minimum when it has been silent for so long; what it brings after
    that may be late, so results depend on the clock.
    """

    name: str
    input: int = 0
    time: str = "time"
    disorder_us: int | None = 0
    idle_after_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.input < 0:
            raise QueryError(f"source '{self.name}': input is {self.input}; inputs are numbered from 0")
        if self.disorder_us is not None and self.disorder_us < 0:
            raise QueryError(
                f"source '{self.name}': disorder is {self.disorder_us} µs; give 0 for a sorted source, a positive bound "
                "for an unsorted one, or None if it sends explicit watermarks"
            )
        if self.idle_after_seconds is not None and self.idle_after_seconds <= 0:
            raise QueryError(
                f"source '{self.name}': idle_after_seconds is {self.idle_after_seconds}; it must be positive"
            )


class Source:
    """A handle on one source of a gate, for one thread at a time.

    A batch costs one lock and, for all its rows together, one comparison of neighbours. It is always taken in; who
    delivers it waits afterwards, until there is room again.
    """

    __slots__ = ("_core", "_width", "blocked", "feeder", "heard_at", "intake", "late_rows", "spec")

    def __init__(self, core: Core, spec: SourceSpec, watermark: int, heard_at: float) -> None:
        self._core = core
        self.spec = spec
        self.intake = Intake(watermark, in_order=spec.disorder_us == 0)
        self.heard_at = heard_at
        self.blocked = Blocked()
        self.late_rows = 0
        self.feeder: int | None = None
        self._width = RowWidth()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def watermark(self) -> int:
        """No tuple with τ below this is still due from this source."""
        return self.intake.watermark

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
        times = self._times(batch)
        run = None
        if len(times):
            run = Run(self.spec.input, *self._sorted(batch, times), self._width.of(batch))
        return self._core.admit(self, run, watermark)

    def wait_for_room(self) -> None:
        """Wait while the gate holds too much; returns at once if it does not, or if the source has ended."""
        with waiting_for_others():
            self._core.hold(self)

    def advance(self, watermark: int) -> None:
        """A heartbeat: no tuple with τ below the watermark is still due from here. Never waits, never goes back."""
        self._core.admit(self, None, watermark)

    def end(self) -> None:
        """Nothing more will come from this source; the last one to end ends the input. Never waits."""
        self._core.close([self])

    def _times(self, batch: pa.RecordBatch) -> Array:
        """The τ of a batch as int64, checked for what the gate cannot order."""
        index = batch.schema.get_field_index(self.spec.time)
        if index < 0:
            raise DataError(
                f"source '{self.name}': a batch lacks the time column '{self.spec.time}'; it has "
                f"{choices(batch.schema.names)}"
            )
        column = batch.column(index)
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
        """The batch in order; an error that names the row if it should have been."""
        if self.spec.disorder_us != 0:
            batch, times = in_order(batch, times)
        else:
            row = first_descent(times)
            if row is not None:
                raise DataError(
                    f"source '{self.name}' is declared sorted by '{self.spec.time}', but row {row} of a batch has time "
                    f"{times[row]} after {times[row - 1]}; sort it, or declare how far out of order it may be"
                )
        if times[0] == START or times[-1] == END:
            raise DataError(
                f"source '{self.name}': a tuple has the time {times[0] if times[0] == START else times[-1]}, which stands "
                "for the beginning or the end of all time; no tuple may have it"
            )
        return batch, times
