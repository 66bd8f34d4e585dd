"""What one source has delivered and the gate has not handed out yet, and how far the source has got.

Everything here is touched under the gate's merge lock only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque

from tidegate.gate.ready import Run, Slice, is_ready
from tidegate.watermark import END, START


class Intake:
    """The runs of one source that wait for the watermark.

    Runs of a sorted source follow one another in time, so what is ready is a prefix of them. Runs of an unsorted source
    may overlap, so each is looked at.
    """

    __slots__ = ("_bytes_through", "_rows_through", "closed", "in_order", "nbytes", "rows", "runs", "watermark")

    def __init__(self, watermark: int = START, in_order: bool = True) -> None:
        self.watermark = watermark
        self.in_order = in_order
        self.closed = False
        self.runs: deque[Run] = deque()
        self.rows = 0
        self.nbytes = 0.0
        self._rows_through = 0
        self._bytes_through = 0.0

    def push(self, run: Run) -> None:
        """Take a run in; the watermark is the caller's business."""
        self.runs.append(run)
        nbytes = len(run) * run.row_bytes
        self.rows += len(run)
        self.nbytes += nbytes
        self._rows_through += len(run)
        self._bytes_through += nbytes
        run.rows_through, run.bytes_through = self._rows_through, self._bytes_through

    def close(self) -> None:
        """Leave the minimum: nothing more will come; what was delivered stays until it is ready."""
        self.closed = True
        self.watermark = END

    def has_ready(self, watermark: int, settled: bool) -> bool:
        """Whether some row may leave at a watermark."""
        if self.in_order:
            return bool(self.runs) and is_ready(self.runs[0].head, watermark, settled)
        return any(is_ready(run.head, watermark, settled) for run in self.runs)

    def ready(self, watermark: int, settled: bool) -> tuple[int, float]:
        """How many rows and bytes may leave at a watermark."""
        if self.in_order:
            return self._ready_in_order(watermark, settled)
        rows, nbytes = 0, 0.0
        for run in self.runs:
            if is_ready(run.head, watermark, settled):
                count = run.bound(watermark, settled) - run.low
                rows += count
                nbytes += count * run.row_bytes
        return rows, nbytes

    def _ready_in_order(self, watermark: int, settled: bool) -> tuple[int, float]:
        """The same by bisection: sources ask for every batch, and thousands of small ones may wait for another source."""
        found = (bisect_left if settled else bisect_right)(self.runs, watermark, key=lambda run: run.head)
        if not found:
            return 0, 0.0
        last = self.runs[found - 1]
        waiting = len(last.times) - last.bound(watermark, settled)
        rows = last.rows_through - waiting - (self._rows_through - self.rows)
        return rows, last.bytes_through - waiting * last.row_bytes - (self._bytes_through - self.nbytes)

    def take(self, watermark: int, settled: bool) -> tuple[list[Slice], float]:
        """Remove and return what may leave at a watermark, and its size in bytes."""
        taken: list[Slice] = []
        nbytes = 0.0
        for run in self.runs:
            if is_ready(run.head, watermark, settled):
                piece = run.take(run.bound(watermark, settled))
                taken.append(piece)
                self.rows -= piece.high - piece.low
                nbytes += (piece.high - piece.low) * run.row_bytes
            elif self.in_order:
                break
        if not self.in_order:
            self.runs = deque([run for run in self.runs if len(run)])
        while self.runs and not len(self.runs[0]):
            self.runs.popleft()
        self.nbytes = max(self.nbytes - nbytes, 0.0) if self.rows else 0.0
        return taken, nbytes
