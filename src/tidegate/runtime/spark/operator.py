"""What runs in Python workers: the intake of tuples, the cells of stateful steps, and the steps between.

With one cell a step everything is one task (`WholeQuery`). With several, each feed from a source is an intake
(`FeedStage`), and behind each exchange a task is one cell (`CellStage`), which also prepares its results for the cells of
the next step; a task of its own sends every cell a header in every batch (`PulseStage`), so that none is left out when no
tuples come.

A batch is a pure function of the state before it and its rows. In a task comes first the input, then the state, then
chunks, directories, and the first row at last: a consumer may stop early, and nothing is written after that.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from tidegate.compile.plan import OUTPUT, Feed, Place, Plan, Subquery
from tidegate.errors import CheckpointError, EnvironmentFault, InternalError, QueryError
from tidegate.late_tuples import LateFolder, with_missed
from tidegate.operators.cells import CellLogic, Instances, keep_memory
from tidegate.operators.exchange import (
    Delta,
    Intake,
    PaneIntake,
    RouteByKeys,
    Router,
    TupleIntake,
    first_in_time,
)
from tidegate.operators.joins.join_cell import JoinLogic
from tidegate.operators.joins.route_join import Grid, RouteByEqualKeys, RouteOnGrid
from tidegate.operators.keyed_apply_cell import KeyedApplyLogic
from tidegate.operators.window_cell import WindowCellLogic
from tidegate.query.nodes import Join, KeyedApply, Source, Stateful, Stateless, WindowAggregate, apply_stateless
from tidegate.query.predicates.tree import LEFT, RIGHT
from tidegate.query.schema import conform
from tidegate.runtime.spark import codec
from tidegate.runtime.spark.checkpoint import check_fingerprint
from tidegate.runtime.spark.codec import Header, Received, row
from tidegate.runtime.spark.control import END, for_cells
from tidegate.runtime.spark.inputs import Inputs, shown_clock
from tidegate.state import chunks
from tidegate.state.cache import ChunkCache, cache_of
from tidegate.state.chunks import Asked, ChunkStore, Directory
from tidegate.state.step_folder import SWEEP_EVERY, StepFolder
from tidegate.state.storage import Storage, open_storage
from tidegate.watermark import END as ENDED
from tidegate.watermark import START, Watermark, is_finite

BATCH, QUERY, GROUP = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
"""The local properties of a task from which it learns its batch, its query, and which run of that query it is."""
CLOCKS = 128
PROBES = "probes"
LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """The batch that a task works on: its number, its query, and the run of that query."""

    batch: int
    query: str
    run: str


def of_this_task() -> TaskBatch:
    """The batch of the task that this process runs for Spark."""
    task = TaskContext.get()
    batch, query, group = (task.getLocalProperty(name) if task is not None else None for name in (BATCH, QUERY, GROUP))
    if batch is None or query is None:
        raise QueryError(
            "a stateful step of tidegate was evaluated outside a micro-batch: its streaming DataFrame is evaluated by the "
            "sink, or by the thread that calls foreachBatch. Another thread of yours does not know the batch; start it as "
            "pyspark.InheritableThread"
        )
    return TaskBatch(int(batch), query, group or "")


@dataclass(frozen=True, slots=True)
class StateRoot:
    """Where the state of a query is: a storage with its options, how many batches are kept, and which build writes it.

    ``probe`` is a file that the driver wrote; a worker that does not find it looks at another folder of that name.
    """

    uri: str
    options: tuple[tuple[str, str], ...]
    build: str
    retain: int

    @property
    def storage(self) -> Storage:
        """The storage, opened in this process."""
        return open_storage(self.uri, dict(self.options))

    @property
    def probe(self) -> str:
        """The file by which workers know that their folder is the driver's."""
        return f"{PROBES}/{self.build}"

    def step(self, task: TaskBatch, number: int, name: str) -> StepFolder:
        """The folder of a step, for a task."""
        storage, folder = self.storage, f"{task.query}/step-{number}"
        cache: ChunkCache | None = None if storage.is_local else cache_of(self.build, number)
        return StepFolder(storage, folder, name, f"{self.build}-{task.run}", self.retain, cache)

    def check(self) -> None:
        """Refuse a folder that is not the driver's."""
        if self.storage.get(self.probe) is None:
            raise EnvironmentFault(
                f"the worker does not find in {self.uri} what the driver wrote there: they see two folders of one name. "
                "State must lie where all workers reach it: a shared file system or an object store, to_spark(state='s3://…')"
            )


