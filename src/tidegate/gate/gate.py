"""Elastic ScaleGate over Arrow batches: sorted sources in, one log of ready segments out; both sides may come and go.

One lock, the merge lock, guards the sources, the list of readers and the end of the log. Readers follow the log without it;
they come to it at the end of the log only, to write what is ready or to be parked until something is. Every thread that
waits has its own parker, so a wake-up concerns one thread and most woken threads go on without the lock.
"""

from __future__ import annotations

import threading
import time as _time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidegate.errors import QueryError, TidegateError, UserError, choices
from tidegate.gate.align import GateCut, cut_of, held_over
from tidegate.gate.flow import BlockedTimes, FlowControl, FlowLimits
from tidegate.gate.log import Log, LogNode, Reader
from tidegate.gate.merge import SMALL, Merger
from tidegate.gate.source import GateSource, PendingBatch, SourceQueue, SourceSpec
from tidegate.gate.waiting import Parker
from tidegate.watermark import START, Watermark, has_ended

WORTH_WAKING = 16
"""1/WORTH_WAKING of a segment is worth waking a second reader, where readers are not woken for everything."""


class GateAborted(TidegateError):
    """The run failed elsewhere; the cause is what failed. Raised in every thread that waits at the gate or comes to it."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the run was aborted: {type(cause).__name__}: {cause}")
        self.__cause__ = cause


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counts rows that a gate has taken in, put into its log, and seen passed; they only ever grow.

    Where every reader is woken for every segment, each may have a share of it, so it is passed when the last reader has.
    Where one is woken for it, that one does the work and others may sleep before it: it is passed when the first has.
    """

    admitted_rows: int
    ready_rows: int
    passed_rows: int

    @property
    def waiting_rows(self) -> int:
        """Rows that are ready and not passed."""
        return self.ready_rows - self.passed_rows


