"""Flow control: when a source must wait, and for whom.

Two bounds. What is in the log and not yet passed by the slowest reader is bounded for all sources together: readers can
always go on, so this wait ends. What a source holds that is not ready is bounded for each source, but never stops the
source with the least watermark, since everyone waits for that one. A batch is taken in, with its watermark, before its
source is made to wait; so a watermark is never held up, and a bound is overstepped by what each source offers at a time.

Where every thread offers to all its sources before it waits for any, no run stops, whatever the bounds are and however
ways part and meet again. A source that waits because it is ahead waits for a thread with a lesser watermark. That one may
wait for what reads its own results, which is not ahead of it; for its input, and so for a thread that is behind it or
level; or because it is ahead of a third one. In a circle of threads that wait for one another the watermark could only
fall, and strictly at each thread that is ahead of another; and without such a thread there is no circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.errors import QueryError, UserError
from tidegate.gate.log import Log
from tidegate.gate.reader import Reader
from tidegate.gate.source import Source

_LAGGING = 16


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Bounds on rows and bytes held: in the log, and not ready for each source. A wait ends at half the bound."""

    log_rows: int = 200_000
    log_bytes: int = 64 << 20
    unready_rows: int = 200_000
    unready_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("log_rows", "log_bytes", "unready_rows", "unready_bytes"):
            if getattr(self, name) < 1:
                raise QueryError(f"gate: {name} is {getattr(self, name)}; a bound must be at least 1")


class Flow:
    """The bounds, applied to the log, its readers and its sources. Touched under the merge lock."""

    __slots__ = ("_limits", "_log", "_readers")

    def __init__(self, limits: FlowLimits, log: Log, readers: Mapping[str, Reader]) -> None:
        self._limits = limits
        self._log = log
        self._readers = readers

    def must_wait(self, source: Source, waiting: bool) -> bool:
        """Whether a source must wait; for one that does already, until half the bound is reached."""
        if source.intake.closed:
            return False
        return self._log_is_filled(2 if waiting else 1) or (
            self.is_over(source, waiting) and source.intake.watermark > self._log.watermark
        )

    def is_over(self, source: Source, waiting: bool) -> bool:
        """Whether a source holds more than its bound."""
        share = 2 if waiting else 1
        held = source.intake
        return held.rows * share > self._limits.unready_rows or held.nbytes * share > self._limits.unready_bytes

    def lags(self) -> bool:
        """Whether some reader has fallen behind by a part of the bound."""
        return self._log_is_filled(_LAGGING)

    def _log_is_filled(self, share: int) -> bool:
        """Whether what the slowest reader has not passed is more than 1/share of the bound."""
        if not self._readers:
            return False
        tail = self._log.tail
        rows = tail.rows_through - min([reader.passed_rows for reader in self._readers.values()])
        if rows * share > self._limits.log_rows:
            return True
        nbytes = tail.bytes_through - min([reader.passed_bytes for reader in self._readers.values()])
        return nbytes * share > self._limits.log_bytes

    def check_thread(self, source: Source, taking_part: Iterable[Source], thread: int) -> None:
        """Raise if a source is about to wait for something that only its own thread could do."""
        if self._log_is_filled(2):
            slowest = min(self._readers.values(), key=lambda reader: reader.passed_rows)
            if slowest.thread == thread:
                raise UserError(
                    f"source '{source.name}' must wait for reader '{slowest.name}', but one thread does both; read in "
                    "between, use a thread for each, or give the gate larger FlowLimits(log_rows=…, log_bytes=…)"
                )
            return
        lagging = min(taking_part, key=lambda other: other.intake.watermark)
        if lagging is not source and lagging.feeder == thread:
            raise UserError(
                f"source '{source.name}' holds {source.intake.rows} rows that wait for source '{lagging.name}', but one "
                f"thread feeds both; feed them in order of time, use a thread for each, call advance() on "
                f"'{lagging.name}' when it has nothing, or give the gate larger FlowLimits(unready_rows=…, unready_bytes=…)"
            )
