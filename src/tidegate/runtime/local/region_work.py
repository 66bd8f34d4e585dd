"""What the instances of one subquery do with a segment, and where their results go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.compile.plan import Subquery
from tidegate.errors import InternalError
from tidegate.gate.segment import Segment
from tidegate.operators.columns import Array
from tidegate.operators.joins.shared_join import SharedJoin
from tidegate.operators.shared_windows import LiftedPanes, SharedWindows
from tidegate.operators.window_state import WindowState
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import Join, KeyedApply, WindowAggregate
from tidegate.runtime.local.claims import Claims
from tidegate.runtime.local.join_work import JoinWork
from tidegate.runtime.local.keyed_apply_work import KeyedApplyWork
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.local.work import Work, tuples_of
from tidegate.watermark import Watermark


def work_of(subquery: Subquery, settings: Settings) -> Work:
    """The work of a subquery, with fresh state."""
    match subquery.operator:
        case None:
            return StatelessWork(subquery)
        case WindowAggregate():
            merge_settled = subquery.slices is not None and subquery.slices.merged_early
            state = SharedWindows(
                WindowState(Panes(subquery.operator)), split_panes=settings.split_panes, merge_settled=merge_settled
            )
            return WindowWork(subquery, state)
        case KeyedApply():
            return KeyedApplyWork.fresh(subquery, subquery.operator, settings.split_keys)
        case Join():
            return JoinWork(subquery, SharedJoin(subquery.operator, split_pairs=settings.split_pairs))
        case _:
            raise InternalError(f"no work is known for {type(subquery.operator).__name__}")


@dataclass(slots=True, eq=False)
class WindowWork(Work):
    """A windowed aggregate: each segment is lifted once; windows are handed out by the owners of their shards.

    Windows that hold little are handed out whole by the first instance to get there: what it does then is mostly the
    same for one shard as for all.
    """

    subquery: Subquery
    state: SharedWindows
    _lifting: Claims = field(init=False)

    def __post_init__(self) -> None:
        self._lifting = Claims("lift", self._lift)

    @property
    def held(self) -> SharedWindows:
        return self.state

    def results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows:
            self._lifting.take_up(segment)
            if self.state.windows.panes.node.window.lateness:
                self._lifting.finish(segment.index, ahead)
                lifted = self._lifting.result(segment)
                yield from self.state.revisions(segment.index, lifted, owned)
        if not self.state.may_expire(segment.since, segment.watermark):
            return
        if owned is None or segment.derive("split", self._worth_splitting):
            yield from self._windows(segment, owned, ahead)
        elif segment.derived.take("windows"):
            yield from self._windows(segment, None, ahead)

    def may_hand_out(self, segment: Segment) -> bool:
        return bool(self.state.windows.panes.node.window.lateness) or self.state.may_expire(
            segment.since, segment.watermark
        )

    def attach(self, instance: int, number: int, watermark: Watermark) -> None:
        self.state.attach(instance, number, watermark)

    def detach(self, instance: int) -> None:
        self.state.detach(instance)

    def acknowledge(self, instance: int, number: int, watermark: Watermark) -> None:
        self.state.acknowledge(instance, number, watermark)
        self.state.compact()

    def _lift(self, segment: Segment) -> LiftedPanes:
        """Lift a segment's tuples and make their panes visible."""
        tables = [table for _, table in tuples_of(self.subquery, segment)]
        if not tables:
            return LiftedPanes()
        tuples = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        lifted = self.state.lift(segment.index, tuples, segment.since)
        self.state.insert(segment.index, lifted)
        return lifted

    def _worth_splitting(self, segment: Segment) -> bool:
        return self.state.worth_splitting(segment.index, segment.since, segment.watermark)

    def _windows(self, segment: Segment, owned: Array | None, ahead: Iterator[Segment]) -> Iterator[pa.Table]:
        """The results of the windows that expire at a segment, in owned shards; None owns all."""
        self._lifting.finish(segment.index, ahead)
        return self.state.expired(segment.index, segment.since, segment.watermark, owned)


@dataclass(frozen=True, slots=True)
class StatelessWork(Work):
    """No state: whoever comes first to a segment hands it out, and all keep the order by passing the watermark on."""

    subquery: Subquery

    @property
    def held(self) -> None:
        return None

    def results(
        self, segment: Segment, instance: int, owned: Array | None, ahead: Iterator[Segment]
    ) -> Iterator[pa.Table]:
        if segment.rows and segment.derived.take("tuples"):
            yield from (table for _, table in tuples_of(self.subquery, segment))

    def may_hand_out(self, segment: Segment) -> bool:
        return True
