"""Threads that mostly need the interpreter, kept on one core.

Only one thread at a time can have the interpreter. Where threads on several cores do a little each, they hand it to and
fro at every call into Arrow, and each time one core waits for another to wake up: several times slower than all of them
on one core, one after the other.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

LARGE_ROWS = 32_768
ENOUGH = 256
"""So many small segments bring threads together. Libraries that start threads of their own do so before."""
LARGE_COUNTS = 64
"""A large segment counts as much as so many small ones: a few in a row let threads go."""
RETRY_SECONDS = 2.0
"""So long after they parted threads try it again: segments may be large because the threads are apart."""


class SharedCore:
    """Keeps the threads of a job on one core for as long as segments are small.

    Instances tell what they have `seen`; every thread asks now and then to be moved to where it belongs. Elsewhere than
    on Linux, and with no or one core to choose from, nothing happens.
    """

    __slots__ = ("_all", "_clock", "_here", "_one", "_parted", "_small", "together")

    def __init__(self, cores: frozenset[int] = frozenset(), clock: Callable[[], float] = time.monotonic) -> None:
        self._all = cores if len(cores) > 1 else frozenset()
        self._one = frozenset({sorted(cores)[os.getpid() % len(cores)]}) if cores else frozenset()
        self._small = 0
        self._here = threading.local()
        self.together = False
        self._clock = clock
        self._parted = clock()

    @staticmethod
    def of_caller() -> SharedCore:
        """One of the cores that the calling thread may use."""
        return SharedCore(frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset())

    def seen(self, rows: int) -> None:
        """An instance has handled a segment of so many rows."""
        self._small = max(self._small - LARGE_COUNTS, 0) if rows >= LARGE_ROWS else min(self._small + 1, ENOUGH)
        if not self.together and (self._small == ENOUGH or self._clock() - self._parted >= RETRY_SECONDS):
            self._small, self.together = ENOUGH, True
        elif self.together and self._small == 0:
            self._parted, self.together = self._clock(), False
        self.move()

    def move(self) -> None:
        """Move the calling thread to the core it shares with the others, or let it run on any."""
        # A new thread begins where the one that started it may run, so it is moved in any case.
        if not self._all or getattr(self._here, "together", None) is self.together:
            return
        together = self.together
        if sys.platform == "linux":
            try:
                os.sched_setaffinity(0, self._one if together else self._all)
            except OSError:  # the cores of the process have changed meanwhile
                self._all = frozenset()
        self._here.together = together