class Gate:
    """The tuple buffer of STRETCH (table 2, section 6) over batches.

    All calls may come from any thread; a source or a reader is for one thread at a time.

    ``linger_seconds`` (at most 0.001 is sensible) holds a small batch back for others to share its segment: without it a
    waiting reader gets every batch at once, and batches share segments only while readers are busy.
    With ``eager`` every reader is woken for every segment. Without, one of those that wait is, and none for a little
    while another is at work; the rest are woken when they fall behind, for a control segment, at the end, and by `rouse`.
    So every reader must be read, each by a thread of its own.
    ``clock`` serves lingering and the measurement of congestion.
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
        limits: FlowLimits | None = None,
        linger_seconds: float = 0.0,
        eager: bool = True,
        clock: Callable[[], float] = _time.monotonic,
    ) -> None:
        self._time = time
        specs = self._specs(sources)
        bounds = limits or FlowLimits()
        self.lock = threading.Lock()
        self.log = Log(inputs if inputs is not None else max((spec.input for spec in specs), default=0) + 1)
        # A segment never holds more than the log may: what is ready is in the log before it is too much.
        self.merger = Merger(self.log, min(segment_rows, bounds.log_rows), min(segment_bytes, bounds.log_bytes))
        self.sources: dict[str, GateSource] = {}
        self.readers: dict[str, Reader] = {name: Reader(self, name, self.log.tail) for name in readers}
        if not self.readers:
            raise QueryError("gate: there is no reader; name at least one, since only a reader can add others")
        self.flow = FlowControl(bounds, self.log, self.readers)
        self.eager = eager
        self.clock = clock
        self.waiting: list[Parker] = []
        self.blocked: list[tuple[GateSource, Parker]] = []
        self.failure: BaseException | None = None
        self._linger_seconds = linger_seconds
        self._lingers_until: float | None = None
        self._marker: object = None
        self._open(specs, START)

    def source(self, name: str) -> GateSource:
        """The handle of a source that takes part."""
        try:
            return self.sources[name]
        except KeyError:
            raise UserError(f"gate: no source '{name}'; there are {choices(self.sources)}") from None

    def reader(self, name: str) -> Reader:
        """The handle of a reader that takes part."""
        try:
            return self.readers[name]
        except KeyError:
            raise UserError(f"gate: no reader '{name}'; there are {choices(self.readers)}") from None

    @property
    def watermark(self) -> Watermark:
        """The watermark at the end of the log."""
        return self.log.watermark

    def add_readers(self, names: Iterable[str], by: Reader) -> bool:
        """Add the readers that are not there yet; each gets next what ``by`` gets next.

        True if this call added any: of several concurrent calls for the same readers only one succeeds.
        """
        with self.lock:
            self._raise_if_aborted()
            if by.removed:
                return False
            new = [name for name in names if name not in self.readers]
            self.readers.update({name: Reader(self, name, by.node) for name in new})
            return bool(new)

    def remove_readers(self, names: Iterable[str]) -> bool:
        """Remove the readers that are there; they get nothing more, and hold nothing any more.

        True if this call removed any. A removed reader that waits in `get` returns.
        """
        with self.lock:
            gone = [reader for reader in map(self.readers.get, names) if reader is not None]
            for reader in gone:
                del self.readers[reader.name]
                reader.removed = True
            self._wake_readers()
            self._wake_sources()
            return bool(gone)

    def add_sources(
        self, sources: Iterable[str | SourceSpec], watermark: Watermark = START, by: GateSource | None = None
    ) -> bool:
        """Add the sources that are not there yet; nothing below the watermark at the end of the log is due from them.

        ``watermark`` sets a higher bound from which they begin. They have passed the markers that ``by`` has. True if this
        call added any. Refused once the input has ended.
        """
        with self.lock:
            self._raise_if_aborted()
            # What is ready now stays ready: the new sources begin behind it.
            self._write()
            new = [spec for spec in self._specs(sources) if spec.name not in self.sources]
            if new and self.log.ended:
                raise UserError(f"gate: source '{new[0].name}' cannot be added: the input has ended")
            self._open(new, max(self.log.watermark, watermark))
            if by is not None and by.later is not None:
                for spec in new:
                    self._hold_back(self.sources[spec.name])
            return bool(new)

    def remove_sources(self, names: Iterable[str]) -> bool:
        """Remove the sources that are there: they leave the minimum behind their last batch.

        What they delivered becomes ready with the rest; when no source is left the input has ended. True if this call
        removed any. A removed source that waits in `add` returns.
        """
        with self.lock:
            return self._close([source for source in map(self.sources.get, names) if source is not None])

    def flush(self) -> None:
        """Write what is ready now: what comes later with τ below the watermark reached here is late."""
        with self.lock:
            self._raise_if_aborted()
            self._write()

    def append_control(self, payload: object) -> int:
        """Write a control segment at the end of the log, past flow control; returns its index.

        It comes after all that is ready at this moment, for every reader at the same place.
        """
        if payload is None:
            raise QueryError("gate: a control segment needs a payload other than None")
        with self.lock:
            self._raise_if_aborted()
            self._write()
            if self.log.ended:
                raise UserError("gate: no control segment can follow the end of the input")
            index = self.log.written
            self.log.append(self.log.watermark, control=payload)
            self._wake_readers()
            return index

    def expect(self, marker: object) -> None:
        """Expect a marker, other than None, from all sources; to be told to all gates of a run before a source passes it."""
        with self.lock:
            self._raise_if_aborted()
            self._marker, self.flow.aligning = marker, True
            self._wake_sources()

    def resume(self, cut: GateCut) -> None:
        """Go on from a cut, before anything has come; sources whose names it does not know begin at its watermark."""
        with self.lock:
            self.log.watermark = cut.watermark
            time_of = {source.spec.input: source.spec.time for source in self.sources.values()}
            for source in self.sources.values():
                source.queue.watermark = cut.sources.get(source.name, cut.watermark)
            for unready in cut.unready:
                source = held_over(self, unready, time_of[unready.input])
                self.merger.open(source)
                self.merger.held_rows += source.queue.rows
                self.merger.held_bytes += source.queue.nbytes

    def rouse(self) -> None:
        """Wake all readers that wait although there are segments for them."""
        if not self.eager and self.waiting:
            with self.lock:
                self._wake_readers()

    def abort(self, error: BaseException) -> None:
        """Fail the run: every thread that waits here or comes here gets `GateAborted` with this cause, the first one."""
        with self.lock:
            if self.failure is None:
                self.failure = error
            self._wake_readers()
            self._wake_sources()

    def blocked_times(self) -> BlockedTimes:
        """How long each source has been blocked in `add` until now."""
        with self.lock:
            now = self.clock()
            return BlockedTimes(now, {name: source.blocked.seconds(now) for name, source in self.sources.items()})

    def traffic(self) -> Traffic:
        """How many rows have come in, become ready, and been passed by their readers until now."""
        with self.lock:
            ready = self.log.tail.rows_through
            unready = sum(source.queue.rows + source.later_rows for source in self.sources.values())
            passed = [reader.passed_rows for reader in self.readers.values()] or [ready]
            return Traffic(ready + unready, ready, min(passed) if self.eager else max(passed))

    # Called by sources.

    def admit(self, source: GateSource, batch: PendingBatch | None, watermark: Watermark) -> bool:
        """Take a batch and a watermark in; whether so much is held now that the source should wait."""
        with self.lock:
            self._raise_if_aborted()
            queue = source.arriving
            if queue.closed:
                raise UserError(f"source '{source.name}' has ended or was removed; it can deliver nothing more")
            if batch is not None:
                self.merger.push(source, batch)
            if watermark > queue.watermark:
                queue.watermark = watermark
            if has_ended(watermark):
                self._close([source])
                return False
            self._write_if_wanted()
            return batch is not None and self._is_held_up(source, waiting=False)

    def hold(self, source: GateSource) -> None:
        """Wait until there is room for more from a source."""
        place = (source, Parker())
        with self.lock:
            source.blocked.begin(self.clock())
        try:
            while True:
                with self.lock:
                    self._raise_if_aborted()
                    # First be seen to wait, then check: a reader first passes, then checks for sources that wait.
                    self.blocked.append(place)
                    if not self._is_held_up(source, waiting=True):
                        return
                place[1].park()
        finally:
            with self.lock:
                # Writing what is ready may have taken the source off the list already.
                if place in self.blocked:
                    self.blocked.remove(place)
                source.blocked.end(self.clock())

    def end_source(self, source: GateSource) -> None:
        """Remove a source by its handle, unless it is gone; another one may have its name by now."""
        with self.lock:
            if self.sources.get(source.name) is source:
                self._close([source])

    def mark_source(self, source: GateSource) -> None:
        """Note that a source has passed the marker that is expected."""
        with self.lock:
            self._raise_if_aborted()
            if self._marker is not None and source.later is None and not source.queue.closed:
                self._hold_back(source)
                self._align()

    # Called by readers.

    def next_node(self, reader: Reader, timeout_seconds: float | None) -> LogNode | None:
        """The node behind a reader's, written or waited for."""
        deadline = None if timeout_seconds is None else _time.monotonic() + timeout_seconds
        while True:
            with self.lock:
                self._raise_if_aborted()
                lingers = None if self._lingers_until is None else max(self._lingers_until - self.clock(), 0.0)
                remaining = None if deadline is None else deadline - _time.monotonic()
                leaves = reader.removed or (remaining is not None and remaining <= 0)
                # A reader that leaves while something lingers writes it, as the others may rely on it to do so.
                at_the_end = reader.node.next is None and not reader.removed
                if (leaves and lingers is not None) or (at_the_end and not lingers):
                    self._write(takes=1 if at_the_end else 0)
                following = None if reader.removed else reader.node.next
                if following is not None:
                    return following
                reader.finished = reader.removed or self.log.ended
                if leaves or reader.finished:
                    return None
                self.waiting.append(reader.parker)
                patience = min((wait for wait in (remaining, lingers or None) if wait is not None), default=None)
            if not reader.parker.park(patience):
                with self.lock:
                    if reader.parker in self.waiting:
                        self.waiting.remove(reader.parker)
                        continue
                reader.parker.park()
            following = reader.node.next
            if following is not None and self.failure is None and not reader.removed:
                # Most wake-ups end here, without queueing for the lock.
                return following

    def on_passed(self) -> None:
        """A reader has passed a segment while sources wait."""
        with self.lock:
            self._wake_sources()

    # Under the lock.

    def _specs(self, sources: Iterable[str | SourceSpec]) -> list[SourceSpec]:
        return [source if isinstance(source, SourceSpec) else SourceSpec(source, time=self._time) for source in sources]

    def _open(self, specs: Sequence[SourceSpec], watermark: Watermark) -> None:
        """Let sources take part from a watermark on."""
        for spec in specs:
            self.sources[spec.name] = source = GateSource(self, spec, SourceQueue(watermark, spec.disorder_us == 0))
            self.merger.open(source)

    def _close(self, gone: Sequence[GateSource]) -> bool:
        """Take sources out of the minimum; whether there were any. One that has passed a marker leaves behind it."""
        for source in gone:
            if source.later is not None:
                source.later.close()
            else:
                del self.sources[source.name]
                source.queue.close()
        if gone:
            self._write_if_wanted()
            self._wake_sources()
            self._align()
        return bool(gone)

    def _hold_back(self, source: GateSource) -> None:
        """Keep what comes from a source from now on until all have passed the marker."""
        source.later = SourceQueue(source.queue.watermark, source.queue.in_order)

    def _align(self) -> None:
        """Cut the log if all sources have passed the marker, and let in what came behind it."""
        sources = list(self.sources.values())
        if self._marker is None or not sources or any(source.later is None for source in sources):
            return
        self._write()
        if not self.log.ended:  # behind the end no reader comes, and there is nothing to keep
            self.log.append(self.log.watermark, control=cut_of(self._marker, self.log.watermark, self.merger.sources))
        self._marker, self.flow.aligning = None, False
        ended = []
        for source in sources:
            later, source.later = source.later, None
            if later is not None:
                source.queue.follow_with(later)
                if later.closed:
                    ended.append(source)
        self._wake_readers()
        self._close(ended)
        self._write_if_wanted()
        self._wake_sources()

    def _write(self, watermark: Watermark | None = None, takes: int = 0) -> None:
        """Write what is ready, and wake those it concerns: all, or one for each segment that the caller does not take."""
        self._lingers_until = None
        before = self.log.written
        if self.merger.write(self.merger.ready_watermark() if watermark is None else watermark):
            if self.eager or self.log.ended or self.flow.lags():
                self._wake_readers()
            else:
                for _ in range(min(self.log.written - before - takes, len(self.waiting))):
                    # The one that waited last is the likeliest to have its memory at hand.
                    self.waiting.pop().unpark()
            self._wake_sources()

    def _write_if_wanted(self) -> None:
        """Write what is ready if a thread waits for it, if it fills a segment, or if there is no reader to come for it."""
        watermark = self.merger.ready_watermark()
        if self.blocked or not self.readers or self.merger.fills(watermark, 1):
            self._write(watermark)
        elif not self._linger_seconds or self.merger.fills(watermark, SMALL):
            self._lingers_until = None
            if self._is_waited_for(watermark):
                self._write(watermark)
        elif self._lingers_until is None and self.merger.has_something(watermark):
            self._lingers_until = self.clock() + self._linger_seconds
            if self.waiting:
                # One reader is enough to see to it that the rest is written in time.
                self.waiting.pop().unpark()

    def _is_waited_for(self, watermark: Watermark) -> bool:
        """Whether a reader should be woken for what is ready, rather than leave it to one that is at work."""
        if self.eager or len(self.waiting) == len(self.readers):
            return bool(self.waiting)
        return bool(self.waiting) and self.merger.fills(watermark, WORTH_WAKING)

    def _is_held_up(self, source: GateSource, waiting: bool) -> bool:
        """Whether a source must wait even when all that is ready has been written."""
        if self.flow.is_over(source, waiting):
            self._write()
        return self.flow.must_wait(source, waiting)

    def _wake_readers(self) -> None:
        """Wake all readers that wait: there is something new for each."""
        waiting, self.waiting = self.waiting, []
        for parker in waiting:
            parker.unpark()

    def _wake_sources(self) -> None:
        """Wake the sources that need not wait any more."""
        for place in list(self.blocked):
            if self.failure is not None or not self.flow.must_wait(place[0], waiting=True):
                self.blocked.remove(place)
                place[1].unpark()

    def _raise_if_aborted(self) -> None:
        """Tell the caller that the run has failed."""
        if self.failure is not None:
            raise GateAborted(self.failure)
