"""Whether the threads of a job do better together on one core or apart: tried out, measured, and tried again at times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WARM_SEGMENTS = 256
"""So many segments are left out: the first ones pay for compiling, and libraries start their threads in them."""
WINDOW_SECONDS, WINDOW_SEGMENTS = 0.03, 16
"""A measurement lasts so long and so many segments, whichever is longer, but not beyond..."""
LONGEST_WINDOW_SECONDS = 0.06
ROUNDS = 3
"""So many measurements of each kind, in turns, make a trial, so that a load that changes meets both."""
BETTER = 1.15
"""How many times the rate must be for threads to part. At the same rate they are better off together: sources and the
output, whose work is not measured, wait less for the interpreter, and results leave sooner."""
FIRST_SECONDS, MOST_SECONDS = 4.0, 600.0
"""So long after a trial comes the next; then after twice as long, and so on, until one changes something."""
PRESSED, LOOK_SECONDS = 0.9, 0.5
"""Where instances are at work for this share of such a time, one core may have become too little: a trial comes at once."""


class CoreChoice:
    """Decides whether threads are ``together``, by the rows that get done in a second in which some instance is at work.

    An instance is at work from when there is a segment for it, told by `begin`, until it has `seen` the segment, when it has
    handed its results on. Where threads are apart that includes what they wait for the interpreter, where they are
    together what they wait for the core; two that work at the same time count once, so what they gain from that shows.
    Called from the threads of all instances.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.together = False
        self._clock = clock
        self._lock = threading.Lock()
        self._at_work = 0
        self._since = self._began = clock()
        self._segments = self._rows = 0
        self._busy = 0.0
        self._done = {False: 0, True: 0}
        self._took = {False: 0.0, True: 0.0}
        self._windows: int | None = None
        self._warm = False
        self._patience = self._due = 0.0
        self._was_pressed = False

    def begin(self, ready_at: float) -> None:
        """An instance begins to work on a segment that was there for it since a moment of the clock."""
        with self._lock:
            if not self._at_work:
                # What came while nobody was at work has waited for somebody to wake up and to get the interpreter.
                self._since = max(ready_at, self._since, self._began)
            self._at_work += 1

    def seen(self, rows: int) -> None:
        """An instance is done with a segment of so many rows."""
        with self._lock:
            now = self._clock()
            self._busy += now - self._since
            self._since = now
            self._at_work -= 1
            self._segments += 1
            self._rows += rows
            lasted = now - self._began
            if self._windows is None:
                if self._is_time_for_a_trial(now, lasted):
                    self._windows = 0
                    self._done, self._took = {False: 0, True: 0}, {False: 0.0, True: 0.0}
                    self._begin(now)
            elif lasted >= LONGEST_WINDOW_SECONDS or (lasted >= WINDOW_SECONDS and self._segments >= WINDOW_SEGMENTS):
                self._windows += 1
                self._done[self.together] += self._rows
                self._took[self.together] += self._busy
                if self._windows < 2 * ROUNDS:
                    self.together = not self.together
                else:
                    # As many of each kind, so threads are now where they were not before the trial.
                    self._decide(now, before=not self.together)
                self._begin(now)

    def _is_time_for_a_trial(self, now: float, lasted: float) -> bool:
        if not self._warm:
            self._warm = self._segments >= WARM_SEGMENTS
            return self._warm
        if lasted < LOOK_SECONDS:
            return False
        pressed = self.together and not self._was_pressed and self._busy >= PRESSED * lasted
        if pressed or now >= self._due:
            return True
        self._begin(now)
        return False

    def _decide(self, now: float, before: bool) -> None:
        together, apart = (self._done[each] / max(self._took[each], 1e-9) for each in (True, False))
        # Threads that have parted come back only at the same rate, so that noise does not move them to and fro.
        self.together = BETTER * together > apart if before or not self._patience else together >= apart
        changed = self.together is not before
        self._patience = FIRST_SECONDS if changed else min(max(2 * self._patience, FIRST_SECONDS), MOST_SECONDS)
        self._due = now + self._patience
        self._was_pressed = self._busy >= PRESSED * (now - self._began)
        self._windows = None

    def _begin(self, now: float) -> None:
        """A new stretch of time, to be measured by itself."""
        self._began, self._segments, self._rows, self._busy = now, 0, 0, 0.0
