"""What an iterable has given and the query has not taken yet: it gathers small pieces, for a moment at most."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pyarrow as pa

from tidegate.sources.in_memory import Heartbeat


class Basket:
    """Items on their way from the thread that reads an iterable to the one that feeds the query.

    An iterable may take its time for the next item, and what it gave before must not wait for that: so one thread waits
    for the iterable, and another takes what has come, ``linger_seconds`` after the first item at the latest. A basket that
    holds ``most_rows`` rows, or a heartbeat, is taken at once, and the iterable waits while it is full.
    """

    def __init__(self, most_rows: int, linger_seconds: float, clock: Callable[[], float]) -> None:
        self._most_rows = most_rows
        self._linger_seconds = linger_seconds
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._items: list[object] = []
        self._rows = 0
        self._since = 0.0
        self._wanted = False
        self._ended = False
        self._closed = False
        self._failure: BaseException | None = None

    def fill(self, items: Iterable[object]) -> None:
        """Put all items in, waiting while it is full; what they raise is raised where they are taken."""
        try:
            for item in items:
                if not self._put(item):
                    return
        except BaseException as error:
            self._failure = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def take(self) -> list[object] | None:
        """What has come, once it is enough or has waited for long enough; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended)
            left = self._since + self._linger_seconds - self._clock()
            if self._items and left > 0:
                self._changed.wait_for(lambda: self._wanted or self._ended, left)
            held, self._items, self._rows, self._wanted = self._items, [], 0, False
            self._changed.notify_all()
        if held:
            return held
        if self._failure is not None:
            raise self._failure
        return None

    def close(self) -> None:
        """Nobody takes anything any more: whoever fills it may go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _put(self, item: object) -> bool:
        rows = item.num_rows if isinstance(item, pa.RecordBatch | pa.Table) else 1
        with self._changed:
            if self._rows and self._rows + rows > self._most_rows:
                self._want()
                self._changed.wait_for(lambda: not self._rows or self._closed)
            if self._closed:
                return False
            if not self._items:
                self._since = self._clock()
                self._changed.notify_all()
            self._items.append(item)
            self._rows += rows
            if self._rows >= self._most_rows or isinstance(item, Heartbeat):
                self._want()
            return True

    def _want(self) -> None:
        self._wanted = True
        self._changed.notify_all()
