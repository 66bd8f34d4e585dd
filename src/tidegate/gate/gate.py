"""Elastic ScaleGate over Arrow batches: sorted sources in, one log of ready segments out; both sides may come and go."""

from __future__ import annotations

import threading
import time as _time
from collections.abc import Callable, Iterable

import pyarrow as pa

from tidegate.errors import QueryError, UserError, choices
from tidegate.gate.aborted import GateAborted
from tidegate.gate.congestion import BlockedTimes
from tidegate.gate.flow import Flow, FlowLimits
from tidegate.gate.linger import Linger
from tidegate.gate.log import Log, Node
from tidegate.gate.merger import Merger
from tidegate.gate.parker import Parker
from tidegate.gate.reader import Reader
from tidegate.gate.ready import END, Run
from tidegate.gate.source import Source, SourceSpec


class Gate:
    """The tuple buffer of STRETCH (table 2, section 6) over batches.

    One merge lock guards the sources, the readers' list and the end of the log. Readers follow the log without it and
    come to it only at the end of the log, to write what is ready or to be parked until something is.

    ``settled`` hands out tuples with τ < W rather than τ ≤ W, so that no tuple of a τ comes in two segments.
    ``on_late(source, batch)`` is called, in the thread that added them, with rows that came too late to be put in order;
    with ``forward_late`` they also travel in the next segment, for operators that decide by window.
    ``linger_seconds`` (at most 0.001 is sensible) holds a small batch back for others to share its segment.
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
        clock: Callable[[], float] = _time.monotonic,
    ) -> None:
        if segment_rows < 1 or segment_bytes < 1:
            raise QueryError(
                f"gate: a segment of {segment_rows} rows and {segment_bytes} bytes; both must be at least 1"
            )
        specs = [self._spec(source, time) for source in sources]
        self._time = time
        self._clock = clock
        self._on_late = on_late
        self._lock = threading.Lock()
        self._log = Log(inputs if inputs is not None else max((spec.input for spec in specs), default=0) + 1)
        bounds = limits or FlowLimits()
        # A segment never holds more than the log may: what is ready is in the log before it is too much.
        segment = min(segment_rows, bounds.log_rows), min(segment_bytes, bounds.log_bytes)
        self._merger = Merger(self._log, *segment, settled, forward_late)
        self._sources: dict[str, Source] = {}
        self._readers = {name: Reader(self, name, self._log.tail) for name in readers}
        self._flow = Flow(bounds, self._log, self._readers)
        self._linger = Linger(linger_seconds)
        self._waiting: list[Parker] = []
        self._blocked: list[tuple[Source, Parker]] = []
        self._failure: BaseException | None = None
        self._may_idle = False
        if not self._readers:
            raise QueryError("gate: there is no reader; name at least one, since only a reader can add others")
        self._open(specs, self._log.watermark)

    # The sides of the gate.

    def source(self, name: str) -> Source:
        """The handle of a source that takes part."""
        try:
            return self._sources[name]
        except KeyError:
            raise UserError(f"gate: no source '{name}'; there are {choices(self._sources)}") from None

    def reader(self, name: str) -> Reader:
        """The handle of a reader that takes part."""
        try:
            return self._readers[name]
        except KeyError:
            raise UserError(f"gate: no reader '{name}'; there are {choices(self._readers)}") from None

    @property
    def watermark(self) -> int:
        """The watermark at the end of the log."""
        return self._log.watermark

    def add_readers(self, names: Iterable[str], by: Reader) -> bool:
        """Add the readers that are not there yet; each gets next what ``by`` gets next.

        True if this call added any: of several concurrent calls for the same readers only one succeeds.
        """
        with self._lock:
            self._raise_if_aborted()
            if by.removed:
                return False
            new = [name for name in names if name not in self._readers]
            self._readers.update({name: Reader(self, name, by.node) for name in new})
            return bool(new)

    def remove_readers(self, names: Iterable[str]) -> bool:
        """Remove the readers that are there; they get nothing more, and hold nothing any more.

        True if this call removed any. A removed reader that waits in `get` returns.
        """
        with self._lock:
            gone = [reader for reader in map(self._readers.get, names) if reader is not None]
            for reader in gone:
                del self._readers[reader.name]
                reader.removed = True
            self._wake_readers()
            self._wake_sources()
            return bool(gone)

    def add_sources(self, sources: Iterable[str | SourceSpec], watermark: int | None = None) -> bool:
        """Add the sources that are not there yet; nothing below the watermark at the end of the log is due from them.

        ``watermark`` sets a higher bound from which they begin. True if this call added any. Refused once the input has
        ended.
        """
        specs = [self._spec(source, self._time) for source in sources]
        with self._lock:
            self._raise_if_aborted()
            # What is ready now stays ready: the new sources begin behind it.
            self._write()
            new = [spec for spec in specs if spec.name not in self._sources]
            if new and self._log.ended:
                raise UserError(f"gate: source '{new[0].name}' cannot be added: the input has ended")
            self._open(new, max(self._log.watermark, watermark if watermark is not None else self._log.watermark))
            return bool(new)

    def remove_sources(self, sources: Iterable[str | Source]) -> bool:
        """Remove the sources that are there: they leave the minimum behind their last batch.

        What they delivered becomes ready with the rest; when no source is left the input has ended. True if this call
        removed any. A removed source that waits in `add` returns.
        """
        with self._lock:
            gone = []
            for given in sources:
                name = given if isinstance(given, str) else given.name
                source = self._sources.get(name)
                if source is not None and (source is given or isinstance(given, str)):
                    gone.append(self._sources.pop(name))
            for source in gone:
                source.intake.close()
            if gone:
                self._write_if_wanted()
                self._wake_sources()
            return bool(gone)

    def append_control(self, payload: object) -> int:
        """Write a control segment at the end of the log, past flow control; returns its index.

        It comes after all that is ready at this moment, for every reader at the same place.
        """
        if payload is None:
            raise QueryError("gate: a control segment needs a payload other than None")
        with self._lock:
            self._raise_if_aborted()
            self._write()
            if self._log.ended:
                raise UserError("gate: no control segment can follow the end of the input")
            index = self._log.written
            self._log.append(self._log.watermark, control=payload)
            self._wake_readers()
            return index

    def abort(self, error: BaseException) -> None:
        """Fail the run: everyone who waits here or comes here gets `GateAborted` with this cause. The first call counts."""
        with self._lock:
            if self._failure is None:
                self._failure = error
            self._wake_readers()
            self._wake_sources()

    def check_idle(self) -> None:
        """Look whether a source has fallen silent. Readers and sources that wait do so themselves."""
        with self._lock:
            self._write()

    def blocked_times(self) -> BlockedTimes:
        """How long each source has stood blocked in `add` until now."""
        with self._lock:
            now = self._clock()
            return BlockedTimes(now, {name: source.blocked.seconds(now) for name, source in self._sources.items()})

    # Called by sources.

    def _admit(self, source: Source, run: Run | None, watermark: int | None) -> None:
        """Take a batch and a watermark in, then wait if too much is held."""
        late = None
        with self._lock:
            self._raise_if_aborted()
            if source.intake.closed:
                raise UserError(f"source '{source.name}' has ended or was removed; it can deliver nothing more")
            source.feeder = threading.get_ident()
            if source.spec.idle_after_seconds is not None:
                source.heard_at = self._clock()
            if run is not None:
                late = self._merger.push(source, run)
            if watermark is not None and watermark > source.intake.watermark:
                source.intake.watermark = watermark
            self._write_if_wanted()
            held_up = run is not None and self._is_held_up(source, waiting=False)
        if late is not None and self._on_late is not None:
            self._on_late(source.name, late)
        if watermark is not None and watermark >= END:
            self.remove_sources([source])
        elif held_up:
            self._hold(source)

    def _hold(self, source: Source) -> None:
        """Wait until there is room for more from a source."""
        place = (source, Parker())
        with self._lock:
            source.blocked.begin(self._clock())
        try:
            while True:
                with self._lock:
                    self._raise_if_aborted()
                    # First be seen to wait, then look: a reader first passes, then looks for who waits.
                    self._blocked.append(place)
                    if not self._is_held_up(source, waiting=True):
                        self._blocked.remove(place)
                        return
                    try:
                        taking_part = [other for other in self._sources.values() if not self._is_idle(other)]
                        self._flow.check_thread(source, taking_part, threading.get_ident())
                    except UserError:
                        self._blocked.remove(place)
                        raise
                    patience = self._until_idle()
                if not place[1].park(patience):
                    with self._lock:
                        self._write_if_wanted()
                        if place in self._blocked:
                            self._blocked.remove(place)
                            continue
                    place[1].park()
        finally:
            with self._lock:
                source.blocked.end(self._clock())
                source.heard_at = self._clock()

    def _is_held_up(self, source: Source, waiting: bool) -> bool:
        """Whether a source must wait even when all that is ready has been written."""
        if self._flow.is_over(source, waiting):
            self._write()
        return self._flow.must_wait(source, waiting)

    # Called by readers.

    def _next(self, reader: Reader, timeout_seconds: float | None) -> Node | None:
        """The node behind a reader's, written or waited for."""
        deadline = None if timeout_seconds is None else _time.monotonic() + timeout_seconds
        while True:
            with self._lock:
                self._raise_if_aborted()
                lingering = self._linger.remaining(self._clock()) if self._linger.seconds else 0.0
                remaining = None if deadline is None else deadline - _time.monotonic()
                leaves = reader.removed or (remaining is not None and remaining <= 0)
                # Who leaves while something is held back writes it, as the others may rely on it to do so.
                at_the_end = reader.node.next is None and not reader.removed
                if (leaves and lingering) or (at_the_end and not lingering):
                    self._write()
                following = None if reader.removed else reader.node.next
                if following is not None:
                    return following
                reader.finished = reader.removed or self._log.ended
                if leaves or reader.finished:
                    return None
                self._waiting.append(reader.parker)
                patience = _soonest(remaining, self._until_idle(), lingering or None)
            if not reader.parker.park(patience):
                with self._lock:
                    if reader.parker in self._waiting:
                        self._waiting.remove(reader.parker)
                        continue
                reader.parker.park()

    def _on_passed(self) -> None:
        """A reader has passed a segment while sources wait."""
        with self._lock:
            self._wake_sources()

    # Under the lock.

    def _open(self, specs: Iterable[SourceSpec], watermark: int) -> None:
        for spec in specs:
            if spec.input >= self._log.inputs:
                raise QueryError(
                    f"source '{spec.name}': input {spec.input}, but the gate has {self._log.inputs}; inputs are numbered "
                    "from 0"
                )
            source = Source(self, spec, watermark, self._clock())
            self._sources[spec.name] = source
            self._merger.open(source)
            self._may_idle = self._may_idle or spec.idle_after_seconds is not None

    def _write(self, watermark: int | None = None) -> None:
        """Write what is ready, and wake those it concerns."""
        self._linger.end()
        if self._merger.write(self._ready_watermark() if watermark is None else watermark):
            self._wake_readers()
            self._wake_sources()

    def _write_if_wanted(self) -> None:
        """Write what is ready if someone waits for it, if it fills a segment, or if there is nobody to come for it."""
        watermark = self._ready_watermark()
        if self._blocked or not self._readers or self._merger.fills_a_segment(watermark):
            self._write(watermark)
        elif not self._linger.seconds:
            if self._waiting:
                self._write(watermark)
        elif self._merger.has_something(watermark) and self._linger.begin(self._clock()) and self._waiting:
            # One reader is enough to see to it that the rest is written in time.
            self._waiting.pop().unpark()

    def _ready_watermark(self) -> int:
        return self._merger.ready_watermark(self._is_idle if self._may_idle else None)

    def _is_idle(self, source: Source) -> bool:
        patience = source.spec.idle_after_seconds
        return patience is not None and not source.blocked.waiting and self._clock() - source.heard_at >= patience

    def _until_idle(self) -> float | None:
        """Seconds until a source may have fallen silent for long enough."""
        if not self._may_idle:
            return None
        now = self._clock()
        left = [
            source.spec.idle_after_seconds - (now - source.heard_at)
            for source in self._sources.values()
            if source.spec.idle_after_seconds is not None and not source.blocked.waiting and not self._is_idle(source)
        ]
        return min(left) if left else None

    def _wake_readers(self) -> None:
        waiting, self._waiting = self._waiting, []
        for parker in waiting:
            parker.unpark()

    def _wake_sources(self) -> None:
        """Wake the sources that need not wait any more."""
        for place in list(self._blocked):
            if self._failure is not None or not self._flow.must_wait(place[0], waiting=True):
                self._blocked.remove(place)
                place[1].unpark()

    def _raise_if_aborted(self) -> None:
        if self._failure is not None:
            raise GateAborted(self._failure)

    @staticmethod
    def _spec(source: str | SourceSpec, time: str) -> SourceSpec:
        return source if isinstance(source, SourceSpec) else SourceSpec(source, time=time)


def _soonest(*waits_seconds: float | None) -> float | None:
    """The shortest wait that is given."""
    return min((wait for wait in waits_seconds if wait is not None), default=None)
