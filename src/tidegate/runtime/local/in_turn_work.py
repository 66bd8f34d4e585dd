"""Where state changes once for a segment: one instance handles what it settles, and one makes the results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.gate.segment import Segment
from tidegate.operators.columns import Array
from tidegate.operators.keyed_slots import KeyedSlots
from tidegate.operators.keyed_snapshot import cut_slots, restore_slots
from tidegate.operators.settling import Settled
from tidegate.runtime.local.work import FedTuples, Work
from tidegate.state.snapshot import SnapshotStore, StateCut
from tidegate.watermark import Watermark


@dataclass(slots=True, eq=False)
class InTurnWork(Work):
    """What a segment settles is handled once, in the order of the log, by the first instance to get there.

    The first of them to come from there makes the results, while the others go on to the next segment. So results are in
    the order of time as they are made, and no instance has to wait for those of another.
    """

    state: KeyedSlots

    def _shard_bytes(self) -> Array:
        return self.state.shard_bytes()

    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._claims.take_up(segment)
        if segment.watermark == segment.since:
            return
        settled, handled = segment.derive("step", lambda each: self._settle(each, ahead))
        if segment.take("rows"):
            yield from self.state.process(settled, handled, None)

    def restore(self, store: SnapshotStore, watermark: Watermark) -> None:
        restore_slots(self.state, store, watermark)

    def _cut(self, segment: Segment) -> StateCut:
        return cut_slots(self.state)

    def _take_in(self, segment: Segment, tuples: FedTuples) -> None:
        """Keep the tuples of a segment until they are settled."""
        for feed, table in tuples:
            self.state.waiting.hold(segment.index, feed.side, table, feed.time)

    def _settle(self, segment: Segment, ahead: Iterator[Segment]) -> tuple[Settled, Any]:
        """What a segment settles, and what became of it; segments come in the order of the log, as none is passed before."""
        self._claims.finish(segment.index, ahead)
        settled = self.state.waiting.settle(segment.index, segment.watermark)
        for entries in settled.entries:
            self.meter.count(entries.columns, entries.shards, self.worked_seconds)
        return settled, self.state.prepare(settled)
