"""What the instances of a subquery do with a segment: pass it on, update windows, find pairs, or call users' functions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from tidegate.compile.plan import Subquery
from tidegate.errors import InternalError
from tidegate.gate.gate import GateAborted
from tidegate.gate.segment import Segment
from tidegate.gate.waiting import waiting_for_others
from tidegate.operators.bags.held_bags import HeldBags
from tidegate.operators.cells import SHARDS
from tidegate.operators.column_slots import ColumnSlots, slots_of
from tidegate.operators.columns import Array
from tidegate.operators.joins.shared_join import SegmentTuples, SharedJoin
from tidegate.operators.keyed_slots import KeyedSlots
from tidegate.operators.keyed_snapshot import cut_slots, restore_slots
from tidegate.operators.logged_slots import LoggedSlots
from tidegate.operators.session_runs import OpenSessions
from tidegate.operators.session_tables import SessionTables
from tidegate.operators.settling import Settled
from tidegate.operators.shared_sessions import SharedSessions
from tidegate.operators.shared_windows import LiftedPanes, SharedWindows
from tidegate.operators.window_state import WindowState
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Join,
    KeyedApply,
    Running,
    SessionAggregate,
    WindowAggregate,
)
from tidegate.query.user_functions import user_context
from tidegate.runtime.local.bag_work import BagWork
from tidegate.runtime.local.figures import JoinFigures
from tidegate.runtime.local.in_turn_work import InTurnWork
from tidegate.runtime.local.late_buffer import LateBuffer
from tidegate.runtime.local.session_work import SessionWork
from tidegate.runtime.local.split_choice import SplitChoice
from tidegate.runtime.local.work import FedTuples, Work
from tidegate.state.snapshot import SnapshotStore, StateCut
from tidegate.watermark import END, START, Watermark, has_ended

if TYPE_CHECKING:
    from tidegate.runtime.local.settings import Settings

Found = TypeVar("Found")


def work_of(
    subquery: Subquery, settings: Settings, late: LateBuffer | None = None, last_time: Callable[[], int] = lambda: START
) -> Work:
    """The work of a subquery, with fresh state; ``late`` takes the tuples that are late for it.

    ``last_time`` says, once the input has ended, how far the sources before it have come.
    """
    match subquery.operator:
        case None:
            return StatelessWork(subquery)
        case WindowAggregate():
            windows = WindowState(Panes(subquery.operator))
            merge_settled = subquery.slices is not None and subquery.slices.merged_early
            shared = SharedWindows(windows, settings.split_panes, merge_settled)
            return WindowWork(subquery, shared, late_tuples=late)
        case SessionAggregate():
            return SessionWork(
                subquery, SharedSessions(OpenSessions(SessionTables(subquery.operator))), late_tuples=late
            )
        case AsOf() | CountJoin():
            return InTurnWork(subquery, slots_of(subquery.operator), late_tuples=late)
        case KeyedApply() | Running() | Dedup() | CountAggregate():
            slots, choice = slots_of(subquery.operator, last_time=last_time), SplitChoice(settings.split_keys)
            return KeyedApplyWork(subquery, slots, choice, late_tuples=late)
        case Join():
            join = SharedJoin(subquery.operator, split_pairs=settings.split_pairs)
            return JoinWork(subquery, join, late_tuples=late)
        case BagAggregate():
            return BagWork(subquery, HeldBags(subquery.operator), settings.split_keys, late_tuples=late)
        case _:
            raise InternalError(f"no work is known for {type(subquery.operator).__name__}")


@dataclass(slots=True, eq=False)
class StatelessWork(Work):
    """No state: the first instance to reach a segment emits it, and all keep the order by passing the watermark on."""

    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows and segment.take("tuples"):
            yield from (table for _, table in self._tuples(segment))


@dataclass(slots=True, eq=False)
class WindowWork(Work):
    """A windowed aggregate: each segment is lifted once; windows are emitted by the owners of their shards.

    Windows that hold little are emitted by the first instance to get there: what it does then is mostly the same for one
    shard as for all.
    """

    state: SharedWindows

    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        number, since, watermark = segment.index, segment.since, segment.watermark
        if segment.rows:
            self._claims.take_up(segment)
            if self.state.windows.panes.node.window.lateness:
                self._claims.finish(number, ahead)
                yield from self.state.revisions(number, self._claims.result(segment), owned)
        if not self.state.may_expire(since, watermark):
            return
        if owned is not None and not segment.derive(
            "split", lambda _: self.state.worth_splitting(number, since, watermark)
        ):
            if not segment.take("windows"):
                return
            owned = None
        self._claims.finish(number, ahead)
        yield from self.state.expired(number, since, watermark, owned)

    def may_emit(self, segment: Segment) -> bool:
        lateness = self.state.windows.panes.node.window.lateness
        return bool(lateness) or self.state.may_expire(segment.since, segment.watermark)

    def restore(self, store: SnapshotStore, watermark: Watermark) -> None:
        self.state.restore(store)

    def _cut(self, segment: Segment) -> StateCut:
        return self.state.cut(segment.index, segment.watermark)

    def _take_in(self, segment: Segment, tuples: FedTuples) -> LiftedPanes:
        """Lift a segment's tuples and make their panes visible."""
        arrived = pa.concat_tables([table for _, table in tuples])
        self.meter.sample(self.state.windows.panes.node.keys, arrived, self.worked_seconds)
        return self.state.lift(segment.index, arrived, segment.since)

    def _shard_bytes(self) -> Array:
        return self.state.shard_bytes()


