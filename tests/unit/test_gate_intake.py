"""What waits in a gate: how much of it is ready, and how much memory it takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.gate.intake import Intake
from tidegate.gate.ready import Run
from tidegate.gate.row_width import RowWidth

STEPS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=8)


def run_of(times: list[int], row_bytes: float) -> Run:
    return Run(0, pa.record_batch({"ts": times}), np.array(times, np.int64), row_bytes)


@given(STEPS, st.lists(st.tuples(st.integers(-1, 40), st.booleans(), st.booleans()), max_size=6))
def test_what_is_ready_of_a_sorted_source_is_what_a_look_at_each_row_finds(
    steps: list[list[int]], looks: list[tuple[int, bool, bool]]
) -> None:
    intake, left, now = Intake(), [], 0
    for number, gaps in enumerate(steps):
        times = (now + np.cumsum(gaps)).tolist()
        now = times[-1]
        intake.push(run_of(times, 1.0 + number))
        left += [(time, 1.0 + number) for time in times]
    for watermark, settled, take in looks:
        ready = [width for time, width in left if time < watermark or (time == watermark and not settled)]
        assert intake.ready(watermark, settled) == (len(ready), sum(ready))
        if take:
            intake.take(watermark, settled)
            left = left[len(ready) :]


def test_the_width_of_rows_is_known_or_asked_for() -> None:
    fixed = pa.record_batch({"ts": pa.array([1, 2, 3]), "yes": pa.array([True, False, None])})
    assert RowWidth().of(fixed) == 8 + 1 / 8
    width = RowWidth()
    short, long = (pa.record_batch({"ts": [1, 2], "text": [text] * 2}) for text in ("a", "a" * 1_000))
    assert width.of(short) == short.nbytes / 2
    assert width.of(long) == long.nbytes / 2
