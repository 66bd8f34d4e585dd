"""A place for one thread to wait for one wake-up: a lock used as a flag.

Waking is one lock release, which can be aimed at one thread among many, and the woken thread needs no other lock to go
on. It takes as long as with a condition variable, whose woken threads all queue for its lock once more.
"""

from __future__ import annotations

import threading


class Parker:
    """One thread parks, another unparks it, once per park.

    Who unparks must first have taken the parker off the list where it was left, under the lock of that list; that is
    what makes it once. If `park` times out, the owner looks whether it is still on the list; if not, a wake-up is on its
    way and must be taken with `park()`.
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
