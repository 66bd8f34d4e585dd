"""A segment: the next stretch of the merged stream, immutable and shared by all readers; and the work derived from it.

Work derived from a segment is done once and shared by every instance that reads it. An instance that finds segment n being
derived goes on to n + 1, and waits only where it needs the outcome: `Segment.claim`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.gate.waiting import waiting_for_others
from tidegate.watermark import Watermark

Array = np.ndarray[Any, Any]


class Slice(NamedTuple):
    """Rows [low, high) of a batch of one input, in non-decreasing τ."""

    input: int
    batch: pa.RecordBatch
    times: Array
    low: int
    high: int


@dataclass(slots=True, eq=False)
class _Claim:
    """One piece of derived work: the first thread to get the lock does it, the others wait for the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: bool = False
    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False, repr=False)
class Segment:
    """Rows of every input, each contiguous and in non-decreasing τ, and the watermark that holds behind them.

    - ``batches[i]`` are the rows of input i, None if there are none; ``times[i]`` is their τ.
    - All their τ are at or before ``watermark``. Those before ``since``, the watermark of the segment before, are late.
    - ``control`` is the payload of a control segment, which has no rows; None for all others.
    - ``rows`` counts all of them, ``written_at`` is when it was written into the log, by the monotonic clock.
    """

    index: int
    since: Watermark
    watermark: Watermark
    batches: tuple[pa.RecordBatch | None, ...]
    times: tuple[Array, ...]
    control: object
    rows: int
    nbytes: int
    written_at: float = field(default_factory=time.monotonic)
    _claims: dict[str, _Claim] = field(default_factory=dict)

    def derive(self, name: str, function: Callable[[Segment], Any]) -> Any:
        """``function(segment)``, computed once under a name for all instances; the others wait for the first.

        A function that raises is not tried again: its exception reaches every caller that asks for that name. A function
        must not ask for its own name (it would wait for itself); asking for another name of the same segment is fine.
        """
        self.claim(name, function, wait=True)
        claim = self._claims[name]
        if claim.error is not None:
            raise claim.error
        return claim.value

    def claim(self, name: str, function: Callable[[Segment], Any], wait: bool = False) -> bool:
        """Compute the value unless another thread has begun to; whether it is there now. Never raises."""
        claim = self._claim(name)
        if claim.done:
            return True
        if not claim.lock.acquire(blocking=False):
            if not wait:
                return False
            with waiting_for_others():
                claim.lock.acquire()
        try:
            if not claim.done:
                try:
                    claim.value = function(self)
                except BaseException as error:
                    claim.error = error
                claim.done = True
        finally:
            claim.lock.release()
        return True

    def take(self, name: str) -> bool:
        """Whether the caller is the first to ask for a name: what it does then concerns no other caller."""
        mine = _Claim()
        return self._claims.setdefault(name, mine) is mine

    def is_done(self, name: str) -> bool:
        """Whether the value (or its exception) is there."""
        return self._claim(name).done

    def _claim(self, name: str) -> _Claim:
        claim = self._claims.get(name)
        # setdefault is one step under the interpreter lock: all callers get the same claim.
        return claim if claim is not None else self._claims.setdefault(name, _Claim())

    def __repr__(self) -> str:
        what = f"control {self.control!r}" if self.control is not None else f"{self.rows} rows"
        return f"Segment({self.index}: {what}, watermark {self.watermark})"
