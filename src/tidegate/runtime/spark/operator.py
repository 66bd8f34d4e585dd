"""What runs in Python workers: the intake of tuples, the cells of stateful steps, and the steps between.

With one cell a step everything is one task (`WholeQuery`). With several, each feed from a source is an intake
(`FeedStage`), and behind each exchange a task is one cell (`CellStage`), which also prepares its results for the cells of
the next step; a task of its own sends every cell a header in every batch (`PulseStage`), so that none is left out when no
tuples come.

In a task comes first the input, then the state (`cell_batch`), then chunks, directories, and the first row at last: a
consumer may stop early, and nothing is written after that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.compile.plan import OUTPUT, Feed, Plan, Subquery, apply_all
from tidegate.errors import InternalError
from tidegate.late_tuples import LateFolder
from tidegate.operators.exchange import (
    Delta,
    Intake,
    PaneIntake,
    RouteByKeys,
    RouteOnGrid,
    Router,
    TupleIntake,
    first_in_time,
)
from tidegate.query.keys import Columns
from tidegate.query.late import with_missed
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Join,
    KeyedApply,
    Running,
    Source,
)
from tidegate.query.predicates.tree import LEFT, RIGHT
from tidegate.runtime.spark import codec
from tidegate.runtime.spark.cell_batch import CellBatch, StateRoot, StepLogic, TaskBatch, directory_before, of_this_task
from tidegate.runtime.spark.codec import Header, Received, row
from tidegate.runtime.spark.inputs import Inputs
from tidegate.runtime.spark.output import Output
from tidegate.runtime.spark.worker_process import prepare_worker
from tidegate.state import chunks
from tidegate.state.epochs import SHARDS_OF_A_STEP, CellEpoch, first_mapping
from tidegate.state.pair_grid import PairGrid
from tidegate.watermark import START, Watermark

LETTERS = "dead_letters"


def intake_of(
    subquery: Subquery, feed: Feed, epoch: CellEpoch | None, before: Watermark, keep_late: bool = False
) -> Intake:
    """Takes the tuples of a feed in for the cells of its target, which has come to a watermark.

    ``epoch`` maps shards to cells; None where there is one cell.
    """
    node = subquery.operator
    assert node is not None
    side = feed.side
    least = first_in_time(node, before) if isinstance(feed.origin, Source) else None
    given = (node, side, epoch, feed.schema, feed.time, feed.apply, least, keep_late)
    if subquery.combine is not None and subquery.combine.before_exchange:
        return PaneIntake(*given)
    cells = epoch or CellEpoch(0, first_mapping(1))
    match node, subquery.safety().partitioning:
        case KeyedApply() | BagAggregate() | Running() | Dedup() | CountAggregate() | AsOf() | CountJoin(), "keys":
            router: Router = RouteByKeys(node.keys[side], cells)
        case Join(), "keys":
            router = RouteByKeys(Columns(tuple(names[side] for names in node.on)), cells, feed.time)
        case Join(), "pairs":
            router = RouteOnGrid(LEFT if side == 0 else RIGHT, cells, PairGrid(node.judged_sides))
        case _:
            raise InternalError(f"no exchange is known for {type(node).__name__}")
    return TupleIntake(router, *given)


@dataclass(frozen=True)
class WholeQuery:
    """The function that `mapInArrow` runs for a whole plan in one task: each stateful step has one cell."""

    plan: Plan
    steps: dict[int, StepLogic]
    inputs: Inputs
    root: StateRoot
    output: Output
    task: Callable[[], TaskBatch] = of_this_task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        task, header = self.task(), Header()
        if not self.steps:
            read = self.inputs.read(batches, header)
            if self.inputs.may_reject:
                # They are written before the first row leaves.
                read = iter(list(read))
                write_letters(header, task, self.root)
            passed = ((feed.target, feed.apply(table)) for feed, table in read)
            leaving = (made for number, table in passed for made in self._last_steps(number, table))
            yield from self.output.emit(leaving, task.batch)
            yield from self.output.metrics(source_metrics(header))
            return
        with ExitStack() as stack:
            cells = {number: CellBatch.open(step, 0, task, self.root) for number, step in self.steps.items()}
            for cell in cells.values():
                stack.callback(cell.close)
            late: LateTables = []
            results = self._run(batches, cells, header, late)
            write_letters(header, task, self.root)
            for cell in cells.values():
                cell.commit()
            yield from self.output.emit(self._leaving(results, late), task.batch)
            told = [cell.metrics() for cell in cells.values()]
        yield from self.output.metrics([*told, *source_metrics(header)])

    def _leaving(self, results: dict[int, Iterable[pa.Table]], late: LateTables) -> Iterator[tuple[int, pa.Table]]:
        """What leaves of the results of the subqueries, each after the number of the query's result that it is part of."""
        yield from leaving_late(self.plan.outputs, late)
        for number, tables in results.items():
            wanted = any(out.origin == number and out.late_side is None for out in self.plan.outputs)
            for table in tables if wanted else ():
                yield from self._last_steps(number, table)

    def _last_steps(self, number: int, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """What leaves of results of a subquery."""
        outs = (out for out in self.plan.outputs if out.origin == number and out.late_side is None)
        return ((out.side, made) for out, made in apply_all(outs, table))

    def _run(
        self, batches: Iterator[pa.RecordBatch], cells: dict[int, CellBatch], header: Header, late: LateTables
    ) -> dict[int, Iterable[pa.Table]]:
        """Takes in what the batch brings, and runs the subqueries one after the other; the results of each.

        Late tuples that are a result are added to ``late``.
        """
        intakes = {
            (subquery.number, feed.input): intake_of(
                subquery, feed, None, cells[subquery.number].before, cells[subquery.number].step.keeps_late
            )
            for subquery in self.plan.subqueries
            if subquery.operator is not None
            for feed in subquery.feeds
        }
        passed: dict[int, list[pa.Table]] = {}

        def deliver(feed: Feed, table: pa.Table) -> None:
            intake = intakes.get((feed.target, feed.input))
            if intake is not None:
                intake.add(table)
            else:
                passed.setdefault(feed.target, []).append(feed.apply(table))

        for feed, table in self.inputs.read(batches, header):
            deliver(feed, table)
        results: dict[int, Iterable[pa.Table]] = {}
        for subquery in self.plan.subqueries:
            if subquery.operator is None:
                results[subquery.number] = passed.get(subquery.number, [])
                continue
            cell, deltas = cells[subquery.number], []
            missed: LateTables = []
            own = replace(header, arrived={})
            for feed in subquery.feeds:
                intake = intakes[subquery.number, feed.input]
                deltas += [delta for _, delta in intake.finish()]
                own.arrived[feed.input] = intake.arrived
                missed += missed_late(feed, intake.late_tuples, cell)
            late += missed
            found: Iterable[pa.Table] = cell.receive(own, deltas)
            readers = [feed for feed in self.plan.feeds_from(subquery.number) if feed.late_side is None]
            for feed in self.plan.feeds_from(subquery.number):
                if feed.late_side is not None and feed.target != OUTPUT:
                    for came_by, table in missed:
                        if came_by.side == feed.late_side:
                            deliver(feed, table)
            onward = [feed for feed in readers if feed.target != OUTPUT]
            if onward and len(onward) < len(readers):
                found = list(found)
            for table in found if onward else ():
                for feed in onward:
                    deliver(feed, table)
            results[subquery.number] = found
        return results


LateTables: TypeAlias = list[tuple[Feed, pa.Table]]
"""Late tuples with the watermark that they missed, after the feed that they came by."""


def missed_late(feed: Feed, tables: Sequence[pa.Table], cell: CellBatch) -> LateTables:
    """The late tuples of a feed, if there are any.

    Where a folder is to have them they are written, under a name that an attempt which is run again gives them again.
    """
    if not tables:
        return []
    step, late = cell.step, with_missed(pa.concat_tables(tables), feed.time, cell.before)
    if step.late_to is not None:
        LateFolder(Path(step.late_to)).write(step.name, feed.input, f"{cell.task.batch:010}-{cell.cell}", late)
    return [(feed, late)] if step.late_leaves else []


def leaving_late(outs: Iterable[Feed], late: LateTables) -> Iterator[tuple[int, pa.Table]]:
    """What leaves of late tuples by some feeds, each after the number of the query's result that it is part of."""
    mine = [out for out in outs if out.late_side is not None]
    for feed, table in late:
        wanted = (out for out in mine if (out.origin, out.late_side) == (feed.target, feed.side))
        yield from ((out.side, made) for out, made in apply_all(wanted, table))


def write_letters(header: Header, task: TaskBatch, root: StateRoot, part: str = "0") -> None:
    """Writes the malformed records of a batch, under a name that an attempt which is run again gives them again."""
    for source, lines in header.letters.items():
        data = "".join(f"{line}\n" for line in lines).encode()
        root.storage.put(f"{task.query}/{LETTERS}/{letters_name(source)}/{task.batch:010}-{part}", data)


def letters_name(source: str) -> str:
    """The folder of the malformed records of a source."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def source_metrics(header: Header) -> list[dict[str, Any]]:
    """What is reported of the sources."""
    return [{"source": source, **asdict(counts)} for source, counts in header.counts.items()]


@dataclass(frozen=True)
class FeedStage:
    """The function that `mapInArrow` runs before the exchange of a step, for the inputs of some of its feeds."""

    subquery: Subquery
    step: StepLogic
    inputs: Inputs
    root: StateRoot
    task: Callable[[], TaskBatch] = of_this_task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        task, header = self.task(), Header()
        folder = self.root.step(task, self.step.number, self.step.name)
        # All cells of a step have come to the same watermark, and have the same mapping.
        before = directory_before(self.step, 0, task, folder)
        epoch = self.step.plan.after(before)
        feeds = [feed for each in self.inputs.inputs for feed in each.feeds if feed.target == self.subquery.number]
        intakes = {
            feed.input: intake_of(self.subquery, feed, epoch, before.watermark, self.step.keeps_late) for feed in feeds
        }
        for feed, table in self.inputs.read(batches, header):
            if (intake := intakes.get(feed.input)) is not None and feed.target == self.subquery.number:
                intake.add(table)
                if intake.is_full:
                    yield from send(feed, intake.give(), self.step.cells)
        yield from finished(intakes, {feed.input: feed for feed in feeds}, header, self.step.cells, epoch)


@dataclass(frozen=True)
class PulseStage:
    """The function that `mapInArrow` runs on the control stream: a header for every cell, in every batch."""

    cells: int
    inputs: Inputs = field(default_factory=lambda: Inputs(()))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        header = Header()
        for _ in self.inputs.read(batches, header):
            raise InternalError("a control stream brings no tuples")
        for key in codec.cell_keys(self.cells):
            yield row(key, header=header.encode())


def send(feed: Feed, deltas: Iterable[tuple[int, Delta]], cells: int) -> Iterator[pa.RecordBatch]:
    """Deltas of a feed as rows for cells; a table that several get is encoded once."""
    keys = codec.cell_keys(cells)
    last: pa.Table | None = None
    for cell, delta in deltas:
        if delta.rows is not last:
            last, data = delta.rows, chunks.encode(delta.rows)
        yield row(keys[cell], feed.input, data)


def finished(
    intakes: dict[int, Intake], feeds: dict[int, Feed], header: Header, cells: int, epoch: CellEpoch
) -> Iterator[pa.RecordBatch]:
    """The rest of what intakes have, and what their task tells the cells; one of them is told all of it."""
    keys = codec.cell_keys(cells)
    loads = np.zeros(SHARDS_OF_A_STEP, np.int64)
    for position, intake in intakes.items():
        yield from send(feeds[position], intake.finish(), cells)
        header.arrived[position] = intake.arrived
        loads += intake.loads
        if intake.late_tuples:
            yield row(keys[0], -1 - position, chunks.encode(pa.concat_tables(intake.late_tuples)))
    for cell, key in enumerate(keys):
        shards = np.flatnonzero((epoch.array == cell) & (loads > 0))
        own = header if cell == 0 else header.for_others()
        own.loads = dict(zip(shards.tolist(), loads[shards].tolist(), strict=True))
        yield row(key, header=own.encode())


@dataclass(frozen=True)
class CellStage:
    """The function that `mapInArrow` runs behind the exchange of a step: one cell, whose results go on or out.

    ``feeds`` lead to the ``following`` step, or to the ``output`` if there is none. One of the stages that run a step
    reports its metrics.
    """

    subquery: Subquery
    step: StepLogic
    root: StateRoot
    reports: bool
    following: tuple[Subquery, StepLogic] | None
    feeds: tuple[Feed, ...]
    output: Output
    task: Callable[[], TaskBatch] = of_this_task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        received = Received.of(batches)
        if received.key is None:
            return
        task, header = self.task(), received.header
        number = codec.cell_keys(self.step.cells).index(received.key)
        cell = CellBatch.open(self.step, number, task, self.root)
        with ExitStack() as stack:
            stack.callback(cell.close)
            sides = {feed.input: feed.side for feed in self.subquery.feeds}
            results = cell.receive(header, received.tables(sides))
            intakes: dict[int, Intake] = {}
            if self.following is not None:
                subquery, following = self.following
                folder = self.root.step(task, following.number, following.name)
                epoch = following.plan.after(directory_before(following, 0, task, folder))
                intakes = {feed.input: intake_of(subquery, feed, epoch, START) for feed in self.feeds}
                for table in results:
                    for intake in intakes.values():
                        intake.add(table)
            late: LateTables = []
            for feed in self.subquery.feeds:
                found = [chunks.decode(data) for position, data in received.late if position == feed.input]
                late += missed_late(feed, found, cell)
            write_letters(header, task, self.root, f"{self.step.number}-{number}")
            cell.commit()
            onward = replace(header, arrived={}, loads={}, letters={}, newest=dict(cell.directory.newest))
            onward.heard = dict(cell.directory.heard)
            if self.following is not None:
                onward.metrics = [*header.metrics, *([cell.metrics()] if self.reports else [])]
                if not self.reports:
                    onward.metrics, onward.counts = [], {}
                feeds = {feed.input: feed for feed in self.feeds}
                yield from finished(intakes, feeds, onward, following.cells, epoch)
                return
            outs = [feed for feed in self.feeds if feed.late_side is None]
            leaving = ((feed.side, made) for table in results if outs for feed, made in apply_all(outs, table))
            yield from self.output.emit(chain(leaving_late(self.feeds, late), leaving), task.batch)
            told = [*header.metrics, cell.metrics(), *source_metrics(header)] if self.reports else []
        yield from self.output.metrics(told)
