"""The log: segments in one order for all readers, as a chain that frees itself behind the slowest reader.

A reader holds the node it stands on, and a node holds the next one, so a node that every reader has passed is referred to
by nobody. Following the chain needs no lock; appending to it happens under the gate's merge lock.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidegate.gate.ready import Slice
from tidegate.gate.segment import Segment
from tidegate.watermark import START, has_ended


class Node:
    """A place in the log: a segment, what the log has carried up to and including it, and the next place."""

    __slots__ = ("bytes_through", "next", "rows_through", "segment")

    def __init__(self, segment: Segment | None, rows_through: int, bytes_through: int) -> None:
        self.segment = segment
        self.rows_through = rows_through
        self.bytes_through = bytes_through
        self.next: Node | None = None


class Log:
    """The tail of the chain and the watermark there."""

    __slots__ = ("inputs", "tail", "watermark", "written")

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.watermark = START
        self.written = 0
        self.tail = Node(None, 0, 0)

    @property
    def ended(self) -> bool:
        """Whether the last segment has been written."""
        return has_ended(self.watermark)

    def append(
        self,
        watermark: int,
        parts: tuple[Slice | None, ...] | None = None,
        late: tuple[pa.RecordBatch | None, ...] | None = None,
        control: Any = None,
        nbytes: int = 0,
    ) -> None:
        """Write the next segment. Its watermark must not be below the last one's."""
        segment = Segment(
            self.written, self.watermark, watermark, parts or (None,) * self.inputs, late, control, nbytes
        )
        before = self.tail
        node = Node(segment, before.rows_through + segment.rows, before.bytes_through + nbytes)
        self.written += 1
        self.watermark = watermark
        self.tail = node
        # Last: from here on readers see it.
        before.next = node
