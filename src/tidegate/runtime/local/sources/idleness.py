"""Sources that have fallen silent, and are passed over so that they do not hold the others back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.gate.gate import GateAborted
from tidegate.query.idle import SourceProgress, is_idle, passed_over
from tidegate.runtime.local.sources.inlet import SourceInlet

LEAST_WAIT_SECONDS = 0.001


@dataclass(slots=True, eq=False)
class Idleness:
    """Moves the watermarks of idle sources on, as far as the others have come (`tidegate.query.idle`).

    `run` looks when a source may have become idle; while some are, `check` is also called whenever another one delivers.
    ``clock`` shows seconds.
    """

    inlets: Sequence[SourceInlet]
    clock: Callable[[], float]
    fail: Callable[[BaseException], None]
    _some_idle: bool = False
    _stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def wanted(self) -> bool:
        """Whether some source may become idle."""
        return any(inlet.source.idle_us is not None for inlet in self.inlets)

    def run(self) -> None:
        """Look again and again until the run ends; on a thread of its own."""
        try:
            while not self._stopped.wait(self._seconds_to_next()):
                self.check()
        except GateAborted:
            pass
        except BaseException as error:
            self.fail(error)

    def stop(self) -> None:
        """Look no more, and let go of the run."""
        self._stopped.set()
        self.fail = lambda error: None
        for inlet in self.inlets:
            inlet.on_delivery = lambda: None

    def on_delivery(self) -> None:
        """A source has delivered something."""
        if self._some_idle:
            self.check()

    def check(self) -> None:
        """Pass over the sources that are idle now."""
        now = 1e6 * self.clock()
        progress = {
            inlet.source.name: SourceProgress(inlet.reached, is_idle(inlet.source.idle_us, inlet.heard_us, now))
            for inlet in self.inlets
        }
        self._some_idle = any(each.idle for each in progress.values())
        if not self._some_idle:
            return
        for inlet, taken in zip(self.inlets, passed_over(progress).values(), strict=True):
            if taken > progress[inlet.source.name].reached:
                inlet.pass_over(taken)

    def _seconds_to_next(self) -> float:
        """How long it takes at least until another source may have become idle."""
        now = 1e6 * self.clock()
        waits = []
        for inlet in self.inlets:
            if inlet.source.idle_us is not None:
                silent = 0.0 if inlet.heard_us is None else now - inlet.heard_us
                # One that is idle is looked at again, as it may come back and fall silent.
                waits.append(inlet.source.idle_us - silent if silent < inlet.source.idle_us else inlet.source.idle_us)
        return max(min(waits) / 1e6, LEAST_WAIT_SECONDS)