@dataclass(frozen=True, slots=True)
class StepLogic:
    """One stateful step as workers run it. ``sources`` are those before it, each with its disorder."""

    number: int
    name: str
    logic: CellLogic
    fingerprint: str
    sources: tuple[tuple[str, int], ...]
    cells: int
    instances: int
    late_to: str | None = None

    def watermark(self, newest: dict[str, Watermark]) -> Watermark:
        """How far event time has come when sources have come so far."""
        return min((_less(newest.get(name, START), disorder) for name, disorder in self.sources), default=START)


def _less(newest: Watermark, disorder: int) -> Watermark:
    return newest - disorder if is_finite(newest) else newest


def logic_of(node: Stateful, cells: int) -> CellLogic:
    """How the cells of a stateful step work."""
    match node:
        case WindowAggregate():
            return WindowCellLogic(node)
        case Join():
            return JoinLogic(node)
        case KeyedApply():
            return KeyedApplyLogic(node, cells)
        case _:
            raise InternalError(f"no cells are known for {type(node).__name__}")


@dataclass(slots=True)
class CellBatch:
    """One cell of a step in one batch: opened over the state before it, fed once, committed once."""

    step: StepLogic
    cell: int
    task: TaskBatch
    folder: StepFolder
    directory: Directory
    store: ChunkStore
    instances: Instances
    before: Watermark
    began: bool
    late: int = 0

    @classmethod
    def open(cls, step: StepLogic, cell: int, task: TaskBatch, root: StateRoot) -> CellBatch:
        """Reads the state before the batch; a state of another query is refused."""
        folder = root.step(task, step.number, step.name)
        if task.batch == 0:
            root.check()
        directory = directory_before(step, cell, task, folder)
        began = directory.run != folder.run
        if began:
            directory.run, directory.began_ns = folder.run, time.time_ns()
        asked = directory.asked
        number = asked.instances if asked is not None and asked.run == folder.run else step.instances
        store = ChunkStore(directory, folder, task.batch)
        return cls(step, cell, task, folder, directory, store, Instances(number), directory.watermark, began)

    def receive(self, header: Header, deltas: Sequence[Delta]) -> Iterator[pa.Table]:
        """Adds what the batch brings and advances; the results may be computed after `commit`."""
        directory = self.directory
        self._check(header)
        for source, newest in header.newest.items():
            directory.newest[source] = max(directory.newest.get(source, newest), newest)
        if END in header.messages:
            directory.newest |= {source: ENDED for source, _ in self.step.sources}
        wanted = for_cells(header.messages)
        if wanted is not None:
            directory.asked = Asked(self.folder.run, wanted.number)
            self.instances = Instances(wanted.number)
        self.instances.__enter__()
        # All cells are told what arrived; one reports it.
        self.late = sum(each.late for each in header.arrived.values()) if self.cell == 0 else 0
        watermark = max(directory.watermark, self.step.watermark(directory.newest))
        return self.step.logic.open(self.cell, self.store, self.instances).receive(deltas, watermark)

    def commit(self) -> None:
        """Writes the state after the batch."""
        self.store.commit(self.cell)
        if self.cell == 0 and self.task.batch % SWEEP_EVERY == 0:
            self.folder.sweep(self.task.batch)

    def close(self) -> None:
        """Lets the threads of its instances go."""
        self.instances.__exit__(None, None, None)

    def metrics(self) -> dict[str, Any]:
        """What the cell reports of the batch."""
        return {
            "step": f"{self.step.number + 1}:{self.step.name}",
            "cell": self.cell,
            "cells": self.step.cells,
            "late": self.late,
            "state_rows": self.directory.state_rows(),
            "state_bytes": self.directory.state_bytes(),
            "instances": self.instances.number,
            "busy_ms": round(1000 * self.instances.busy_seconds),
            "watermark_us": self.directory.watermark,
            "newest_us": max(filter(is_finite, self.directory.newest.values()), default=None),
        }

    def _check(self, header: Header) -> None:
        """Refuses rows of another batch, and an attempt that does not get the rows of the one before."""
        directory, name = self.directory, self.step.name
        if header.clock_us in directory.clocks:
            raise QueryError(
                f"step '{name}': batch {self.task.batch} was given the rows of an earlier one, of "
                f"{shown_clock(header.clock_us)}: a DataFrame was kept beyond its foreachBatch and evaluated in a later "
                "one; evaluate it in its own, or persist it there"
            )
        told = [header.clock_us, header.messages, {str(feed): asdict(each) for feed, each in header.arrived.items()}]
        directory.digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        if header.clock_us is not None:
            directory.clocks = [*directory.clocks, header.clock_us][-CLOCKS:]
        written = self.folder.written(self.cell, self.task.batch)
        if written is not None and written.digest != directory.digest:
            raise CheckpointError(
                f"step '{name}': batch {self.task.batch} was evaluated twice, with different rows: a step before it is not "
                "deterministic (rand() without a seed, a function of the time, a file that was rewritten), or the DataFrame "
                "of one batch was evaluated in another"
            )
        if written is None and self.began:
            self._check_earlier_runs(header)

    def _check_earlier_runs(self, header: Header) -> None:
        """Refuses a batch that an earlier run had under the same timestamp, so from the same offsets, with other rows."""
        batch = self.task.batch
        for other in self.folder.of_other_runs(self.cell, batch) if header.clock_us is not None else ():
            if other.clocks[-1:] == [header.clock_us] and other.digest != self.directory.digest:
                raise CheckpointError(
                    f"step '{self.step.name}': batch {batch} is run again after a restart, and does not get the rows it "
                    "had: its offsets do not continue those of the batch before (asynchronous progress tracking does not "
                    "log every batch; switch it off), or its input was rewritten, or a step before it is not deterministic. "
                    f"To take what is there now, remove offsets/{batch} from the query's checkpoint and start it again"
                )


