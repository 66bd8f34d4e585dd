"""How far a run has come, and how that is shown to people."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TextIO

SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True, slots=True)
class Progress:
    """A run after one of its batches; totals count from the start of the run.

    ``watermark`` is the event time below which the batch expected no more tuples, None while nothing is known.
    ``lag_seconds`` is the event time from there to the newest tuple seen: what windows still wait for, whether the
    input is live or replayed. ``state_rows`` counts states per key and slice. ``malformed_total`` counts records that
    could not be read and were set aside, ``ahead_total`` tuples that lay too far in the future, ``unfilled_total`` windows
    in number of tuples that were not full when input ended. ``ended`` says that the input has ended and every window has
    been emitted.
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
    unfilled_total: int = 0
    latency_p50_seconds: float | None = None
    latency_p99_seconds: float | None = None
    latency_max_seconds: float | None = None
    instances: tuple[int, ...] = ()

    def __str__(self) -> str:
        from rich.filesize import decimal

        rate = f" ({self.rows_per_second:,.0f}/s)" if self.rows else ""
        parts = [f"batch {self.batch}", f"{self.rows_total:,} rows{rate}"]
        parts += [f"{self.results_total:,} results", f"{self.late_total:,} late"]
        if self.malformed_total:
            parts.append(f"{self.malformed_total:,} malformed")
        if self.ahead_total:
            parts.append(f"{self.ahead_total:,} ahead")
        if self.unfilled_total:
            parts.append(f"{self.unfilled_total:,} unfilled")
        if self.ended:
            parts.append("input ended")
        elif self.watermark is not None:
            lag = f" +{self.lag_seconds:,.0f} s" if self.lag_seconds is not None else ""
            parts.append(f"up to {self.watermark:%Y-%m-%d %H:%M:%S}{lag}")
        if self.latency_p99_seconds is not None:
            shown = (self.latency_p50_seconds, self.latency_p99_seconds, self.latency_max_seconds)
            latency = "/".join("-" if seconds is None else f"{1e3 * seconds:,.1f}" for seconds in shown)
            parts.append(f"latency {latency} ms")
        parts.append(f"state {self.state_rows:,} rows, {decimal(self.state_bytes)}")
        return " · ".join(parts)


class ProgressLine:
    """Shows progress: one line rewritten in place on a terminal or below a notebook's cell, else one every few seconds."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=out or sys.stderr, markup=False, highlight=False, soft_wrap=True)
        self._clock = clock
        self._waiting: object = None
        self._shown_at: float | None = None
        self._live: Live | None = None
        # The part of a notebook's output that is replaced by the next line; rich would need ipywidgets for that.
        self._cell: Any = None
        if self._console.is_jupyter and out is None:
            from IPython.display import display

            self._cell = display(_Line(""), display_id=True)
        elif self._console.is_terminal and not self._console.is_dumb_terminal:
            # Results go to standard output, whatever happens here.
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def __call__(self, progress: object) -> None:
        """Show the progress, such as a batch, as the line it prints as: now or when its turn comes."""
        if self._cell is not None:
            self._cell.update(_Line(str(progress)))
            return
        if self._live is not None:
            from rich.text import Text

            self._live.start()
            self._live.update(Text(str(progress), no_wrap=True, overflow="ellipsis"), refresh=True)
            return
        self._waiting = progress
        if self._shown_at is None or self._clock() - self._shown_at >= SECONDS_BETWEEN_LINES:
            self._print()

    def say(self, text: str) -> None:
        """Print a remark on a line of its own."""
        self._console.print(text)

    def close(self) -> None:
        """Show the last progress if it was held back, and leave the line."""
        if self._live is not None:
            self._live.stop()
        elif self._waiting is not None:
            self._print()

    def _print(self) -> None:
        self._console.print(str(self._waiting))
        self._shown_at, self._waiting = self._clock(), None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line as a notebook shows it."""

    text: str

    def __repr__(self) -> str:
        return self.text
