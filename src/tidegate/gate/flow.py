"""Flow control: when a source must wait and for which reader or source, and how much of the time sources wait.

Two bounds. What is in the log and not yet passed by the slowest reader is bounded for all sources together: readers can
always go on, so this wait ends. What a source holds that is not ready is bounded for each source, but never stops the
source with the least watermark, since all others wait for that one. A batch is taken in, with its watermark, before its
source is made to wait; so a watermark is never held up, and a bound is overstepped by what each source offers at a time.

Where every thread offers to all its sources before it waits for any, no run stops, whatever the bounds are and however
paths part and meet again. A source that waits because it is ahead waits for a thread with a lesser watermark. That one may
wait for what reads its own results, which is not ahead of it; for its input, and so for a thread that is behind it or
level; or because it is ahead of a third one. In a circle of threads that wait for one another the watermark could only
fall, and strictly at each thread that is ahead of another; and without such a thread there is no circle.

While a marker is on its way (`align`), a thread that has passed it may wait for one that has not, whatever their watermarks.
So all gates expect it before any source passes it, and until a thread has passed it, it waits for readers alone: those go
on, as nothing behind the marker is in a log before all of its sources have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.gate.log import Log, Reader
    from tidegate.gate.source import GateSource

_LAGGING = 16


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Bounds on rows and bytes held: in the log, and not ready for each source. A wait ends at half the bound."""

    log_rows: int = 200_000
    log_bytes: int = 64 << 20
    unready_rows: int = 200_000
    unready_bytes: int = 64 << 20


@dataclass(slots=True)
class FlowControl:
    """The bounds, applied to the log, its readers and its sources. Used under the merge lock.

    While the gate is ``aligning`` its sources on a marker, one that has not passed it is not stopped for being ahead, and
    one that has waits for the others where it holds too much.
    """

    limits: FlowLimits
    log: Log
    readers: Mapping[str, Reader]
    aligning: bool = False

    def must_wait(self, source: GateSource, waiting: bool) -> bool:
        """Whether a source must wait; for one that does already, until half the bound is reached."""
        if source.arriving.closed:
            return False
        if source.later is not None:
            return self.is_over(source, waiting)
        return self._log_is_filled(2 if waiting else 1) or (
            not self.aligning and self.is_over(source, waiting) and source.queue.watermark > self.log.watermark
        )

    def is_over(self, source: GateSource, waiting: bool) -> bool:
        """Whether a source holds more than its bound."""
        share = 2 if waiting else 1
        held = source.arriving
        return held.rows * share > self.limits.unready_rows or held.nbytes * share > self.limits.unready_bytes

    def lags(self) -> bool:
        """Whether some reader has fallen behind by a part of the bound."""
        return self._log_is_filled(_LAGGING)

    def _log_is_filled(self, share: int) -> bool:
        """Whether what the slowest reader has not passed is more than 1/share of the bound."""
        if not self.readers:
            return False
        tail = self.log.tail
        rows = tail.rows_through - min([reader.passed_rows for reader in self.readers.values()])
        if rows * share > self.limits.log_rows:
            return True
        nbytes = tail.bytes_through - min([reader.passed_bytes for reader in self.readers.values()])
        return nbytes * share > self.limits.log_bytes


@dataclass(slots=True, eq=False)
class BlockedClock:
    """Accumulates the seconds one source has been blocked, the present wait included. Used under the merge lock."""

    _total_seconds: float = 0.0
    _since: float = 0.0
    _waits: int = 0

    def begin(self, now: float) -> None:
        """A thread begins to wait; several may."""
        if not self._waits:
            self._since = now
        self._waits += 1

    def end(self, now: float) -> None:
        """A thread goes on."""
        self._waits -= 1
        if not self._waits:
            self._total_seconds += now - self._since

    @property
    def waiting(self) -> bool:
        """Whether a thread waits at this moment."""
        return self._waits > 0

    def seconds(self, now: float) -> float:
        """Seconds blocked until now."""
        return self._total_seconds + (now - self._since if self._waits else 0.0)


@dataclass(frozen=True, slots=True)
class BlockedTimes:
    """A reading: when it was taken, and for how long each source had been blocked by then.

    Blocked seconds only ever grow, so any number of observers can each take their own differences.
    """

    at_seconds: float
    blocked_seconds: Mapping[str, float]


def congestion_index(earlier: BlockedTimes, later: BlockedTimes) -> float:
    """The share of time a send blocks, averaged over sources (Gedik et al., section 4); 0 without sources.

    Sources that came between the two readings count from 0.
    """
    span = later.at_seconds - earlier.at_seconds
    if span <= 0 or not later.blocked_seconds:
        return 0.0
    before = earlier.blocked_seconds
    seconds = [total - before.get(name, 0.0) for name, total in later.blocked_seconds.items()]
    return sum(min(max(each / span, 0.0), 1.0) for each in seconds) / len(seconds)
