"""Putting the batches of unsorted sources in order.

A source that declares how far out of order it may be has the watermark max τ − bound; one that sends explicit watermarks
has those. Each of its batches is sorted when it comes; the gate holds the runs until the watermark passes and merges what
is ready. A tuple is late if its τ is below the watermark the gate has already handed out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.gate.ready import Array
from tidegate.watermark import START


def in_order(batch: pa.RecordBatch, times: Array) -> tuple[pa.RecordBatch, Array]:
    """The same rows in non-decreasing τ; equals stay as they are."""
    if first_descent(times) is None:
        return batch, times
    order = np.argsort(times, kind="stable")
    return batch.take(pa.array(order)), times[order]


def first_descent(times: Array) -> int | None:
    """The first row whose τ is below that of the row before it."""
    descents = times[1:] < times[:-1]
    return int(descents.argmax()) + 1 if descents.any() else None


def bounded_watermark(last_time: int, disorder_us: int) -> int:
    """The watermark of a source that has delivered ``last_time`` and may be that far out of order."""
    return max(last_time - disorder_us, START)
