"""What waits in a gate: how much of it is ready, and how much memory it takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.gate.source import PendingBatch, RowWidth, SourceQueue

STEPS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=8)


def pending(times: list[int], row_bytes: float) -> PendingBatch:
    return PendingBatch(0, pa.record_batch({"ts": times}), np.array(times, np.int64), row_bytes)


@given(STEPS, st.booleans(), st.lists(st.tuples(st.integers(-1, 40), st.booleans()), max_size=6))
def test_what_is_ready_of_a_source_is_what_an_inspection_of_each_row_finds(
    steps: list[list[int]], in_order: bool, looks: list[tuple[int, bool]]
) -> None:
    queue, left, now = SourceQueue(in_order=in_order), [], 0
    for number, gaps in enumerate(steps):
        times = (now + np.cumsum(gaps)).tolist()
        now = times[-1]
        queue.push(pending(times, 1.0 + number))
        left += [(time, 1.0 + number) for time in times]
    for watermark, take in looks:
        ready = [width for time, width in left if time <= watermark]
        assert queue.ready(watermark) == (len(ready), sum(ready))
        if take:
            queue.take(watermark)
            left = left[len(ready) :]


def test_the_width_of_rows_is_known_or_asked_for() -> None:
    fixed = pa.record_batch({"ts": pa.array([1, 2, 3]), "yes": pa.array([True, False, None])})
    assert RowWidth().of(fixed) == 8 + 1 / 8
    width = RowWidth()
    short, long = (pa.record_batch({"ts": [1, 2], "text": [text] * 2}) for text in ("a", "a" * 1_000))
    assert width.of(short) == short.nbytes / 2
    assert width.of(long) == long.nbytes / 2