@dataclass(slots=True, eq=False)
class JoinWork(Work):
    """A join: each segment is read once; its pairs are tried by all instances, each its share.

    The pairs of a small segment are tried by the first instance to get there, while the others go on to the next one: what
    there is to do once for a segment would cost more than the pairs.
    """

    state: SharedJoin
    arrived: tuple[int, int] = (0, 0)

    def join_figures(self) -> JoinFigures:
        return JoinFigures(self.arrived, self.state.held, self.state.tried, self.state.near.span / 1e6)

    def _shard_bytes(self) -> Array:
        return self.state.shard_bytes()

    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._claims.take_up(segment)
        if not self.may_emit(segment):
            return
        by_window = self.state.node.window is not None
        if by_window and owned is not None and not segment.derive("split", lambda _: self.state.worth_splitting()):
            if not segment.take("pairs"):
                return
            owned = None
        self._claims.finish(segment.index, ahead)
        if by_window:
            yield from self.state.pairs_expired(segment.index, segment.since, segment.watermark, owned)
        elif self.state.node.how == "inner":
            yield from self._shared(segment, owned, self.state.pairs_within) or ()
        else:
            # All pairs are found before any leaves: another instance may be the last that has to.
            found = self._shared(segment, owned, self.state.found_within)
            yield from self.state.decide(instance, segment.watermark, found)

    def _shared(
        self, segment: Segment, owned: Array | None, find: Callable[[int, SegmentTuples, Array | None], Found]
    ) -> Found | None:
        """What an instance finds of the pairs within a distance that a segment gives: its share, all, or nothing."""
        if segment.rows:
            arrived = self._claims.result(segment)
            if owned is None or segment.derive("split", lambda _: self.state.worth_splitting(arrived)):
                return find(segment.index, arrived, owned)
            if segment.take("pairs"):
                return find(segment.index, arrived, None)
        return None

    def last_results(self, instance: int) -> Iterator[pa.Table]:
        return self.state.decide(instance, END)

    def may_emit(self, segment: Segment) -> bool:
        window = self.state.node.window
        if window is None:
            moved = segment.watermark != segment.since and self.state.node.how != "inner"
            return segment.rows > 0 or moved or has_ended(segment.watermark)
        return bool(window.first_open(segment.since) != window.first_open(segment.watermark))

    def restore(self, store: SnapshotStore, watermark: Watermark) -> None:
        self.state.restore(store, watermark)

    def _cut(self, segment: Segment) -> StateCut:
        return self.state.cut(segment.index)

    def _take_in(self, segment: Segment, tuples: FedTuples) -> SegmentTuples:
        """Read the tuples of both sides of a segment."""
        sides: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for feed, table in tuples:
            sides[feed.side].append(table)
        left, right = (sum(table.num_rows for table in side) for side in sides)
        with self._lock:
            self.arrived = self.arrived[0] + left, self.arrived[1] + right
        return self.state.encode(segment.index, sides)


