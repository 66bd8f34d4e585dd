"""Lingering: holding a little that is ready back for a moment, so that small batches share a segment."""

from __future__ import annotations


class Linger:
    """Until when what is ready may be held back. Touched under the merge lock.

    Without it a waiting reader gets every batch at once, and batches share segments only while readers are busy. With it
    the first batch of a segment waits for others, ``seconds`` at most.
    """

    __slots__ = ("_due", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._due: float | None = None

    def begin(self, now: float) -> bool:
        """Something is ready: hold it back from now on; False if something was held back already."""
        if self._due is not None:
            return False
        self._due = now + self.seconds
        return True

    @property
    def pending(self) -> bool:
        """Whether something is held back, even if it is due by now."""
        return self._due is not None

    def remaining(self, now: float) -> float:
        """Seconds for which to hold back still; 0 if nothing is held back."""
        return 0.0 if self._due is None else max(self._due - now, 0.0)

    def end(self) -> None:
        """It has been written."""
        self._due = None
