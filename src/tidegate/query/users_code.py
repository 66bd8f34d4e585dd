"""Where users' functions are called: a runtime may put something around that, for the threads it has set up in a way of
its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Around = Callable[[], AbstractContextManager[None]]


class _Here(threading.local):
    around: Around = nullcontext


_here = _Here()


def users_code() -> AbstractContextManager[None]:
    """The context in which the calling thread is to call a user's function; nothing unless `put_around` said otherwise."""
    return _here.around()


def put_around(around: Around) -> None:
    """From now on the calling thread calls users' functions in such a context."""
    _here.around = around
