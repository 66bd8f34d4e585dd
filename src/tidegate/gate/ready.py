"""Readiness: which tuples of sorted runs may be handed out at a watermark.

A tuple is *ready* when τ ≤ W, W the least of the sources' watermarks (STRETCH, definition 3), and *settled* when τ < W.
A source's watermark is the latest τ it delivered, or what it promised explicitly if that is more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]


class Slice(NamedTuple):
    """Rows [low, high) of a batch of one input, in non-decreasing τ."""

    input: int
    batch: pa.RecordBatch
    times: Array
    low: int
    high: int


class Run:
    """A batch in non-decreasing τ whose rows leave from the front; never empty.

    ``head`` and ``last`` are the first and last τ still held, as Python integers, so that most comparisons need no NumPy.
    ``rows_through`` and ``bytes_through`` are what its source has delivered up to its end, counted when it is taken in.
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

    def bound(self, watermark: int, settled: bool) -> int:
        """The position after the last row that is ready (settled) at a watermark."""
        if self.last < watermark or (self.last == watermark and not settled):
            return len(self.times)
        return self.low + int(self.times[self.low :].searchsorted(watermark, "left" if settled else "right"))

    def take(self, high: int) -> Slice:
        """Hand out the rows before ``high``."""
        taken = Slice(self.input, self.batch, self.times, self.low, high)
        self.low = high
        if high < len(self.times):
            self.head = int(self.times[high])
        return taken


def is_ready(head: int, watermark: int, settled: bool) -> bool:
    """Whether a tuple at ``head`` may leave at a watermark."""
    return head < watermark or (head == watermark and not settled)
