"""O+ in this process: segments are settled once, and each instance changes the shards it owns, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.gate.aborted import GateAborted
from tidegate.gate.ready import END
from tidegate.gate.segment import Segment
from tidegate.operators.column_windows import ColumnWindows
from tidegate.operators.settling import Settled, Settling
from tidegate.operators.tuple_windows import TupleWindows
from tidegate.operators.turns import Turns
from tidegate.operators.windowed_aggregate import SHARDS
from tidegate.query.nodes import OPlus
from tidegate.query.tuple_form import TupleForm
from tidegate.runtime.local.claims import Claims
from tidegate.runtime.local.regions import Region, tuples_of

Array = np.ndarray[Any, Any]

SPLIT_KEYS = 8_192
"""Keys of settled tuples that are worth the work of several instances."""


@dataclass(frozen=True, slots=True)
class HeldByOPlus:
    """The state of an O+, to be measured: its windows, and the tuples that wait to be settled."""

    waiting: Settling
    windows: TupleWindows | ColumnWindows

    @property
    def rows(self) -> int:
        return self.waiting.rows + self.windows.rows

    @property
    def bytes(self) -> int:
        return self.waiting.bytes + self.windows.bytes

    @property
    def late(self) -> int:
        return self.waiting.late


@dataclass(slots=True, eq=False)
class OPlusWork:
    """An O+: what a segment settles is put in order once; the owners of shards call the user's functions, turn by turn.

    Where a segment settles little, whoever gets there first does all shards: what it does then is mostly the same for one
    shard as for all.
    """

    region: Region
    state: HeldByOPlus
    split_keys: int = SPLIT_KEYS
    turns: Turns = field(default_factory=lambda: Turns(SHARDS))
    _holding: Claims = field(init=False)

    def __post_init__(self) -> None:
        self._holding = Claims("hold", self._hold)

    @staticmethod
    def fresh(region: Region, node: OPlus, split_keys: int = SPLIT_KEYS) -> OPlusWork:
        """An O+ without state."""
        waiting = Settling(
            node.keys, tuple(node.key_schema.types), tuple(source.schema for source in node.inputs), SHARDS
        )
        windows: TupleWindows | ColumnWindows
        if isinstance(node.form, TupleForm):
            windows = TupleWindows.fresh(node, node.form, SHARDS)
        else:
            windows = ColumnWindows.fresh(node, node.form, SHARDS)
        return OPlusWork(region, HeldByOPlus(waiting, windows), split_keys)

    @property
    def held(self) -> HeldByOPlus:
        return self.state

    @property
    def settles(self) -> bool:
        return True

    def results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._holding.take_up(segment)
        if segment.watermark == segment.since:
            return
        settled, prepared = segment.derive("settled", lambda each: self._settle(each, ahead))
        if owned is not None and settled.size < self.split_keys:
            if not segment.derived.take("all shards"):
                return
            owned = None
        # What another instance has not done yet on a shard that was its own until lately comes first.
        if not self.turns.wait(settled.turn, owned):
            raise GateAborted(InterruptedError("the instance whose turn comes first has failed"))
        yield from self.state.windows.process(settled, prepared, owned, segment.watermark == END)
        self.turns.done(settled.turn, owned)

    def _hold(self, segment: Segment) -> None:
        """Keep the tuples of a segment until they are settled."""
        for feed, tuples in tuples_of(self.region, segment):
            self.state.waiting.hold(segment.index, feed.side, tuples, feed.time, segment.since)

    def _settle(self, segment: Segment, ahead: Iterator[Segment]) -> tuple[Settled, Any]:
        """What a segment settles. Segments come here in the order of the log: nobody goes past one that was not here."""
        self._holding.finish(segment.index, ahead)
        ended = segment.watermark == END
        settled = self.state.waiting.settle(segment.index, segment.since, segment.watermark, ended)
        return settled, self.state.windows.prepare(settled)

    def may_hand_out(self, segment: Segment) -> bool:
        # Always: an instance that waits for another must not hold up the watermark that the other one's results need.
        return True

    def join(self, instance: int, number: int, watermark: int) -> None:
        """Nothing is held for an instance."""

    def leave(self, instance: int) -> None:
        """Nothing is held for an instance."""

    def passed(self, instance: int, number: int, watermark: int) -> None:
        """Nothing is held for a segment."""

    def abort(self) -> None:
        self.turns.abort()
