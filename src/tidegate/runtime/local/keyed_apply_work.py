"""O+ in this process: segments are settled once, and each instance changes the shards it owns, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.compile.plan import Subquery
from tidegate.gate.gate import GateAborted
from tidegate.gate.segment import Segment
from tidegate.gate.waiting import waiting_for_others
from tidegate.operators.column_windows import ColumnWindows
from tidegate.operators.instances import SHARDS
from tidegate.operators.settling import Settled, Settling
from tidegate.operators.shard_sequencer import ShardSequencer
from tidegate.operators.tuple_windows import TupleWindows
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import KeyedApply
from tidegate.query.user_functions import user_context
from tidegate.runtime.local.claims import Claims
from tidegate.runtime.local.work import Work, tuples_of
from tidegate.watermark import has_ended

Array = np.ndarray[Any, Any]

SPLIT_KEYS = 8_192
"""Keys of settled tuples that are worth the work of several instances."""


@dataclass(frozen=True, slots=True)
class KeyedApplyState:
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


@dataclass(frozen=True, slots=True)
class _Step:
    """What one segment settles, and, if one instance has done all shards at once, who it was and what it made."""

    settled: Settled
    prepared: Any
    whole_by: int | None = None
    made: tuple[pa.Table, ...] = ()


@dataclass(slots=True, eq=False)
class KeyedApplyWork(Work):
    """An O+: what a segment settles is put in order once; the owners of shards call the user's functions, turn by turn.

    Where a segment settles little, whoever gets there first does all shards, while the others wait: what it does then is
    mostly the same for one shard as for all, and most of it needs the interpreter, which only one of them can have.
    """

    subquery: Subquery
    state: KeyedApplyState
    split_keys: int = SPLIT_KEYS
    by_tuple: bool = False
    sequencer: ShardSequencer = field(default_factory=lambda: ShardSequencer(SHARDS))
    _holding: Claims = field(init=False)

    def __post_init__(self) -> None:
        self._holding = Claims("hold", self._hold)

    @staticmethod
    def fresh(subquery: Subquery, node: KeyedApply, split_keys: int = SPLIT_KEYS) -> KeyedApplyWork:
        """An O+ without state."""
        waiting = Settling(
            node.keys, tuple(node.key_schema.types), tuple(source.schema for source in node.inputs), SHARDS
        )
        windows: TupleWindows | ColumnWindows
        if isinstance(node.form, TupleForm):
            windows = TupleWindows.fresh(node, node.form, SHARDS)
        else:
            windows = ColumnWindows.fresh(node, node.form, SHARDS)
        return KeyedApplyWork(subquery, KeyedApplyState(waiting, windows), split_keys, isinstance(node.form, TupleForm))

    @property
    def held(self) -> KeyedApplyState:
        return self.state

    def results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._holding.take_up(segment)
        if segment.watermark == segment.since:
            return
        step: _Step = segment.derive("step", lambda each: self._step(each, instance, ahead))
        if step.whole_by is None:
            yield from self._turn(segment, step, owned)
        elif step.whole_by == instance:
            yield from step.made

    def _hold(self, segment: Segment) -> None:
        """Keep the tuples of a segment until they are settled."""
        for feed, tuples in tuples_of(self.subquery, segment):
            self.state.waiting.hold(segment.index, feed.side, tuples, feed.time, segment.since)

    def _step(self, segment: Segment, instance: int, ahead: Iterator[Segment]) -> _Step:
        """What a segment settles. Segments come here in the order of the log: nobody goes past one that was not here."""
        self._holding.finish(segment.index, ahead)
        settled = self.state.waiting.settle(segment.index, segment.since, segment.watermark)
        step = _Step(settled, self.state.windows.prepare(settled))
        if settled.size >= self.split_keys:
            return step
        return replace(step, whole_by=instance, made=tuple(self._turn(segment, step, None)))

    def _turn(self, segment: Segment, step: _Step, owned: Array | None) -> Iterator[pa.Table]:
        """Change the owned shards (None: all), and hand out what comes of it."""
        # What another instance has not done yet on a shard that was its own until lately comes first.
        with waiting_for_others():
            came = self.sequencer.wait(step.settled.turn, owned)
        if not came:
            raise GateAborted(InterruptedError("the instance whose turn comes first has failed"))
        # Functions on tuples are called too often to put something around each call.
        with user_context() if self.by_tuple else nullcontext():
            yield from self.state.windows.process(step.settled, step.prepared, owned, has_ended(segment.watermark))
        self.sequencer.done(step.settled.turn, owned)

    def may_hand_out(self, segment: Segment) -> bool:
        # Always: an instance that waits for another must not hold up the watermark that the other one's results need.
        return True

    def abort(self) -> None:
        self.sequencer.abort()
