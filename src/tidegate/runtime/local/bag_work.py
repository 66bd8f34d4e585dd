"""What instances do with a segment for an Aggregate of bags: keep its tuples, and call the function for bags that expire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.gate.segment import Segment
from tidegate.operators.bags.emit_bags import Emitter, emitter_of
from tidegate.operators.bags.held_bags import Expiring, HeldBags
from tidegate.operators.columns import Array
from tidegate.runtime.local.work import FedTuples, Work
from tidegate.state.snapshot import SnapshotStore, StateCut
from tidegate.watermark import Watermark


@dataclass(slots=True, eq=False)
class BagWork(Work):
    """An Aggregate of bags: what expires is taken out once; the owners of shards call the function for their bags.

    Where little expires, the first instance to get there does all of it, while the others go on to the next segment.
    """

    state: HeldBags
    split_tuples: int
    _emit: Emitter = field(init=False)

    def __post_init__(self) -> None:
        Work.__post_init__(self)
        self._emit = emitter_of(self.state.node)

    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._claims.take_up(segment)
        if not self.may_emit(segment):
            return
        expiring: Expiring | None = segment.derive("bags", lambda each: self._expire(each, ahead))
        if expiring is None:
            return
        if owned is not None and expiring.size < self.split_tuples:
            if not segment.take("all bags"):
                return
            owned = None
        shared = owned is not None
        keyed = segment.derive(f"keys, {shared}", lambda _: self.state.keyed(expiring, shared))
        yield from self._emit(self.state, expiring, keyed, owned)

    def may_emit(self, segment: Segment) -> bool:
        return self.state.expires(segment.since, segment.watermark)

    def restore(self, store: SnapshotStore, watermark: Watermark) -> None:
        self.state.restore(store)

    def _cut(self, segment: Segment) -> StateCut:
        return self.state.cut()

    def _take_in(self, segment: Segment, tuples: FedTuples) -> None:
        """Keep the tuples of a segment until their last window has expired."""
        for feed, table in tuples:
            self.state.hold(segment.index, feed.side, table)

    def _expire(self, segment: Segment, ahead: Iterator[Segment]) -> Expiring | None:
        """What a segment expires. Segments come here in the order of the log, as no instance passes one before."""
        self._claims.finish(segment.index, ahead)
        return self.state.expire(segment.index, segment.since, segment.watermark)
