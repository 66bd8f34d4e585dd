"""Which event times there are: those of a calendar, with room for windows on both sides.

Times are int64 microseconds, whose ends stand for −∞ and +∞. Spark's times end with the year 9999, which is where the
watermark goes when input ends. Tuples from outside lie in the years 1 to 8999, and no window is longer than 999 years: so
every window of every tuple ends in time on every runtime, and no sum of a time and a length overflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.errors import DataError

Array = np.ndarray[Any, Any]

EARLIEST_US = -62_135_596_800_000_000
"""0001-01-01, the first event time."""
AFTER_LATEST_US = 221_845_392_000_000_000
"""9000-01-01: event times lie before it."""
END_US = 253_370_764_800_000_000
"""9999-01-01: from this watermark on input has ended."""
LONGEST_US = END_US - AFTER_LATEST_US
"""999 years: no window, with its lateness, is longer."""


def check_times(times: Array, subject: str, column: str) -> None:
    """Refuse a batch with a time that no tuple may have; costs its least and its greatest time."""
    if len(times) == 0 or (times.min() >= EARLIEST_US and times.max() < AFTER_LATEST_US):
        return
    row = int(np.flatnonzero((times < EARLIEST_US) | (times >= AFTER_LATEST_US))[0])
    raise DataError(
        f"{subject}: row {row} of a batch has the event time {times[row]} in '{column}', in microseconds since 1970; event "
        "times lie from 0001-01-01 to 8999-12-31. Is it in another unit? Convert it, or filter it out before it is read"
    )
