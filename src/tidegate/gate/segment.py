"""A segment: the next stretch of the merged stream, immutable and shared by all readers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.gate.derived import Derived
from tidegate.gate.ready import Array, Slice

_NO_TIMES: Array = np.empty(0, np.int64)


class Segment:
    """Rows of every input, each contiguous and in non-decreasing τ, and the watermark that holds behind them.

    - ``batches[i]`` are the rows of input i, None if there are none; ``times[i]`` is their τ.
    - All their τ are at or past ``since``, the watermark of the segment before, and at or before ``watermark``
      (strictly before it when the gate hands out settled tuples only).
    - ``late[i]`` are rows of input i with τ < ``since``, in order of arrival; None unless the gate forwards late rows.
    - ``written_at`` is when it was written into the log, by the monotonic clock.
    - ``control`` is the payload of a control segment, which has no rows; None for all others.
    """

    __slots__ = (
        "batches",
        "control",
        "derived",
        "index",
        "late",
        "nbytes",
        "rows",
        "since",
        "times",
        "watermark",
        "written_at",
    )

    def __init__(
        self,
        index: int,
        since: int,
        watermark: int,
        parts: tuple[Slice | None, ...],
        late: tuple[pa.RecordBatch | None, ...] | None = None,
        control: object = None,
        nbytes: int = 0,
    ) -> None:
        self.index = index
        self.since = since
        self.watermark = watermark
        self.batches = tuple([None if part is None else part.batch for part in parts])
        self.times = tuple([_NO_TIMES if part is None else part.times for part in parts])
        self.late = late if late is not None else (None,) * len(parts)
        self.control = control
        self.rows = sum([len(times) for times in self.times])
        if late is not None:
            self.rows += sum(batch.num_rows for batch in late if batch is not None)
        self.nbytes = nbytes
        self.written_at = time.monotonic()
        self.derived = Derived()

    def derive(self, name: str, function: Callable[[Segment], Any]) -> Any:
        """``function(segment)``, computed once under a name for all instances; the others wait for the first."""
        return self.derived.derive(name, lambda: function(self))

    def order(self) -> tuple[Array, Array]:
        """The canonical order of the rows, late ones apart: for each place the input and the row within its batch.

        Order is by τ, then input; rows of one input with equal τ stay as they are. Computed once, on first demand.
        """
        order: tuple[Array, Array] = self.derive("tidegate.order", _merge_order)
        return order

    def __repr__(self) -> str:
        what = f"control {self.control!r}" if self.control is not None else f"{self.rows} rows"
        return f"Segment({self.index}: {what}, watermark {self.watermark})"


def _merge_order(segment: Segment) -> tuple[Array, Array]:
    """Concatenate the inputs' times and sort them stably: ties keep the order of inputs."""
    lengths = [len(times) for times in segment.times]
    inputs = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    rows = np.concatenate([np.arange(length, dtype=np.int64) for length in lengths])
    if sum(1 for length in lengths if length) > 1:
        order = np.argsort(np.concatenate(segment.times), kind="stable")
        inputs, rows = inputs[order], rows[order]
    return inputs, rows
