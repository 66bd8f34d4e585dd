"""What the instances of one region do with a segment, and where their results go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.gate.segment import Segment
from tidegate.operators.joins.shared_join import SharedJoin
from tidegate.operators.shared_windows import Array, Lifted, SharedWindows
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import Join, WindowAggregate
from tidegate.runtime.local.join_work import JoinWork
from tidegate.runtime.local.regions import Region, tuples_of


class Work(Protocol):
    """The work of a region; shared by its instances, called from all of their threads.

    An instance takes the segments in order. It has `join`ed before its first, asks for `results` of each, says that it
    `passed` each, control segments included, and may `leave` at a control segment. Every segment before one whose
    results are asked for has been derived.
    """

    @property
    def held(self) -> Held | None:
        """The state, to be measured; None if there is none."""
        ...

    @property
    def settles(self) -> bool:
        """Whether results wait until the watermark is past their time."""
        ...

    def derive(self, segment: Segment, instance: int) -> object:
        """The part of a segment's work that is done once, by whichever instance comes first."""
        ...

    def results(self, segment: Segment, derived: object, instance: int, owned: Array | None) -> Iterator[pa.Table]:
        """What one instance hands out for a segment, in the order of event time; ``derived`` is None if it has no rows."""
        ...

    def may_hand_out(self, segment: Segment) -> bool:
        """Whether some instance may have results for a segment; where none has, its watermark can wait."""
        ...

    def join(self, instance: int, number: int, watermark: int) -> None: ...

    def leave(self, instance: int) -> None: ...

    def passed(self, instance: int, number: int, watermark: int) -> None: ...

    def abort(self) -> None:
        """The run has failed: nobody may wait for another instance any more."""
        ...


class Held(Protocol):
    """What state says of itself: how many rows and bytes it holds, and how many tuples came too late for it."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def late(self) -> int: ...


def work_of(region: Region) -> Work:
    """The work of a region, with fresh state."""
    match region.operator:
        case None:
            return StatelessWork(region)
        case WindowAggregate():
            return WindowWork(region, SharedWindows(Panes(region.operator)))
        case Join():
            return JoinWork(region, SharedJoin(region.operator))
        case _:
            raise InternalError(f"no work is known for {type(region.operator).__name__}")


@dataclass(frozen=True, slots=True)
class WindowWork:
    """A windowed aggregate: lifting is shared, windows are handed out by the owners of their shards."""

    region: Region
    state: SharedWindows

    @property
    def held(self) -> SharedWindows:
        return self.state

    @property
    def settles(self) -> bool:
        return True

    def derive(self, segment: Segment, instance: int) -> Lifted:
        tables = [table for _, table in tuples_of(self.region, segment)]
        if not tables:
            return Lifted((), 0, ())
        tuples = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        lifted = self.state.lift(segment.index, tuples, segment.since)
        self.state.insert(segment.index, lifted)
        return lifted

    def results(self, segment: Segment, derived: object, instance: int, owned: Array | None) -> Iterator[pa.Table]:
        if isinstance(derived, Lifted) and derived.reopened:
            yield from self.state.revisions(segment.index, derived, owned)
        yield from self.state.expired(segment.index, segment.since, segment.watermark, owned)

    def may_hand_out(self, segment: Segment) -> bool:
        window = self.state.panes.node.window
        return bool(window.lateness) or window.first_open(segment.since) != window.first_open(segment.watermark)

    def join(self, instance: int, number: int, watermark: int) -> None:
        self.state.join(instance, number, watermark)

    def leave(self, instance: int) -> None:
        self.state.leave(instance)

    def passed(self, instance: int, number: int, watermark: int) -> None:
        self.state.passed(instance, number, watermark)
        self.state.compact()

    def abort(self) -> None:
        """Nobody waits: what is shared is never changed."""


@dataclass(frozen=True, slots=True)
class StatelessWork:
    """No state: whoever derives a segment hands it out, and all keep the order by passing the watermark on."""

    region: Region

    @property
    def held(self) -> None:
        return None

    @property
    def settles(self) -> bool:
        return False

    def derive(self, segment: Segment, instance: int) -> tuple[int, list[pa.Table]]:
        return instance, [table for _, table in tuples_of(self.region, segment)]

    def results(self, segment: Segment, derived: object, instance: int, owned: Array | None) -> Iterator[pa.Table]:
        if isinstance(derived, tuple) and derived[0] == instance:
            yield from derived[1]

    def may_hand_out(self, segment: Segment) -> bool:
        return True

    def join(self, instance: int, number: int, watermark: int) -> None:
        """Nothing is held for an instance."""

    def leave(self, instance: int) -> None:
        """Nothing is held for an instance."""

    def passed(self, instance: int, number: int, watermark: int) -> None:
        """Nothing is held for a segment."""

    def abort(self) -> None:
        """Nobody waits."""
