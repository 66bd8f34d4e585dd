"""Moves shards between the cells of each step of a query on Spark, beside whatever sizes the query.

To a control loop each stateful step is a subquery and its cells are the instances. What cells report of a batch says how
many rows each shard got and how long each cell worked; a new mapping goes into the control stream, and is in force from the
batch after the one that reads it. A cell that gains shards lists the files that hold their state, so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.controller import Actuator, ChangeOutcome, MoveCost
from tidegate.control.events import Poll
from tidegate.control.observation import Observation
from tidegate.control.protocols.adopt import Adopt
from tidegate.control.protocols.move import ShardMove
from tidegate.control.protocols.planner import MovePlanner
from tidegate.control.protocols.window_recreation import WindowRecreation
from tidegate.errors import UserError
from tidegate.runtime.spark.batch_reports import Batch, CellReport, by_step
from tidegate.runtime.spark.control import SteeredStep, Steering
from tidegate.runtime.spark.observe import SparkObserver
from tidegate.state.epochs import ADOPT, SHARDS_OF_A_STEP, first_mapping

BALANCER_HERE = MinimalMovement()
"""What moves shards between cells unless something else is asked for: those that stay keep their state in memory."""


PLANNER_HERE = MovePlanner(
    (Adopt(), WindowRecreation()),
    ShardMove(0, shared_files=True, batch_seconds=1.0),
    deadline_seconds=30.0,
    negligible_seconds=0.1,
)
"""How shards change cells: state is in files that every cell can read, or windows are recreated. How long batches are is
learned from moves. A mapping is for the load of now, and batches take longer than what a tenth of a second delays."""


def planner_of(steps: Iterable[SteeredStep]) -> MovePlanner:
    """The planner of the steps of a query, which knows how long the windows of each are."""
    places = tuple(
        (
            step.label,
            replace(PLANNER_HERE.place, window_seconds=step.window_seconds, advance_seconds=step.advance_seconds),
        )
        for step in steps
    )
    return replace(PLANNER_HERE, places=places)


@dataclass(slots=True)
class StepShards:
    """What is known of one step: the cell of each shard, as far as it was told, and a move that was asked for.

    ``recreating`` says that the move is by window recreation and has begun, ``doubled`` how many rows went to two cells.
    """

    cells: NDArray[np.int64]
    asked_at: float | None = None
    recreating: bool = False
    doubled: int = 0

    def seen(self, reports: Iterable[CellReport]) -> None:
        """Take in which shards cells had rows for; of shards without any nothing is told, and nothing depends on them."""
        for report in reports:
            self.cells[list(report.loads)] = report.cell


@dataclass(slots=True, eq=False)
class StepBalance:
    """Observes the steps of a query that have several cells, and asks for other mappings, as one observer and one actuator.

    ``beside`` is the actuator of the query's size, whose observations are passed on; None where only shards are moved.
    """

    observer: SparkObserver
    steering: Steering
    beside: Actuator | None = None
    poll_beside: Callable[[], Poll] | None = None
    _steps: dict[str, StepShards] = field(default_factory=dict)

    def poll(self) -> Poll:
        """Polls the query; with each period of its own, one of each step."""
        seen = self.observer.period_batches
        poll = (self.poll_beside or self.observer.poll)()
        batches = self.observer.period_batches
        kept = poll.observations if self.beside is not None else ()
        if not poll.observations or batches is seen:
            return replace(poll, observations=kept)
        whole, *_ = poll.observations
        measured = tuple(self._measured(batches))
        steps = tuple(
            self._observed(step, reports, whole)
            for step, reports in by_step(report for batch in batches for report in batch.cells).items()
        )
        return replace(poll, observations=(*kept, *(each for each in steps if each is not None)), measured=measured)

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        """Asks for another mapping of a step; what is about the size of the query goes to what sizes it."""
        shards = self._steps.get(subquery)
        if shards is None:
            if self.beside is None:
                return ChangeOutcome(False, f"there is no step '{subquery}'")
            return self.beside.reconfigure(subquery, instances, mapping)
        if mapping is None:
            return ChangeOutcome(False, f"step '{subquery}' keeps its cells; tg.set_cells changes their number")
        return self.move(subquery, mapping, ADOPT)

    def move(self, subquery: str, mapping: tuple[int, ...], protocol: str) -> ChangeOutcome:
        """Asks for another mapping of a step, by a protocol."""
        shards = self._steps.get(subquery)
        if shards is None:
            return ChangeOutcome(False, f"there is no step '{subquery}'")
        moves = {
            shard: cell
            for shard, (cell, before) in enumerate(zip(mapping, shards.cells.tolist(), strict=True))
            if cell != before
        }
        try:
            self.steering.move_shards(subquery, moves, protocol)
        except UserError as error:
            return ChangeOutcome(False, str(error))
        shards.asked_at, shards.recreating, shards.doubled = self.observer.clock(), False, 0
        # A batch reads it, and the next one goes by it.
        return ChangeOutcome(True, "", 2 * _batch_seconds(self.observer.period_batches))

    def _observed(self, step: str, reports: Sequence[CellReport], whole: Observation) -> Observation | None:
        """One step over a period; None where it has one cell."""
        last = {report.cell: report for report in reports}
        cells = 1 + max((report.cell for report in last.values() if report.shards), default=0)
        if cells < 2:
            return None
        # Until something else is told of them, shards are where a query that begins with so many cells has them.
        shards = self._steps.setdefault(step, StepShards(np.array(first_mapping(cells))))
        shards.seen(reports)
        loads = np.zeros(SHARDS_OF_A_STEP)
        busy = np.zeros(cells)
        for report in reports:
            loads[list(report.loads)] += list(report.loads.values())
            if report.cell < cells:
                busy[report.cell] += report.busy_seconds / report.instances
        held = np.array(
            [last[cell].state_bytes / max(last[cell].shards, 1) if cell in last else 0 for cell in range(cells)]
        )
        period = whole.period_seconds
        owners = np.minimum(shards.cells, cells - 1)
        return Observation(
            step,
            whole.time_seconds,
            period,
            cells,
            mapping=tuple(owners.tolist()),
            processed=sum(report.rows for report in reports) / period,
            busy=tuple(np.minimum(busy / period, 1.0).tolist()),
            shard_loads=tuple((loads / period).tolist()),
            shard_state_bytes=tuple(held[owners].astype(np.int64).tolist()),
        )

    def _measured(self, batches: Sequence[Batch]) -> Iterable[tuple[str, MoveCost]]:
        """What moves cost that were asked for and have come into force in one of these batches."""
        for batch in batches:
            for step, reports in by_step(batch.cells).items():
                shards = self._steps.get(step)
                adopted = [report.adopted for report in reports if report.adopted is not None]
                if shards is None or shards.asked_at is None:
                    continue
                if any(report.hands_over for report in reports):
                    shards.recreating = True
                    shards.doubled += sum(report.rows - sum(report.loads.values()) for report in reports)
                    continue
                if not adopted and not shards.recreating:
                    continue
                others = [each.seconds for each in batches if each is not batch]
                delay = max(batch.seconds - sum(others) / len(others), 0.0) if others else 0.0
                in_force = max(batch.ended_at - shards.asked_at, 0.0)
                read = sum(each["read_bytes"] for each in adopted)
                yield step, MoveCost(delay, in_force, read, tuples_doubled=max(shards.doubled, 0))
                shards.asked_at, shards.recreating = None, False


def _batch_seconds(batches: Sequence[Batch]) -> float:
    return sum(batch.seconds for batch in batches) / len(batches) if batches else 0.0
