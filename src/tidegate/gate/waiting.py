"""How threads wait for one another: one wake-up for one thread, and the time that each thread has waited.

Waking a parked thread is one lock release, which can be aimed at one thread among many, and the woken thread needs no
other lock to go on. It takes as long as with a condition variable, whose woken threads all queue for its lock once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Parker:
    """Parks one thread until another unparks it, once per park: a lock used as a flag.

    The thread that unparks must first have taken the parker off the list where it was left, under the lock of that list;
    that is what makes it once. If `park` times out, the owner checks whether it is still on the list; if not, a wake-up is
    on its way and must be taken with `park()`.
    """

    __slots__ = ("_flag",)

    def __init__(self) -> None:
        self._flag = threading.Lock()
        self._flag.acquire()

    def park(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the wake-up; False if it did not come in time."""
        if timeout_seconds is None:
            return self._flag.acquire()
        return self._flag.acquire(timeout=max(timeout_seconds, 0.0))

    def unpark(self) -> None:
        """Wake the thread that is parked, or is about to."""
        self._flag.release()


class _Waited(threading.local):
    seconds = 0.0


_waited = _Waited()


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """Count the time spent in this context as waiting: the calling thread does no work of its own in it."""
    began = time.perf_counter()
    try:
        yield
    finally:
        _waited.seconds += time.perf_counter() - began


def waited_seconds() -> float:
    """How long the calling thread has waited for others until now; like `time.thread_time` it only grows."""
    return _waited.seconds
