"""How long a thread has waited for others: what it is to take off the time that a piece of work took.

Like `time.thread_time`, a reading that only grows and belongs to the calling thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Waited(threading.local):
    seconds = 0.0


_waited = _Waited()


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """What is done in this context is no work of the calling thread: it waits for what another one does."""
    began = time.perf_counter()
    try:
        yield
    finally:
        _waited.seconds += time.perf_counter() - began


def waited_seconds() -> float:
    """How long the calling thread has waited for others until now."""
    return _waited.seconds
