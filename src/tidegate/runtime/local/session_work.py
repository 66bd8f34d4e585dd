"""What instances do with a segment for an aggregate over sessions: combine its tuples, and merge them with what is open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.gate.segment import Segment
from tidegate.operators.columns import Array
from tidegate.operators.shared_sessions import SharedSessions
from tidegate.runtime.local.work import FedTuples, Work
from tidegate.state.snapshot import SnapshotStore, StateCut
from tidegate.watermark import Watermark


@dataclass(slots=True, eq=False)
class SessionWork(Work):
    """Sessions: each segment is combined once, by any instance; the first to get there merges it, and emits what expires."""

    state: SharedSessions

    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._claims.take_up(segment)
        if not self.may_emit(segment):
            return
        results = segment.derive("sessions", lambda each: self._advance(each, ahead))
        if segment.take("results"):
            yield from results

    def may_emit(self, segment: Segment) -> bool:
        return segment.watermark != segment.since

    def restore(self, store: SnapshotStore, watermark: Watermark) -> None:
        self.state.restore(store)

    def _cut(self, segment: Segment) -> StateCut:
        return self.state.cut()

    def _take_in(self, segment: Segment, tuples: FedTuples) -> None:
        """Combine a segment's tuples."""
        arrived = pa.concat_tables([table for _, table in tuples])
        self.meter.sample(self.state.sessions.tables.node.keys, arrived, self.worked_seconds)
        self.state.hold(segment.index, arrived)

    def _advance(self, segment: Segment, ahead: Iterator[Segment]) -> Iterator[pa.Table]:
        """What a segment expires. Segments come here in the order of the log, as no instance passes one before."""
        self._claims.finish(segment.index, ahead)
        return self.state.advance(segment.index, segment.since, segment.watermark)

    def _shard_bytes(self) -> Array:
        return self.state.shard_bytes()
