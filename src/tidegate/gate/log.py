"""The log: segments in one order for all readers, as a chain that frees itself behind the slowest reader.

A reader holds the node it stands on, and a node holds the next one, so nothing refers to a node that every reader has
passed. Following the chain needs no lock; appending to it happens under the gate's merge lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.gate.segment import Array, Segment, Slice
from tidegate.gate.waiting import Parker
from tidegate.watermark import START, Watermark, has_ended

if TYPE_CHECKING:
    from tidegate.gate.gate import Gate

_NO_TIMES: Array = np.empty(0, np.int64)


@dataclass(slots=True, eq=False, repr=False)
class LogNode:
    """A place in the log: a segment, what the log has carried up to and including it, and the next place."""

    segment: Segment | None
    rows_through: int
    bytes_through: int
    next: LogNode | None = None


@dataclass(slots=True, eq=False, repr=False)
class Log:
    """The tail of the chain and the watermark there."""

    inputs: int
    watermark: Watermark = START
    written: int = 0
    tail: LogNode = field(default_factory=lambda: LogNode(None, 0, 0))

    @property
    def ended(self) -> bool:
        """Whether the last segment has been written."""
        return has_ended(self.watermark)

    def append(
        self,
        watermark: Watermark,
        parts: tuple[Slice | None, ...] | None = None,
        control: Any = None,
        nbytes: int = 0,
    ) -> None:
        """Write the next segment. Its watermark must not be below the last one's."""
        nothing = (None,) * self.inputs
        batches = nothing if parts is None else tuple([None if part is None else part.batch for part in parts])
        times = tuple([_NO_TIMES if part is None else part.times for part in parts or nothing])
        rows = sum([len(each) for each in times])
        before = self.tail
        segment = Segment(self.written, self.watermark, watermark, batches, times, control, rows, nbytes)
        node = LogNode(segment, before.rows_through + rows, before.bytes_through + nbytes)
        self.written += 1
        self.watermark = watermark
        self.tail = node
        # Last: from here on readers see it.
        before.next = node


@dataclass(slots=True, eq=False, repr=False)
class Reader:
    """A reader of a gate: a cursor into its log, for one thread at a time.

    Asking for the next segment says that the one before is done with. As long as there is a next segment in the log,
    `get` takes no lock.
    """

    _gate: Gate
    name: str
    node: LogNode
    parker: Parker = field(default_factory=Parker)
    removed: bool = False
    finished: bool = False
    passed_rows: int = field(init=False)
    passed_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.passed_rows, self.passed_bytes = self.node.rows_through, self.node.bytes_through

    def get(self, timeout_seconds: float | None = None) -> Segment | None:
        """The next segment; waits for it, at most so long if a time is given.

        None if nothing came in time, or if nothing will ever come: then ``finished`` is set (the input has ended, or the
        reader was removed). Raises `GateAborted` if the run has failed.
        """
        gate = self._gate
        here = self.node
        # First say what has been passed, then check whether a source waits for that: it checks in the other order.
        self.passed_rows = here.rows_through
        self.passed_bytes = here.bytes_through
        if gate.blocked:
            gate.on_passed()
        following = here.next
        if following is None or self.removed or gate.failure is not None:
            following = gate.next_node(self, timeout_seconds)
            if following is None:
                return None
        self.node = following
        return following.segment

    def following(self, count: int) -> Iterator[Segment]:
        """Up to ``count`` segments with rows behind the one got last, before the next control segment; never waits."""
        node = self.node.next
        while count > 0 and node is not None and node.segment is not None and node.segment.control is None:
            if node.segment.rows:
                count -= 1
                yield node.segment
            node = node.next

    def __iter__(self) -> Iterator[Segment]:
        """All segments until the input ends or the reader is removed."""
        while (segment := self.get()) is not None:
            yield segment
