"""`apply` in this process: segments are settled once, and each instance changes the shards it owns, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidegate.gate.gate import GateAborted
from tidegate.gate.segment import Segment
from tidegate.gate.waiting import waiting_for_others
from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array
from tidegate.operators.keyed_apply import KeyedApplyState, ShardSequencer
from tidegate.operators.keyed_slots import TupleSlots
from tidegate.operators.settling import Settled
from tidegate.query.user_functions import user_context
from tidegate.runtime.local.work import FedTuples, Work

SPLIT_KEYS = 8_192
"""Keys of settled tuples that are worth the work of several instances."""


@dataclass(frozen=True, slots=True)
class SettledStep:
    """What one segment settles, and, if one instance has done all shards at once, which one, and its results."""

    settled: Settled
    prepared: Any
    done_by: int | None = None
    results: tuple[pa.Table, ...] = ()


@dataclass(slots=True, eq=False)
class KeyedApplyWork(Work):
    """An `apply`: what a segment settles is put in order once; the owners of shards call the user's functions in turn.

    Where a segment settles little, the first instance to get there does all shards, while the others wait: what it does
    then is mostly the same for one shard as for all, and most of it needs the interpreter, which only one of them can have.
    An instance always may emit: one that waits for another must not hold up the watermark that the other's results need.
    """

    state: KeyedApplyState
    split_keys: int = SPLIT_KEYS
    sequencer: ShardSequencer = field(default_factory=lambda: ShardSequencer(SHARDS))

    def abort(self) -> None:
        self.sequencer.abort()

    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._claims.take_up(segment)
        if segment.watermark == segment.since:
            return
        step: SettledStep = segment.derive("step", lambda each: self._settle(each, instance, ahead))
        if step.done_by is None:
            yield from self._process(step, owned)
        elif step.done_by == instance:
            yield from step.results

    def _take_in(self, segment: Segment, tuples: FedTuples) -> None:
        """Keep the tuples of a segment until they are settled."""
        for feed, table in tuples:
            self.state.waiting.hold(segment.index, feed.side, table, feed.time)

    def _settle(self, segment: Segment, instance: int, ahead: Iterator[Segment]) -> SettledStep:
        """What a segment settles. Segments come here in the order of the log, as no instance passes one before."""
        self._claims.finish(segment.index, ahead)
        settled = self.state.waiting.settle(segment.index, segment.watermark)
        step = SettledStep(settled, self.state.windows.prepare(settled))
        if settled.size >= self.split_keys:
            return step
        return replace(step, done_by=instance, results=tuple(self._process(step, None)))

    def _process(self, step: SettledStep, owned: Array | None) -> Iterator[pa.Table]:
        """Change the owned shards (None: all), and emit the results."""
        # What another instance has not done yet on a shard that was its own until lately comes first.
        with waiting_for_others():
            came = self.sequencer.wait(step.settled.turn, owned)
        if not came:
            raise GateAborted(InterruptedError("the instance whose turn comes first has failed"))
        # Functions on tuples are called too often to put something around each call.
        with user_context() if isinstance(self.state.windows, TupleSlots) else nullcontext():
            yield from self.state.windows.process(step.settled, step.prepared, owned)
        self.sequencer.done(step.settled.turn, owned)
