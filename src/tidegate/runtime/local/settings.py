"""How a query runs in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.errors import QueryError
from tidegate.gate.flow import FlowLimits
from tidegate.gate.gate import Gate
from tidegate.gate.source import SourceSpec
from tidegate.late_tuples import LateFolder
from tidegate.operators.joins.shared_join import SPLIT_PAIRS
from tidegate.operators.shared_windows import SPLIT_PANES
from tidegate.runtime.local.sources.arrivals import LINGER_SECONDS
from tidegate.runtime.local.sources.checks import wall_clock_us
from tidegate.runtime.local.split_choice import SPLIT_KEYS

SEGMENT_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Settings:
    """Instances to begin with and at most, and how much a segment may hold.

    Windows over fewer than ``split_panes`` panes are made by one instance, others by the owners of their shards; an O+
    does so with segments that settle fewer than ``split_keys`` keys, unless its functions wait for something, a join with
    segments that have fewer than ``split_pairs`` pairs to try.
    ``linger_seconds`` is how long small pieces from an iterable are held back for others to share their segment.
    ``waiting_rows`` is how many tuples may wait in front of a subquery before what sends them has to wait.
    ``late_to`` is where late tuples are written, if at all; it wants a plan that keeps all columns. ``clock_us`` is asked as
    tuples are read, for times of arrival and for what lies in the future; ``clock`` shows seconds, for idle sources.
    """

    instances: int = 2
    most: int = 32
    segment_rows: int = SEGMENT_ROWS
    split_panes: int = SPLIT_PANES
    split_keys: int = SPLIT_KEYS
    split_pairs: int = SPLIT_PAIRS
    linger_seconds: float = LINGER_SECONDS
    waiting_rows: int | None = None
    late_to: LateFolder | None = None
    clock_us: Callable[[], int] = wall_clock_us
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not 1 <= self.instances <= self.most:
            raise QueryError(
                f"instances: {self.instances} to begin with and {self.most} at most; give a number, or two with "
                "1 ≤ first ≤ most"
            )
        if self.segment_rows < 1:
            raise QueryError(f"segment_rows is at least 1; got {self.segment_rows}")
        if self.linger_seconds < 0:
            raise QueryError(f"linger_seconds is 0 or more; got {self.linger_seconds}")
        if self.waiting_rows is not None and self.waiting_rows < 1:
            raise QueryError(f"waiting_rows is at least 1; got {self.waiting_rows}")

    def gate(
        self, sources: Sequence[SourceSpec], readers: list[str], inputs: int, eager: bool = True, linger: float = 0.0
    ) -> Gate:
        """A gate of segments of the size that is set, which holds back what it has for ``linger`` seconds at most."""
        rows = self.waiting_rows
        return Gate(
            sources,
            readers,
            inputs=inputs,
            segment_rows=self.segment_rows,
            linger_seconds=linger,
            eager=eager,
            limits=None if rows is None else FlowLimits(log_rows=rows, unready_rows=rows),
        )
