"""Elastic ScaleGate over Arrow batches: sorted sources in, one log of ready segments out; both sides may come and go."""

from __future__ import annotations

import time as _time
from collections.abc import Callable, Iterable

import pyarrow as pa

from tidegate.errors import QueryError, UserError, choices
from tidegate.gate.congestion import BlockedTimes
from tidegate.gate.core import Core
from tidegate.gate.flow import FlowLimits
from tidegate.gate.linger import Linger
from tidegate.gate.log import Log
from tidegate.gate.merger import Merger
from tidegate.gate.reader import Reader
from tidegate.gate.source import Source, SourceSpec
from tidegate.gate.traffic import Traffic
from tidegate.watermark import START, Watermark


class Gate:
    """The tuple buffer of STRETCH (table 2, section 6) over batches.

    All calls may come from any thread; a source or a reader is for one thread at a time.

    ``settled`` hands out tuples with τ < W rather than τ ≤ W, so that no tuple of a τ comes in two segments.
    ``on_late(source, batch)`` is called, in the thread that added them, with rows that came too late to be put in order;
    with ``forward_late`` they also travel in the next segment, for operators that decide by window.
    ``linger_seconds`` (at most 0.001 is sensible) holds a small batch back for others to share its segment.
    With ``eager`` every reader is woken for every segment. Without, one of those that wait is, and none for a little
    while another is at work; the rest are woken when they fall behind, for a control segment, at the end, and by `rouse`.
    So every reader must be read, each by a thread of its own.
    ``clock`` serves lingering, idleness and the measurement of congestion.
    """

    def __init__(
        self,
        sources: Iterable[str | SourceSpec],
        readers: Iterable[str],
        *,
        time: str = "time",
        inputs: int | None = None,
        segment_rows: int = 10_000,
        segment_bytes: int = 4 << 20,
        settled: bool = False,
        limits: FlowLimits | None = None,
        linger_seconds: float = 0.0,
        on_late: Callable[[str, pa.RecordBatch], None] | None = None,
        forward_late: bool = False,
        eager: bool = True,
        clock: Callable[[], float] = _time.monotonic,
    ) -> None:
        if linger_seconds < 0:
            raise QueryError(f"gate: linger_seconds is {linger_seconds}; it must not be negative")
        if segment_rows < 1 or segment_bytes < 1:
            raise QueryError(
                f"gate: a segment of {segment_rows} rows and {segment_bytes} bytes; both must be at least 1"
            )
        specs = [self._spec(source, time) for source in sources]
        self._time = time
        places = inputs if inputs is not None else max((spec.input for spec in specs), default=0) + 1
        bounds = limits or FlowLimits()
        # A segment never holds more than the log may: what is ready is in the log before it is too much.
        segment = min(segment_rows, bounds.log_rows), min(segment_bytes, bounds.log_bytes)
        merger = Merger(Log(places), *segment, settled, forward_late)
        self._core = Core(merger, bounds, Linger(linger_seconds), on_late, clock, eager)
        self._core.readers.update({name: Reader(self._core, name, merger.log.tail) for name in readers})
        if not self._core.readers:
            raise QueryError("gate: there is no reader; name at least one, since only a reader can add others")
        self._core.open(specs, START)

    def source(self, name: str) -> Source:
        """The handle of a source that takes part."""
        try:
            return self._core.sources[name]
        except KeyError:
            raise UserError(f"gate: no source '{name}'; there are {choices(self._core.sources)}") from None

    def reader(self, name: str) -> Reader:
        """The handle of a reader that takes part."""
        try:
            return self._core.readers[name]
        except KeyError:
            raise UserError(f"gate: no reader '{name}'; there are {choices(self._core.readers)}") from None

    @property
    def watermark(self) -> int:
        """The watermark at the end of the log."""
        return self._core.log.watermark

    def add_readers(self, names: Iterable[str], by: Reader) -> bool:
        """Add the readers that are not there yet; each gets next what ``by`` gets next.

        True if this call added any: of several concurrent calls for the same readers only one succeeds.
        """
        with self._core.lock:
            self._core.raise_if_aborted()
            if by.removed:
                return False
            new = [name for name in names if name not in self._core.readers]
            self._core.readers.update({name: Reader(self._core, name, by.node) for name in new})
            return bool(new)

    def remove_readers(self, names: Iterable[str]) -> bool:
        """Remove the readers that are there; they get nothing more, and hold nothing any more.

        True if this call removed any. A removed reader that waits in `get` returns.
        """
        with self._core.lock:
            gone = [reader for reader in map(self._core.readers.get, names) if reader is not None]
            for reader in gone:
                del self._core.readers[reader.name]
                reader.removed = True
            self._core.wake_readers()
            self._core.wake_sources()
            return bool(gone)

    def add_sources(self, sources: Iterable[str | SourceSpec], watermark: Watermark = START) -> bool:
        """Add the sources that are not there yet; nothing below the watermark at the end of the log is due from them.

        ``watermark`` sets a higher bound from which they begin. True if this call added any. Refused once the input has
        ended.
        """
        specs = [self._spec(source, self._time) for source in sources]
        with self._core.lock:
            self._core.raise_if_aborted()
            # What is ready now stays ready: the new sources begin behind it.
            self._core.write()
            new = [spec for spec in specs if spec.name not in self._core.sources]
            if new and self._core.log.ended:
                raise UserError(f"gate: source '{new[0].name}' cannot be added: the input has ended")
            self._core.open(new, max(self._core.log.watermark, watermark))
            return bool(new)

    def remove_sources(self, sources: Iterable[str | Source]) -> bool:
        """Remove the sources that are there: they leave the minimum behind their last batch.

        What they delivered becomes ready with the rest; when no source is left the input has ended. True if this call
        removed any. A removed source that waits in `add` returns.
        """
        return self._core.close(sources)

    def flush(self) -> None:
        """Write what is ready now: what comes later with τ below the watermark reached here is late."""
        with self._core.lock:
            self._core.raise_if_aborted()
            self._core.write()

    def append_control(self, payload: object) -> int:
        """Write a control segment at the end of the log, past flow control; returns its index.

        It comes after all that is ready at this moment, for every reader at the same place.
        """
        if payload is None:
            raise QueryError("gate: a control segment needs a payload other than None")
        with self._core.lock:
            self._core.raise_if_aborted()
            self._core.write()
            if self._core.log.ended:
                raise UserError("gate: no control segment can follow the end of the input")
            index = self._core.log.written
            self._core.log.append(self._core.log.watermark, control=payload)
            self._core.wake_readers()
            return index

    def rouse(self) -> None:
        """Wake all readers that wait although there are segments for them."""
        core = self._core
        if not core.eager and core.waiting:
            with core.lock:
                core.wake_readers()

    def abort(self, error: BaseException) -> None:
        """Fail the run: everyone who waits here or comes here gets `GateAborted` with this cause. The first call counts."""
        with self._core.lock:
            if self._core.failure is None:
                self._core.failure = error
            self._core.wake_readers()
            self._core.wake_sources()

    def check_idle(self) -> None:
        """Look whether a source has fallen silent. Readers and sources that wait do so themselves."""
        with self._core.lock:
            self._core.write()

    def blocked_times(self) -> BlockedTimes:
        """How long each source has stood blocked in `add` until now."""
        with self._core.lock:
            now = self._core.clock()
            return BlockedTimes(now, {name: source.blocked.seconds(now) for name, source in self._core.sources.items()})

    def traffic(self) -> Traffic:
        """How many rows have come in, become ready, and been passed by their readers until now."""
        with self._core.lock:
            ready = self._core.log.tail.rows_through
            unready = sum(source.intake.rows for source in self._core.sources.values())
            passed = [reader.passed_rows for reader in self._core.readers.values()] or [ready]
            return Traffic(ready + unready, ready, min(passed) if self._core.eager else max(passed))

    @staticmethod
    def _spec(source: str | SourceSpec, time: str) -> SourceSpec:
        return source if isinstance(source, SourceSpec) else SourceSpec(source, time=time)
