"""Tracks how far each reader of a shared log has come, so that what all of them are done with can be forgotten."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from tidegate.watermark import START, Watermark

BEFORE = -1
"""The segment before the first one: what was there already."""


@dataclass(slots=True, eq=False)
class SharedState(ABC):
    """State that several readers of one log share, with a lock; readers have numbers.

    A reader attaches behind a segment, acknowledges each segment once it has done all of its work on it, and may detach.
    When the watermark that all readers have reached may have moved, `_forget` is called under the lock.
    """

    _reached: dict[int, tuple[int, Watermark]] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _compacting: threading.Lock = field(init=False, default_factory=threading.Lock)

    def attach(self, reader: int, segment: int, watermark: Watermark) -> None:
        """Add a reader that begins behind a segment, with the watermark at its end."""
        with self._lock:
            self._reached[reader] = (segment, watermark)

    def detach(self, reader: int) -> None:
        """Remove a reader: what only it needed is forgotten."""
        with self._lock:
            del self._reached[reader]
            if self._reached:
                self._forget()

    def acknowledge(self, reader: int, segment: int, watermark: Watermark) -> None:
        """Note that a reader has done all of its work on a segment."""
        with self._lock:
            moved = self._reached[reader][1] != watermark
            self._reached[reader] = (segment, watermark)
            if moved:
                self._forget()

    @property
    def _acknowledged(self) -> int:
        """The last segment that every reader has acknowledged, `BEFORE` if there is none; read under the lock."""
        return min((segment for segment, _ in self._reached.values()), default=BEFORE)

    @property
    def _watermark(self) -> Watermark:
        """The watermark that every reader has reached; read under the lock."""
        return min((watermark for _, watermark in self._reached.values()), default=START)

    def compact(self) -> None:
        """Merge small parts of the state, unless another reader is doing so."""
        if self._compacting.acquire(blocking=False):
            try:
                self._compact()
            finally:
                self._compacting.release()

    @abstractmethod
    def _compact(self) -> None:
        """Merge small parts of the state; called by one reader at a time, without the lock."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what no reader needs any more; called under the lock."""
