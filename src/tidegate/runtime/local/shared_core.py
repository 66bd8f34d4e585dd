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

LARGE_SECONDS = 0.005
"""A segment that takes an instance so long, not counting what it waits, is large: threads lose more by sharing a core."""
ENOUGH = 256
"""So many small segments bring threads together. Libraries that start threads of their own do so before."""
LARGE_COUNTS = 64
"""A large segment counts as much as so many small ones: a few in a row let threads go."""
RETRY_SECONDS = 2.0
"""So long after they parted threads try it again, since segments may be large because the threads are apart; then after
twice as long, and so on, until they stay together for as long."""


class SharedCore:
    """Keeps the threads of a job on one core for as long as segments are small.

    Instances tell what they have `seen`; every thread asks now and then to be moved to where it belongs. Elsewhere than
    on Linux, and with no or one core to choose from, nothing happens.
    """

    __slots__ = ("_all", "_changed", "_clock", "_here", "_one", "_patience", "_small", "together")

    def __init__(self, cores: frozenset[int] = frozenset(), clock: Callable[[], float] = time.monotonic) -> None:
        self._all = cores if len(cores) > 1 else frozenset()
        self._one = frozenset({sorted(cores)[os.getpid() % len(cores)]}) if cores else frozenset()
        self._small = 0
        self._here = threading.local()
        self.together = False
        self._clock = clock
        self._changed = clock()
        self._patience = 0.0

    @staticmethod
    def of_caller() -> SharedCore:
        """One of the cores that the calling thread may use."""
        return SharedCore(frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset())

    def seen(self, seconds: float) -> None:
        """An instance has worked on a segment for so long."""
        self._small = max(self._small - LARGE_COUNTS, 0) if seconds >= LARGE_SECONDS else min(self._small + 1, ENOUGH)
        if self.together and self._small == 0:
            lasted = self._since() >= self._patience
            self._patience = RETRY_SECONDS if lasted else max(2 * self._patience, RETRY_SECONDS)
            self._changed, self.together = self._clock(), False
        elif not self.together and (self._small == ENOUGH or self._patience) and self._since() >= self._patience:
            self._small, self._changed, self.together = ENOUGH, self._clock(), True
        self.move()

    def _since(self) -> float:
        """For how long threads have been together, or apart."""
        return self._clock() - self._changed

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
