"""The threads of a job: a pool that reuses them, and the choice whether they share a core.

Only one thread at a time can have the interpreter. Where threads on several cores do a little each, they hand it to and
fro at every call into Arrow, and each time one core waits for another to wake up: several times slower than all of them
on one core, one after the other.
"""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from tidegate.query.user_functions import set_user_context

T = TypeVar("T")

_numbers = itertools.count(os.getpid())
Function = Callable[[], None]

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
                # What came while no instance was at work has waited for one to wake up and to get the interpreter.
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


@dataclass(slots=True, eq=False)
class ThreadPool:
    """Runs functions on threads, reusing those that are idle. Functions must not raise."""

    name: str
    _idle: list[queue.SimpleQueue[Function | None]] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _left_alone: set[threading.Thread] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def run(self, function: Function, awaited: bool = True) -> None:
        """Run a function on an idle thread, or on a new one.

        One that may be held up in a user's iterable for as long as that likes is not ``awaited``: it gets a thread of its
        own, which ends with it.
        """
        work: queue.SimpleQueue[Function | None] = queue.SimpleQueue()
        with self._lock:
            if self._idle and awaited:
                self._idle.pop().put(function)
                return
            thread = threading.Thread(target=self._serve, args=(work,), name=f"{self.name}-{len(self._threads)}")
            thread.daemon = True
            self._threads.append(thread)
            if not awaited:
                self._left_alone.add(thread)
        work.put(function)
        thread.start()

    def has(self, thread: threading.Thread) -> bool:
        """Whether a thread is one of the pool's."""
        with self._lock:
            return thread in self._threads

    def close(self) -> None:
        """Let threads end when their functions have. Does not wait for that; may be called twice."""
        with self._lock:
            self._closed = True
            for work in self._idle:
                work.put(None)
            self._idle.clear()

    def join(self, patience_seconds: float, patience_left_alone_seconds: float) -> None:
        """Wait until threads have ended, at most so long; for those that may be held up elsewhere, not as long."""
        began = time.monotonic()
        with self._lock:
            threads = list(self._threads)
        for thread in sorted(threads, key=lambda each: each in self._left_alone):
            patience = patience_left_alone_seconds if thread in self._left_alone else patience_seconds
            if thread is not threading.current_thread():
                thread.join(max(began + patience - time.monotonic(), 0.0))

    def _serve(self, work: queue.SimpleQueue[Function | None]) -> None:
        while self._serve_once(work):
            pass

    def _serve_once(self, work: queue.SimpleQueue[Function | None]) -> bool:
        # In a frame of its own, so that an idle thread holds nothing of what it did last.
        function = work.get()
        if function is None:
            return False
        function()
        with self._lock:
            if threading.current_thread() in self._left_alone:
                return False
            if not self._closed:
                self._idle.append(work)
            return not self._closed
