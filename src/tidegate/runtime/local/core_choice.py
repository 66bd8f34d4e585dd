"""Whether the threads of a job do better together on one core or apart: tried out, measured, and tried again at times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WARM_SEGMENTS = 256
"""So many segments are left out: the first ones pay for compiling, and libraries start their threads in them."""
WINDOW_SECONDS, WINDOW_SEGMENTS = 0.03, 16
"""A measurement lasts so long and so many segments, whichever is longer, but not beyond..."""
LONGEST_WINDOW_SECONDS = 0.2
ROUNDS = 3
"""So many measurements of each kind, in turns, make a trial, so that a load that changes meets both."""
BETTER = 1.15
"""How many times the rate must be for threads to change over."""
OFF_CORE = 0.1
"""Threads that are apart come together for a trial if they were off a core for more than this share of their work."""
FIRST_SECONDS, MOST_SECONDS = 4.0, 600.0
"""So long after a trial comes the next; then after twice as long, and so on, until one changes something."""
PRESSED, LOOK_SECONDS = 0.9, 0.5
"""Where instances are at work for this share of such a time, one core may have become too little: a trial comes at once."""


class CoreChoice:
    """Decides whether threads are ``together``, by the rows they get done for a second of work in either way.

    The work of an instance lasts from when it has a segment until it has handed its results on. Where threads are apart
    it includes what they wait for the interpreter, where they are together what they wait for the core. Called from the
    threads of all instances.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.together = False
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._segments = 0
        self._work = self._cpu = 0.0
        self._rows = {False: 0, True: 0}
        self._seconds = {False: 0.0, True: 0.0}
        self._windows: int | None = None
        self._warm = False
        self._patience = self._due = 0.0
        self._was_pressed = False

    def seen(self, rows: int, seconds: float, cpu_seconds: float) -> None:
        """An instance has worked on so many rows for so long, and was on a core for part of that."""
        with self._lock:
            self._segments += 1
            self._work += seconds
            self._cpu += cpu_seconds
            if self._windows is not None:
                self._rows[self.together] += rows
                self._seconds[self.together] += seconds
            lasted = self._clock() - self._began
            if self._windows is None:
                if self._is_time_for_a_trial(lasted):
                    self._windows = 0
                    self._rows, self._seconds = {False: 0, True: 0}, {False: 0.0, True: 0.0}
                    self._begin()
            elif lasted >= LONGEST_WINDOW_SECONDS or (lasted >= WINDOW_SECONDS and self._segments >= WINDOW_SEGMENTS):
                self._windows += 1
                if self._windows < 2 * ROUNDS:
                    self.together = not self.together
                else:
                    # As many of each kind, so threads are now where they were not before the trial.
                    self._decide(before=not self.together)
                self._begin()

    def _is_time_for_a_trial(self, lasted: float) -> bool:
        if not self._warm:
            self._warm = self._segments >= WARM_SEGMENTS
            return self._warm and self._may_gain()
        if lasted < LOOK_SECONDS:
            return False
        pressed = self.together and not self._was_pressed and self._is_pressed(lasted)
        if (pressed or self._clock() >= self._due) and self._may_gain():
            return True
        self._begin()
        return False

    def _may_gain(self) -> bool:
        """Whether threads could do better another way: apart and always on a core, they could not."""
        return self.together or self._cpu < (1 - OFF_CORE) * self._work

    def _is_pressed(self, lasted: float) -> bool:
        return self._segments >= WINDOW_SEGMENTS and self._work >= PRESSED * lasted

    def _decide(self, before: bool) -> None:
        here, there = (self._rows[each] / max(self._seconds[each], 1e-9) for each in (before, not before))
        changes = there >= BETTER * here
        self.together = before is not changes
        self._patience = FIRST_SECONDS if changes else min(max(2 * self._patience, FIRST_SECONDS), MOST_SECONDS)
        self._due = self._clock() + self._patience
        self._was_pressed = self._is_pressed(self._clock() - self._began)
        self._windows = None

    def _begin(self) -> None:
        """A new stretch of time, to be measured by itself."""
        self._began, self._segments, self._work, self._cpu = self._clock(), 0, 0.0, 0.0
