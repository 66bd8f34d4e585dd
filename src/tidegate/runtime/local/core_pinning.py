"""Threads that mostly need the interpreter, kept on one core.

Only one thread at a time can have the interpreter. Where threads on several cores do a little each, they hand it to and
fro at every call into Arrow, and each time one core waits for another to wake up: several times slower than all of them
on one core, one after the other.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from tidegate.query.user_functions import set_user_context
from tidegate.runtime.local.core_choice import CoreChoice

T = TypeVar("T")

_numbers = itertools.count(os.getpid())


class CorePinning:
    """Moves the threads of a job to one core, and back, as a `CoreChoice` says.

    Instances tell what they have `seen`; every thread asks now and then to be moved to where it belongs. Threads and
    processes inherit the cores of the thread that starts them, so a thread is let go while it is `outside`, in users'
    functions or where libraries may start threads of their own. Each job of a process has another core. Elsewhere than on
    Linux, and with no or one core to choose from, nothing happens.
    """

    __slots__ = ("_all", "_choice", "_here", "one")

    def __init__(self, cores: frozenset[int] = frozenset(), choice: CoreChoice | None = None) -> None:
        self._all = cores if len(cores) > 1 else frozenset()
        self.one = frozenset({sorted(cores)[next(_numbers) % len(cores)]}) if self._all else frozenset()
        self._choice = choice or CoreChoice()
        self._here = threading.local()

    @staticmethod
    def of_caller() -> CorePinning:
        """One of the cores that the calling thread may use."""
        return CorePinning(frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset())

    def begin(self, ready_at: float) -> None:
        """An instance begins to work on a segment that was there since then; it says so when it has, by `seen`."""
        if self._all:
            self._choice.begin(ready_at)

    def seen(self, rows: int) -> None:
        """An instance is done with a segment of so many rows."""
        if self._all:
            self._choice.seen(rows)
            self.move()

    def move(self) -> None:
        """Move the calling thread to the core it shares with the others, or let it run on any."""
        # A new thread begins where the one that started it may run, so it is moved in any case.
        together = self._choice.together
        if self._all and getattr(self._here, "together", None) is not together:
            self._move(together)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let the calling thread run on any core for as long as this lasts; two system calls if it shares one."""
        if not getattr(self._here, "together", False):
            yield
            return
        self._move(False)
        try:
            yield
        finally:
            self.move()

    def each_outside(self, items: Iterator[T]) -> Iterator[T]:
        """Items, each of them asked for `outside`."""
        while True:
            with self.outside():
                found = next(items, None)
            if found is None:
                return
            yield found

    def _move(self, together: bool) -> None:
        self._here.together = together
        set_user_context(self.outside)
        if sys.platform == "linux":
            try:
                os.sched_setaffinity(0, self.one if together else self._all)
            except OSError:  # the cores of the process have changed meanwhile
                self._all = frozenset()
