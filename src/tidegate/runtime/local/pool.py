"""A pool of threads: instances come and go, their threads stay."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Function = Callable[[], None]


@dataclass(slots=True, eq=False)
class Pool:
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
                work.put(None)
        if awaited:
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
