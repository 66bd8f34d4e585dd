"""How far a run has come, and how that is shown to people."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TextIO

SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True, slots=True)
class Progress:
    """A run after one of its batches; totals count from the start of the run.

    ``watermark`` is the event time below which the batch expected no more tuples, None while nothing is known.
    ``lag_seconds`` is the event time from there to the newest tuple seen: what windows still wait for, whether the
    input is live or replayed. ``state_rows`` counts states per key and slice. ``malformed_total`` counts records that
    could not be read and were set aside, ``ahead_total`` tuples that lay too far in the future. ``ended`` says that the
    input has ended and every window has been handed out.
    ``latency_…`` is that of the results since the report before, from when the tuple that released them was due; None
    where no source keeps to a schedule.
    ``instances`` is, on Spark, how many each cell ran when it last had something to do, step by step and cell by cell.
    """

    batch: int
    rows: int
    rows_total: int
    rows_per_second: float
    watermark: datetime | None
    lag_seconds: float | None
    state_rows: int
    state_bytes: int
    late_total: int
    results_total: int
    ended: bool
    malformed_total: int = 0
    ahead_total: int = 0
    latency_p50_seconds: float | None = None
    latency_p99_seconds: float | None = None
    latency_max_seconds: float | None = None
    instances: tuple[int, ...] = ()

    def __str__(self) -> str:
        rate = f" ({self.rows_per_second:,.0f}/s)" if self.rows else ""
        parts = [f"batch {self.batch}", f"{self.rows_total:,} rows{rate}"]
        parts += [f"{self.results_total:,} results", f"{self.late_total:,} late"]
        if self.malformed_total:
            parts.append(f"{self.malformed_total:,} malformed")
        if self.ahead_total:
            parts.append(f"{self.ahead_total:,} ahead")
        if self.ended:
            parts.append("input ended")
        elif self.watermark is not None:
            lag = f" +{self.lag_seconds:,.0f} s" if self.lag_seconds is not None else ""
            parts.append(f"up to {self.watermark:%Y-%m-%d %H:%M:%S}{lag}")
        if self.latency_p99_seconds is not None:
            parts.append(f"latency {show_latency(self)}")
        parts.append(f"state {self.state_rows:,} rows, {show_bytes(self.state_bytes)}")
        return " · ".join(parts)


@dataclass(slots=True)
class ProgressLine:
    """Shows progress on a stream: one line rewritten in place on a terminal, else a line every few seconds."""

    out: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    _shown_at: float | None = None
    _waiting: object = None

    def __call__(self, progress: object) -> None:
        """Show what is so far, such as a batch, as the line it prints as: now or when its turn comes."""
        if self.out.isatty():
            self.out.write("\r\x1b[K" + str(progress)[: shutil.get_terminal_size().columns - 1])
            self.out.flush()
            self._shown_at = self.clock()
            return
        self._waiting = progress
        if self._shown_at is None or self.clock() - self._shown_at >= SECONDS_BETWEEN_LINES:
            self._print()

    def say(self, text: str) -> None:
        """Print a remark on a line of its own."""
        if self.out.isatty() and self._shown_at is not None:
            self.out.write("\r\x1b[K")
        self.out.write(f"{text}\n")
        self.out.flush()

    def close(self) -> None:
        """Show the last batch if it was held back, and leave the line."""
        if self.out.isatty() and self._shown_at is not None:
            self.out.write("\n")
        elif self._waiting is not None:
            self._print()
        self.out.flush()

    def _print(self) -> None:
        self.out.write(f"{self._waiting}\n")
        self.out.flush()
        self._shown_at, self._waiting = self.clock(), None


def show_latency(progress: Progress) -> str:
    """The median, the 99th percentile and the maximum, in milliseconds."""
    shown = (progress.latency_p50_seconds, progress.latency_p99_seconds, progress.latency_max_seconds)
    return "/".join("-" if seconds is None else f"{1e3 * seconds:,.1f}" for seconds in shown) + " ms"


def show_bytes(count: int) -> str:
    """A number of bytes in the unit that suits it.

    >>> show_bytes(3_250_000)
    '3.2 MB'
    """
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
