"""What the instances of a region that joins do with a segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.gate.ready import END, START
from tidegate.gate.segment import Segment
from tidegate.operators.joins.shared_join import Lifted, SharedJoin
from tidegate.operators.shared_windows import Array
from tidegate.runtime.local.regions import Region, tuples_of


@dataclass(frozen=True, slots=True)
class JoinWork:
    """A join: reading a segment is shared, its pairs are tried by all, each its share."""

    region: Region
    state: SharedJoin

    @property
    def held(self) -> SharedJoin:
        return self.state

    @property
    def settles(self) -> bool:
        return self.state.node.window is not None

    def derive(self, segment: Segment, instance: int) -> Lifted:
        sides: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for feed, table in tuples_of(self.region, segment):
            sides[feed.side].append(table)
        return self.state.lift(segment.index, sides, _known(segment.since))

    def results(self, segment: Segment, derived: object, instance: int, owned: Array | None) -> Iterator[pa.Table]:
        if self.settles:
            yield from self.state.pairs_expired(segment.index, _known(segment.since), _known(segment.watermark), owned)
        elif isinstance(derived, Lifted):
            yield from self.state.pairs_within(segment.index, derived, owned)

    def may_hand_out(self, segment: Segment) -> bool:
        window = self.state.node.window
        if window is None:
            return segment.rows > 0 or segment.watermark == END
        return window.first_open(segment.since) != window.first_open(segment.watermark)

    def join(self, instance: int, number: int, watermark: int) -> None:
        self.state.join(instance, number, _known(watermark))

    def leave(self, instance: int) -> None:
        self.state.leave(instance)

    def passed(self, instance: int, number: int, watermark: int) -> None:
        self.state.passed(instance, number, _known(watermark))
        self.state.compact()

    def abort(self) -> None:
        """Nobody waits: what is shared is never changed."""


def _known(watermark: int) -> int | None:
    """A watermark, or None before anything is known."""
    return None if watermark == START else watermark
