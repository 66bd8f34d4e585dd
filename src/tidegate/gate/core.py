"""What happens at the merge lock: batches come in, what is ready is written, threads wait and are woken.

One lock guards the sources, the list of readers and the end of the log. Readers follow the log without it; they come here
at the end of the log only, to write what is ready or to be parked until something is. Every thread that waits has its own
parker, so a wake-up concerns one thread and most woken threads go on without the lock.
"""

from __future__ import annotations

import threading
import time as _time
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from tidegate.errors import QueryError, UserError
from tidegate.gate.aborted import GateAborted
from tidegate.gate.flow import Flow, FlowLimits
from tidegate.gate.linger import Linger
from tidegate.gate.log import Node
from tidegate.gate.merge import SMALL
from tidegate.gate.merger import Merger
from tidegate.gate.parker import Parker
from tidegate.gate.reader import Reader
from tidegate.gate.ready import Run
from tidegate.gate.source import Source, SourceSpec
from tidegate.watermark import Watermark, has_ended

WORTH_WAKING = 16
"""1/WORTH_WAKING of a segment is worth waking a second reader, where readers are not woken for everything."""


class Core:
    """The shared side of a gate, used by its sources and readers."""

    def __init__(
        self,
        merger: Merger,
        limits: FlowLimits,
        linger: Linger,
        on_late: Callable[[str, pa.RecordBatch], None] | None,
        clock: Callable[[], float],
        eager: bool = True,
    ) -> None:
        self.eager = eager
        self.lock = threading.Lock()
        self.merger = merger
        self.log = merger.log
        self.sources: dict[str, Source] = {}
        self.readers: dict[str, Reader] = {}
        self.flow = Flow(limits, self.log, self.readers)
        self.linger = linger
        self.on_late = on_late
        self.clock = clock
        self.waiting: list[Parker] = []
        self.blocked: list[tuple[Source, Parker]] = []
        self.failure: BaseException | None = None
        self.may_idle = False

    # Called by sources.

    def admit(self, source: Source, run: Run | None, watermark: Watermark) -> bool:
        """Take a batch and a watermark in; whether so much is held now that the source should wait."""
        late = None
        with self.lock:
            self.raise_if_aborted()
            if source.intake.closed:
                raise UserError(f"source '{source.name}' has ended or was removed; it can deliver nothing more")
            source.feeder = threading.get_ident()
            if source.spec.idle_after_seconds is not None:
                source.heard_at = self.clock()
            if run is not None:
                late = self.merger.push(source, run)
            if watermark > source.intake.watermark:
                source.intake.watermark = watermark
            self.write_if_wanted()
            held_up = run is not None and self.is_held_up(source, waiting=False)
        if late is not None and self.on_late is not None:
            self.on_late(source.name, late)
        if has_ended(watermark):
            self.close([source])
            return False
        return held_up

    def hold(self, source: Source) -> None:
        """Wait until there is room for more from a source."""
        place = (source, Parker())
        with self.lock:
            source.blocked.begin(self.clock())
        try:
            while True:
                with self.lock:
                    self.raise_if_aborted()
                    # First be seen to wait, then look: a reader first passes, then looks for who waits.
                    self.blocked.append(place)
                    if not self.is_held_up(source, waiting=True):
                        return
                    taking_part = [other for other in self.sources.values() if not self.is_idle(other)]
                    self.flow.check_thread(source, taking_part, threading.get_ident())
                    patience = self.until_idle()
                if not place[1].park(patience):
                    with self.lock:
                        self.write_if_wanted()
                        if place in self.blocked:
                            self.blocked.remove(place)
                            continue
                    place[1].park()
        finally:
            with self.lock:
                # Writing what is ready may have taken the source off the list already.
                if place in self.blocked:
                    self.blocked.remove(place)
                source.blocked.end(self.clock())
                source.heard_at = self.clock()

    def is_held_up(self, source: Source, waiting: bool) -> bool:
        """Whether a source must wait even when all that is ready has been written."""
        if self.flow.is_over(source, waiting):
            self.write()
        return self.flow.must_wait(source, waiting)

    def close(self, sources: Iterable[str | Source]) -> bool:
        """Take sources out of the minimum, by handle or by name; whether any of them was still there."""
        with self.lock:
            gone = []
            for given in sources:
                name = given if isinstance(given, str) else given.name
                source = self.sources.get(name)
                if source is not None and (source is given or isinstance(given, str)):
                    gone.append(self.sources.pop(name))
            for source in gone:
                source.intake.close()
            if gone:
                self.write_if_wanted()
                self.wake_sources()
            return bool(gone)

    # Called by readers.

    def next(self, reader: Reader, timeout_seconds: float | None) -> Node | None:
        """The node behind a reader's, written or waited for."""
        deadline = None if timeout_seconds is None else _time.monotonic() + timeout_seconds
        while True:
            with self.lock:
                self.raise_if_aborted()
                lingering = self.linger.remaining(self.clock()) if self.linger.seconds else 0.0
                remaining = None if deadline is None else deadline - _time.monotonic()
                leaves = reader.removed or (remaining is not None and remaining <= 0)
                # Who leaves while something is held back writes it, as the others may rely on it to do so.
                at_the_end = reader.node.next is None and not reader.removed
                if (leaves and self.linger.pending) or (at_the_end and not lingering):
                    self.write(takes=1 if at_the_end else 0)
                following = None if reader.removed else reader.node.next
                if following is not None:
                    return following
                reader.finished = reader.removed or self.log.ended
                if leaves or reader.finished:
                    return None
                self.waiting.append(reader.parker)
                patience = _soonest(remaining, self.until_idle(), lingering or None)
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
            self.wake_sources()

    # Under the lock.

    def open(self, specs: Sequence[SourceSpec], watermark: int) -> None:
        """Let sources take part from a watermark on."""
        for spec in specs:
            if spec.input >= self.log.inputs:
                raise QueryError(
                    f"source '{spec.name}': input {spec.input}, but the gate has {self.log.inputs}; inputs are numbered "
                    "from 0"
                )
        for spec in specs:
            source = Source(self, spec, watermark, self.clock())
            self.sources[spec.name] = source
            self.merger.open(source)
            self.may_idle = self.may_idle or spec.idle_after_seconds is not None

    def write(self, watermark: int | None = None, takes: int = 0) -> None:
        """Write what is ready, and wake those it concerns: all, or one for each segment that the caller does not take."""
        self.linger.end()
        before = self.log.written
        if self.merger.write(self.ready_watermark() if watermark is None else watermark):
            if self.eager or self.log.ended or self.flow.lags():
                self.wake_readers()
            else:
                for _ in range(min(self.log.written - before - takes, len(self.waiting))):
                    # Who waited last is the likeliest to have its memory at hand.
                    self.waiting.pop().unpark()
            self.wake_sources()

    def write_if_wanted(self) -> None:
        """Write what is ready if someone waits for it, if it fills a segment, or if there is nobody to come for it."""
        watermark = self.ready_watermark()
        if self.blocked or not self.readers or self.merger.fills(watermark, 1):
            self.write(watermark)
        elif not self.linger.seconds or self.merger.fills(watermark, SMALL):
            self.linger.end()
            if self.is_waited_for(watermark):
                self.write(watermark)
        elif self.merger.has_something(watermark) and self.linger.begin(self.clock()) and self.waiting:
            # One reader is enough to see to it that the rest is written in time.
            self.waiting.pop().unpark()

    def is_waited_for(self, watermark: int) -> bool:
        """Whether a reader should be woken for what is ready, rather than leave it to one that is at work."""
        if self.eager or len(self.waiting) == len(self.readers):
            return bool(self.waiting)
        return bool(self.waiting) and self.merger.fills(watermark, WORTH_WAKING)

    def ready_watermark(self) -> int:
        """The watermark up to which tuples are ready now."""
        return self.merger.ready_watermark(self.is_idle if self.may_idle else None)

    def is_idle(self, source: Source) -> bool:
        """Whether a source has been silent for longer than it declared; one that is made to wait is not silent."""
        patience = source.spec.idle_after_seconds
        return patience is not None and not source.blocked.waiting and self.clock() - source.heard_at >= patience

    def until_idle(self) -> float | None:
        """Seconds until a source may have fallen silent for long enough."""
        if not self.may_idle:
            return None
        now = self.clock()
        left = [
            source.spec.idle_after_seconds - (now - source.heard_at)
            for source in self.sources.values()
            if source.spec.idle_after_seconds is not None and not source.blocked.waiting and not self.is_idle(source)
        ]
        return min(left) if left else None

    def wake_readers(self) -> None:
        """Wake all readers that wait: there is something new for each."""
        waiting, self.waiting = self.waiting, []
        for parker in waiting:
            parker.unpark()

    def wake_sources(self) -> None:
        """Wake the sources that need not wait any more."""
        for place in list(self.blocked):
            if self.failure is not None or not self.flow.must_wait(place[0], waiting=True):
                self.blocked.remove(place)
                place[1].unpark()

    def raise_if_aborted(self) -> None:
        """Tell the caller that the run has failed."""
        if self.failure is not None:
            raise GateAborted(self.failure)


def _soonest(*waits_seconds: float | None) -> float | None:
    """The shortest wait that is given."""
    return min((wait for wait in waits_seconds if wait is not None), default=None)