def directory_before(step: StepLogic, cell: int, task: TaskBatch, folder: StepFolder) -> Directory:
    """The directory of a cell before a batch; a new one before the first."""
    found = folder.before(cell, task.batch)
    if found is None:
        return Directory(step.fingerprint)
    check_fingerprint(found.fingerprint, step.fingerprint, folder.where)
    return found


def worker_steps(feed: Feed) -> tuple[Stateless, ...]:
    """The steps of a feed that run in workers."""
    return tuple(step.node for step in feed.steps if step.place is Place.KERNEL)


def applied(feed: Feed) -> Callable[[pa.Table], pa.Table]:
    """The steps of a feed in workers, as a function."""
    steps = worker_steps(feed)

    def run(table: pa.Table) -> pa.Table:
        for step in steps:
            table = apply_stateless(step, table)
        return table

    return run


def intake_of(subquery: Subquery, feed: Feed, cells: int, before: Watermark, keep_late: bool) -> Intake[Any]:
    """Takes the tuples of a feed in for the cells of its target, which has come to a watermark."""
    node = subquery.operator
    assert node is not None
    side = feed.side
    least = first_in_time(node, before) if isinstance(feed.origin, Source) else None
    given = (node, side, cells, feed.schema, feed.time, applied(feed), least, keep_late)
    if subquery.combine is not None and subquery.combine.before_exchange:
        return PaneIntake(*given)
    match node, subquery.safety().partitioning:
        case KeyedApply(), "keys":
            router: Router = RouteByKeys(node.keys[side], cells)
        case Join(), "keys":
            router = RouteByEqualKeys(tuple(names[side] for names in node.on), cells)
        case Join(), "pairs":
            router = RouteOnGrid(LEFT if side == 0 else RIGHT, Grid.of(cells))
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
    columns: pa.Schema
    task: Callable[[], TaskBatch] = of_this_task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_memory()
        task, header = self.task(), Header()
        if not self.steps:
            read = self.inputs.read(batches, header)
            if self.inputs.may_reject:
                # They are written before the first row leaves.
                read = iter(list(read))
                write_letters(header, task, self.root)
            for feed, table in read:
                for out in self.plan.outputs:
                    yield from self._emitted(out, [conform(applied(feed)(table), feed.schema)])
            yield from codec.metrics(source_metrics(header), self.columns)
            return
        with ExitStack() as stack:
            cells = {number: CellBatch.open(step, 0, task, self.root) for number, step in self.steps.items()}
            for cell in cells.values():
                stack.callback(cell.close)
            results = self._run(batches, cells, header)
            write_letters(header, task, self.root)
            for cell in cells.values():
                cell.commit()
            for out in self.plan.outputs:
                assert isinstance(out.origin, int)
                yield from self._emitted(out, results[out.origin])
            told = [cell.metrics() for cell in cells.values()]
        yield from codec.metrics([*told, *source_metrics(header)], self.columns)

    def _emitted(self, feed: Feed, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        run = applied(feed)
        for table in tables:
            yield from codec.results(run(table), self.columns)

    def _run(
        self, batches: Iterator[pa.RecordBatch], cells: dict[int, CellBatch], header: Header
    ) -> dict[int, Iterable[pa.Table]]:
        """Takes in what the batch brings, and runs the subqueries one after the other; the results of each."""
        intakes = {
            (subquery.number, feed.input): intake_of(
                subquery, feed, 1, cells[subquery.number].before, cells[subquery.number].step.late_to is not None
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
                passed.setdefault(feed.target, []).append(conform(applied(feed)(table), feed.schema))

        for feed, table in self.inputs.read(batches, header):
            deliver(feed, table)
        results: dict[int, Iterable[pa.Table]] = {}
        for subquery in self.plan.subqueries:
            if subquery.operator is None:
                results[subquery.number] = passed.get(subquery.number, [])
                continue
            cell, deltas = cells[subquery.number], []
            own = replace(header, arrived={})
            for feed in subquery.feeds:
                intake = intakes[subquery.number, feed.input]
                deltas += [delta for _, delta in intake.finish()]
                own.arrived[feed.input] = intake.arrived
                write_late(cell.step, feed, intake.late_tuples, cell)
            found: Iterable[pa.Table] = cell.receive(own, deltas)
            readers = self.plan.feeds_from(subquery.number)
            onward = [feed for feed in readers if feed.target != OUTPUT]
            if onward and len(onward) < len(readers):
                found = list(found)
            for table in found if onward else ():
                for feed in onward:
                    deliver(feed, table)
            results[subquery.number] = found
        return results


def write_late(step: StepLogic, feed: Feed, tables: Sequence[pa.Table], cell: CellBatch) -> None:
    """Writes late tuples, under a name that an attempt which is run again gives them again."""
    if step.late_to is not None and tables:
        late = with_missed(pa.concat_tables(tables), feed.time, cell.before)
        LateFolder(Path(step.late_to)).write(step.name, feed.input, f"{cell.task.batch:010}-{cell.cell}", late)


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
        keep_memory()
        task, header = self.task(), Header()
        folder = self.root.step(task, self.step.number, self.step.name)
        # All cells of a step have come to the same watermark.
        before = directory_before(self.step, 0, task, folder).watermark
        feeds = [feed for each in self.inputs.inputs for feed in each.feeds if feed.target == self.subquery.number]
        keep = self.step.late_to is not None
        intakes = {feed.input: intake_of(self.subquery, feed, self.step.cells, before, keep) for feed in feeds}
        for feed, table in self.inputs.read(batches, header):
            if (intake := intakes.get(feed.input)) is not None and feed.target == self.subquery.number:
                intake.add(table)
                if intake.is_full:
                    yield from send(feed, intake.give(), self.step.cells)
        yield from finished(intakes, {feed.input: feed for feed in feeds}, header, self.step.cells)


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
    """Deltas of a feed as rows for cells."""
    keys = codec.cell_keys(cells)
    for cell, delta in deltas:
        yield row(keys[cell], feed.input, chunks.encode(delta.rows))


def finished(
    intakes: dict[int, Intake[Any]], feeds: dict[int, Feed], header: Header, cells: int
) -> Iterator[pa.RecordBatch]:
    """The rest of what intakes have, and what their task tells the cells; one of them is told all of it."""
    keys = codec.cell_keys(cells)
    for position, intake in intakes.items():
        yield from send(feeds[position], intake.finish(), cells)
        header.arrived[position] = intake.arrived
        if intake.late_tuples:
            yield row(keys[0], -1 - position, chunks.encode(pa.concat_tables(intake.late_tuples)))
    for cell, key in enumerate(keys):
        yield row(key, header=(header if cell == 0 else header.for_others()).encode())


@dataclass(frozen=True)
class CellStage:
    """The function that `mapInArrow` runs behind the exchange of a step: one cell, whose results go on or out.

    ``onward`` are the feeds that lead to the next step, or ``outputs`` those that lead out. One of the stages that run a
    step reports its metrics.
    """

    subquery: Subquery
    step: StepLogic
    root: StateRoot
    reports: bool
    following: Subquery | None
    feeds: tuple[Feed, ...]
    columns: pa.Schema
    task: Callable[[], TaskBatch] = of_this_task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_memory()
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
            intakes: dict[int, Intake[Any]] = {}
            if self.following is not None:
                cells = self.step.cells
                intakes = {feed.input: intake_of(self.following, feed, cells, START, False) for feed in self.feeds}
                for table in results:
                    for intake in intakes.values():
                        intake.add(table)
            for position, data in received.late:
                feed = next(feed for feed in self.subquery.feeds if feed.input == position)
                write_late(self.step, feed, [chunks.decode(data)], cell)
            write_letters(header, task, self.root, f"{self.step.number}-{number}")
            cell.commit()
            onward = replace(header, arrived={}, letters={}, newest=dict(cell.directory.newest))
            if self.following is not None:
                onward.metrics = [*header.metrics, *([cell.metrics()] if self.reports else [])]
                if not self.reports:
                    onward.metrics, onward.counts = [], {}
                yield from finished(intakes, {feed.input: feed for feed in self.feeds}, onward, self.step.cells)
                return
            for table in results:
                for feed in self.feeds:
                    yield from codec.results(applied(feed)(table), self.columns)
            told = [*header.metrics, cell.metrics(), *source_metrics(header)] if self.reports else []
        yield from codec.metrics(told, self.columns)
