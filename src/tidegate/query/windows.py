"""Event-time windows and the slices they share.

A window ``n`` covers ``[n·every, n·every + size)``. The edges of all windows cut event time into *slices*: at most two
per advance, one from ``n·every`` and, when ``every`` does not divide ``size``, one from ``n·every + size mod every``.
All tuples of a slice lie in the same windows, so an aggregate keeps one state per key and slice and a window combines
the states of its slices. A slice is numbered ``2·floor(τ / every)``, plus one in the second part of an advance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tidegate.errors import QueryError, warn_slow
from tidegate.query.event_time import LONGEST_US, Duration, format_duration, parse_duration
from tidegate.watermark import Watermark

Times = TypeVar("Times", int, np.ndarray[Any, Any])
MANY_WINDOWS = 10_000
"""A query with more windows per tuple than this warns.

A core emits some five million results a second, so a tuple of a new key then costs it 2 ms, and some hundred keys a second
are all it can do. A day every minute has 1,440 windows, an hour every second 3,600.
"""


@dataclass(frozen=True, slots=True)
class Window:
    """The shape of the windows of one aggregate; all lengths in microseconds."""

    size: int
    every: int
    lateness: int = 0

    @classmethod
    def parse(cls, step: str, size: Duration, every: Duration | None, lateness: Duration = 0) -> Window:
        """A checked window of a step; back to back unless ``every`` says how far it advances."""
        size_us = parse_duration(size, f"step '{step}': window size")
        every_us = parse_duration(every, f"step '{step}': every") if every is not None else size_us
        window = cls(size_us, every_us, parse_duration(lateness, f"step '{step}': lateness"))
        window.check(step)
        return window

    def check(self, step: str) -> None:
        """Refuse shapes that lose tuples or never end; warn of those with very many windows."""
        if self.size <= 0 or self.every <= 0 or self.lateness < 0:
            raise QueryError(
                f"step '{step}': window size ({format_duration(self.size)}) and advance ({format_duration(self.every)}) "
                "must be longer than zero, and lateness must not be negative"
            )
        if self.every > self.size:
            raise QueryError(
                f"step '{step}': window advance ({format_duration(self.every)}) is longer than its size "
                f"({format_duration(self.size)}), so tuples between windows would be lost; make every ≤ size"
            )
        if self.size + self.lateness > LONGEST_US:
            raise QueryError(
                f"step '{step}': window size ({format_duration(self.size)}) and lateness "
                f"({format_duration(self.lateness)}) are too long; together they may last {format_duration(LONGEST_US)}"
            )
        if self.windows_per_tuple > MANY_WINDOWS:
            warn_slow(
                f"step '{step}': a tuple lies in up to {self.windows_per_tuple:,} windows "
                f"({format_duration(self.size)} every {format_duration(self.every)}), so each of its keys may bring as many "
                "results; they are emitted as they are computed, which takes long: make every longer, or size shorter"
            )

    @property
    def windows_per_tuple(self) -> int:
        """In how many windows a tuple lies, at most."""
        return -(-self.size // self.every)

    @property
    def remainder(self) -> int:
        """Where inside an advance the second slice begins; 0 when there is only one."""
        return self.size % self.every

    def slice_of(self, times: Any) -> Any:
        """The slice of a time, or of each of a NumPy array of times."""
        advance = times // self.every
        if self.remainder == 0:
            return 2 * advance
        return 2 * advance + (times - advance * self.every >= self.remainder)

    def slice_start(self, slices: Any) -> Any:
        """The first microsecond of a slice, or of each of a NumPy array of slices."""
        return (slices >> 1) * self.every + (slices & 1) * self.remainder

    def first_window(self, slices: Any) -> Any:
        """The earliest window that covers a slice, or each of a NumPy array of slices."""
        return (self.slice_start(slices) - self.size) // self.every + 1

    def last_window(self, slices: Any) -> Any:
        """The latest window that covers a slice, or each of a NumPy array of slices."""
        return slices >> 1

    def slices(self, window: int) -> range:
        """The slices of a window, in order."""
        last = self.slice_of(self.end(window) - 1)
        return range(2 * window, last + 1, 2 if self.remainder == 0 else 1)

    def start(self, window: int) -> int:
        """The first microsecond of a window."""
        return window * self.every

    def end(self, window: int) -> int:
        """The first microsecond after a window."""
        return window * self.every + self.size

    def first_open(self, watermark: Times) -> Times:
        """The first window that has not expired at a watermark; at a time, or each of an array of times, it covers it."""
        return (watermark - self.size) // self.every + 1

    def least_open_slice(self, watermark: Watermark) -> int:
        """The least slice that still takes tuples at a watermark, lateness counted."""
        return 2 * self.first_open(watermark - self.lateness)

    def least_arriving(self, watermark: Watermark) -> int:
        """The earliest time at which a tuple that arrives is not late, lateness counted."""
        return int(self.slice_start(self.least_open_slice(watermark)))

    def reopened(self, slice_id: int, watermark: Watermark) -> range:
        """The windows over a slice that have expired at a watermark and still take late tuples."""
        if not self.lateness:
            return range(0)
        first = max(self.first_window(slice_id), self.first_open(watermark - self.lateness))
        return range(first, min(self.last_window(slice_id) + 1, self.first_open(watermark)))

    def covering(self, time: int) -> Iterator[int]:
        """The windows a time lies in, earliest first."""
        return iter(range((time - self.size) // self.every + 1, time // self.every + 1))

    @property
    def slices_per_window(self) -> int:
        """How many slices one window combines."""
        return len(self.slices(0))

    def __str__(self) -> str:
        text = f"{format_duration(self.size)} every {format_duration(self.every)}"
        return text + (f", {format_duration(self.lateness)} late" if self.lateness else "")


INSTANT = Window(1, 1)
"""Windows of one microsecond, the smallest step of time: what they give has the time of their tuples."""