@dataclass(slots=True, eq=False)
class ShardSequencer:
    """Applies what is settled to each shard in the order of the log, by one instance at a time.

    After a reconfiguration a shard has another owner, which may be further in the log than the old one. It waits until the
    old one has done all turns before; no instance waits for more than that, and no state moves.
    """

    shards: int
    _taken: Array = field(init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _aborted: bool = False

    def __post_init__(self) -> None:
        self._taken = np.full(self.shards, -1, np.int64)

    def wait(self, turn: int, owned: Array | None) -> bool:
        """Wait until the shards of an owner (None: all) have seen every turn before; False if the run has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._aborted or self._ready(turn, owned))
            return not self._aborted

    def done(self, turn: int, owned: Array | None) -> None:
        """Note that an owner has done its turn."""
        with self._changed:
            self._taken[slice(None) if owned is None else owned] = turn
            self._changed.notify_all()

    def abort(self) -> None:
        """Wake all instances that wait: the run has failed."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def _ready(self, turn: int, owned: Array | None) -> bool:
        return bool((self._taken if owned is None else self._taken[owned]).min(initial=turn - 1) >= turn - 1)


@dataclass(frozen=True, slots=True)
class SettledStep:
    """What one segment settles, and, if one instance has done all shards at once, which one, and its results."""

    settled: Settled
    prepared: Any
    done_by: int | None = None
    results: Iterator[pa.Table] | None = None


@dataclass(slots=True, eq=False)
class KeyedApplyWork(Work):
    """An `apply`: what a segment settles is put in order once; the owners of shards call the user's functions in turn.

    Where a segment settles little and the functions do not wait for anything, the first instance to get there does all
    shards, while the others wait: what it does then is mostly the same for one shard as for all, and most of it needs the
    interpreter, which only one of them can have (`SplitChoice`).
    An instance always may emit: one that waits for another must not hold up the watermark that the other's results need.
    """

    state: KeyedSlots
    choice: SplitChoice = field(default_factory=SplitChoice)
    sequencer: ShardSequencer = field(default_factory=lambda: ShardSequencer(SHARDS))

    @property
    def pooled(self) -> bool:
        return not self.choice.shared

    def abort(self) -> None:
        self.sequencer.abort()

    def _shard_bytes(self) -> Array:
        return self.state.shard_bytes()

    @property
    def unfilled(self) -> int:
        return self.state.unfilled

    def _results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._claims.take_up(segment)
        if segment.watermark == segment.since:
            return
        step: SettledStep = segment.derive("step", lambda each: self._settle(each, instance, ahead))
        if step.done_by is None:
            self._wait(step, owned)
            yield from self._process(step, owned)
        elif step.done_by == instance and step.results is not None:
            yield from step.results

    def restore(self, store: SnapshotStore, watermark: Watermark) -> None:
        restore_slots(self.state, store, watermark)

    def _cut(self, segment: Segment) -> StateCut:
        if not self.sequencer.wait(self.state.waiting.turn, None):
            raise GateAborted(InterruptedError("the instance whose turn comes first has failed"))
        return cut_slots(self.state)

    def _take_in(self, segment: Segment, tuples: FedTuples) -> None:
        """Keep the tuples of a segment until they are settled."""
        for feed, table in tuples:
            self.state.waiting.hold(segment.index, feed.side, table, feed.time)

    def _settle(self, segment: Segment, instance: int, ahead: Iterator[Segment]) -> SettledStep:
        """What a segment settles. Segments come here in the order of the log, as no instance passes one before."""
        self._claims.finish(segment.index, ahead)
        settled = self.state.waiting.settle(segment.index, segment.watermark)
        for entries in settled.entries:
            self.meter.count(entries.columns, entries.shards, self.worked_seconds)
        step = SettledStep(settled, self.state.prepare(settled))
        if self.choice.split(settled.size):
            return step
        self._wait(step, None)
        began, on_core = time.perf_counter(), time.thread_time()
        results = self._process(step, None)
        self.choice.seen(settled.size, time.perf_counter() - began, time.thread_time() - on_core)
        return replace(step, done_by=instance, results=results)

    def _wait(self, step: SettledStep, owned: Array | None) -> None:
        """Wait for what another instance has not done yet on a shard that was its own until lately."""
        with waiting_for_others():
            came = self.sequencer.wait(step.settled.turn, owned)
        if not came:
            raise GateAborted(InterruptedError("the instance whose turn comes first has failed"))

    def _process(self, step: SettledStep, owned: Array | None) -> Iterator[pa.Table]:
        """Change the owned shards (None: all), which have seen every turn before; the results.

        Shards are left to the next turn before any result is emitted: emitting may have to wait for instances that wait for
        that turn.
        """
        # Functions on tuples are called too often to put something around each call.
        results = self.state.process(step.settled, step.prepared, owned)
        with nullcontext() if isinstance(self.state, ColumnSlots | LoggedSlots) else user_context():
            first = next(results, None)
        self.sequencer.done(step.settled.turn, owned)
        return iter(()) if first is None else chain((first,), results)
