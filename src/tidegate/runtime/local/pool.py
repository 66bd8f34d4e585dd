"""A pool of threads: instances come and go, their threads stay."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Pool:
    """Runs functions on threads, reusing those that are idle. Functions must not raise."""

    name: str
    _idle: list[queue.SimpleQueue[Callable[[], None] | None]] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def run(self, function: Callable[[], None]) -> None:
        """Run a function on an idle thread, or on a new one."""
        with self._lock:
            if self._idle:
                self._idle.pop().put(function)
                return
            work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
            thread = threading.Thread(target=self._serve, args=(work,), name=f"{self.name}-{len(self._threads)}")
            thread.daemon = True
            self._threads.append(thread)
        work.put(function)
        thread.start()

    def close(self) -> None:
        """Let threads end when their functions have, and wait for that, a second at most.

        A thread may be held up in a user's iterable for as long as that likes; it ends when it comes back.
        """
        patience = time.monotonic() + 1.0
        with self._lock:
            self._closed = True
            for work in self._idle:
                work.put(None)
            self._idle.clear()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(patience - time.monotonic(), 0.0))

    def _serve(self, work: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (function := work.get()) is not None:
            function()
            with self._lock:
                if self._closed:
                    return
                self._idle.append(work)
