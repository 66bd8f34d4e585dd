"""What the instances of a region that joins do with a segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.compile.plan import Subquery
from tidegate.gate.segment import Segment
from tidegate.operators.columns import Array
from tidegate.operators.joins.shared_join import SegmentTuples, SharedJoin
from tidegate.runtime.local.claims import Claims
from tidegate.runtime.local.work import Work, tuples_of
from tidegate.watermark import Watermark, has_ended


@dataclass(slots=True, eq=False)
class JoinWork(Work):
    """A join: each segment is read once; its pairs are tried by all instances, each its share.

    The pairs of a small segment are tried by the first instance to get there, while the others go on to the next one: what
    there is to do once for a segment would cost more than the pairs.
    """

    subquery: Subquery
    state: SharedJoin
    _reading: Claims = field(init=False)

    def __post_init__(self) -> None:
        self._reading = Claims("read", self._read)

    @property
    def held(self) -> SharedJoin:
        return self.state

    def results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._reading.take_up(segment)
        if not self.may_hand_out(segment):
            return
        self._reading.finish(segment.index, ahead)
        if self.state.node.window is not None:
            yield from self.state.pairs_expired(segment.index, segment.since, segment.watermark, owned)
        elif segment.rows:
            arrived = self._reading.result(segment)
            if owned is None or segment.derive("split", lambda _: self.state.worth_splitting(arrived)):
                yield from self.state.pairs_within(segment.index, arrived, owned)
            elif segment.derived.take("pairs"):
                yield from self.state.pairs_within(segment.index, arrived, None)

    def may_hand_out(self, segment: Segment) -> bool:
        window = self.state.node.window
        if window is None:
            return segment.rows > 0 or has_ended(segment.watermark)
        return window.first_open(segment.since) != window.first_open(segment.watermark)

    def attach(self, instance: int, number: int, watermark: Watermark) -> None:
        self.state.attach(instance, number, watermark)

    def detach(self, instance: int) -> None:
        self.state.detach(instance)

    def acknowledge(self, instance: int, number: int, watermark: Watermark) -> None:
        self.state.acknowledge(instance, number, watermark)
        self.state.compact()

    def _read(self, segment: Segment) -> SegmentTuples:
        sides: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for feed, table in tuples_of(self.subquery, segment):
            sides[feed.side].append(table)
        return self.state.encode(segment.index, sides, segment.since)
