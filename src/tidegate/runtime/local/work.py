"""What a subquery asks of the work that its instances do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidegate.compile.plan import Feed, Subquery
from tidegate.gate.segment import Segment
from tidegate.query.schema import conform
from tidegate.watermark import Watermark

Array = np.ndarray[Any, Any]


class Work(Protocol):
    """The work of a subquery; shared by its instances, called from all of their threads.

    An instance takes the segments in order. It calls `attach` before its first, asks for the `results` of each and then
    calls `acknowledge`, for control segments too, and may `detach` at a control segment.
    """

    @property
    def held(self) -> Held | None:
        """The state, to be measured; None if there is none."""
        ...

    def results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        """Do an instance's part of the work on a segment; what it hands out for it, in the order of event time.

        What needs to be done once is done by whichever instance comes first. Every instance consumes this to its end,
        for every segment it passes. Instead of waiting for another instance it may begin on the segments ``ahead``.
        """
        ...

    def may_hand_out(self, segment: Segment) -> bool:
        """Whether some instance may have results for a segment; where none has, its watermark can wait."""
        ...

    def attach(self, instance: int, number: int, watermark: Watermark) -> None:
        """An instance begins behind a segment. Nothing to do where nothing is held for an instance."""
        return

    def detach(self, instance: int) -> None:
        """An instance ends. Nothing to do where nothing is held for one."""
        return

    def acknowledge(self, instance: int, number: int, watermark: Watermark) -> None:
        """An instance has passed a segment. Nothing to do where nothing is held for a segment."""
        return

    def abort(self) -> None:
        """The run has failed: nobody may wait for another instance any more. Nothing to do where nobody does."""
        return


class Held(Protocol):
    """What state says of itself: how many rows and bytes it holds, and how many tuples came too late for it."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def late(self) -> int: ...


def tuples_of(subquery: Subquery, segment: Segment) -> Iterator[tuple[Feed, pa.Table]]:
    """The tuples of a segment, late ones first, each with the feed they came by, after its steps."""
    for feed in subquery.feeds:
        for batch in (segment.late[feed.input], segment.batches[feed.input]):
            if batch is not None and batch.num_rows:
                table = pa.Table.from_batches([batch])
                # A subquery applies the steps to its own results; a source passes on what it reads.
                yield feed, table if isinstance(feed.origin, int) else conform(feed.apply(table), feed.schema)
