"""One cell of a stateful step in one batch: which batch it is, where its state lies, and what the state becomes.

A batch is a pure function of the state before it and its rows. What its outcome depends on comes in its rows or from the
directory before it, never from the process that happens to run it; what would break that is refused here.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from tidegate.errors import CheckpointError, EnvironmentFault, QueryError
from tidegate.operators.cells import CellLogic, Instances
from tidegate.operators.exchange import Delta
from tidegate.operators.fingerprint import check_fingerprint
from tidegate.operators.keyed_rows_cell import KeyedRowsCell
from tidegate.query.idle import SourceProgress, is_idle, passed_over
from tidegate.runtime.spark.codec import Header
from tidegate.runtime.spark.control import END, for_step, step_label
from tidegate.runtime.spark.epochs import Adopted, CellPlan, switch
from tidegate.runtime.spark.inputs import shown_clock
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
    ``continues`` says that the query begins with the state of another run.
    """

    uri: str
    options: tuple[tuple[str, str], ...]
    build: str
    retain: int
    continues: bool = False

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
        return StepFolder(storage, folder, name, f"{self.build}-{task.run}", self.retain, cache, self.continues)

    def check(self) -> None:
        """Refuse a folder that is not the driver's."""
        if self.storage.get(self.probe) is None:
            raise EnvironmentFault(
                f"the worker does not find in {self.uri} what the driver wrote there: they see two folders of one name. "
                "State must lie where all workers reach it: a shared file system or an object store, to_spark(state='s3://…')"
            )


@dataclass(frozen=True, slots=True)
class StepLogic:
    """One stateful step as workers run it. ``sources`` are those before it, each with its disorder.

    Where some source of the query may idle, ``tracked`` are all that lead to stateful steps, each with its disorder and
    after how long it does.

    Late tuples go to the folder ``late_to``, if there is one, and ``late_leaves`` says that they are also a result.
    """

    number: int
    name: str
    logic: CellLogic
    fingerprint: str
    sources: tuple[tuple[str, int], ...]
    plan: CellPlan
    instances: int
    late_to: str | None = None
    late_leaves: bool = False
    tracked: tuple[tuple[str, int, int | None], ...] = ()

    @property
    def keeps_late(self) -> bool:
        """Whether late tuples are asked for."""
        return self.late_leaves or self.late_to is not None

    @property
    def cells(self) -> int:
        """How many cells there are, with shards or without."""
        return self.plan.most

    def watermark(self, directory: Directory, clock_us: int | None) -> Watermark:
        """How far event time has come when sources have come so far, in a batch of this timestamp."""
        newest, heard = directory.newest, directory.heard
        taken = passed_over(
            {
                name: SourceProgress(
                    _less(newest.get(name, START), disorder), is_idle(idle_us, heard.get(name), clock_us)
                )
                for name, disorder, idle_us in self.tracked or ((*each, None) for each in self.sources)
            }
        )
        return min((taken[name] for name, _ in self.sources), default=START)


def _less(newest: Watermark, disorder: int) -> Watermark:
    return newest - disorder if is_finite(newest) else newest


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
    adopted: Adopted | None = None
    late: int = 0
    unfilled: int = 0
    rows: int = 0
    loads: dict[int, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, step: StepLogic, cell: int, task: TaskBatch, root: StateRoot) -> CellBatch:
        """Reads the state before the batch; a state of another query is refused."""
        folder = root.step(task, step.number, step.name)
        if task.batch == 0:
            root.check()
        directory = directory_before(step, cell, task, folder)
        began = directory.run != folder.run
        epoch, adopted = step.plan.after(directory), None
        if (epoch, step.plan.range) != (directory.epoch, directory.cells):
            after = replace(directory)
            adopted = switch(
                directory, epoch, step.plan, cell, lambda donor: folder.beside(after, donor, task.batch - 1)
            )
        if began:
            directory.run, directory.began_ns = folder.run, time.time_ns()
        asked = directory.asked
        number = asked.instances if asked is not None and asked.run == folder.run else step.instances
        store = ChunkStore(directory, folder, task.batch, owned=epoch.owned(cell) | epoch.owned_before(cell))
        return cls(step, cell, task, folder, directory, store, Instances(number), directory.watermark, began, adopted)

    def receive(self, header: Header, deltas: Sequence[Delta]) -> Iterator[pa.Table]:
        """Adds what the batch brings and advances; the results may be computed after `commit`."""
        directory = self.directory
        self._check(header)
        for source, newest in header.newest.items():
            directory.newest[source] = max(directory.newest.get(source, newest), newest)
        for name, _, idle_us in self.step.tracked:
            if idle_us is not None and header.clock_us is not None:
                directory.heard[name] = header.heard.get(name, directory.heard.get(name, header.clock_us))
        came = [directory.newest.get(source, START) for source, _ in self.step.sources]
        directory.last_time = max([directory.last_time, *came, *(each.latest for each in header.arrived.values())])
        instances, mappings = for_step(header.messages, self.step.number, self.step.name)
        for wanted in (each.of(self.cell) for each in instances):
            if wanted is not None:
                directory.asked = Asked(self.folder.run, wanted)
                self.instances = Instances(wanted)
        directory.following = self.step.plan.planned(directory.epoch, mappings, self.left_out)
        self.instances.__enter__()
        self.rows, self.loads = sum(delta.rows.num_rows for delta in deltas), header.loads
        # All cells are told what arrived; one reports it.
        self.late = sum(each.late for each in header.arrived.values()) if self.cell == 0 else 0
        watermark = ENDED if END in header.messages else self.step.watermark(directory, header.clock_us)
        watermark = max(directory.watermark, watermark)
        cell = self.step.logic.open(self.cell, self.store, self.instances)
        results = cell.receive(deltas, watermark)
        self.unfilled = cell.unfilled if isinstance(cell, KeyedRowsCell) else 0
        return results

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
        told: dict[str, Any] = {}
        if self.adopted is not None:
            self.adopted.read_bytes = self.store.read_bytes
            told["adopted"] = self.adopted.told()
        if self.loads:
            told["loads"] = self.loads
        if self.unfilled:
            told["unfilled"] = self.unfilled
        if self.left_out:
            told["left_out"] = self.left_out
        if self.directory.epoch.handover is not None:
            told["handover_us"] = self.directory.epoch.handover.over
        return told | {
            "step": step_label(self.step.number, self.step.name),
            "cell": self.cell,
            "cells": self.step.cells,
            "epoch": self.directory.epoch.number,
            "shards": self.store.owned.bit_count(),
            "rows": self.rows,
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
        # A feed that brought nothing may be there with several cells and not with one, or the other way round.
        arrived = {str(feed): asdict(each) for feed, each in header.arrived.items() if each.tuples}
        told = [header.clock_us, header.messages, arrived]
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
        return Directory(step.fingerprint, epoch=step.plan.first(), cells=step.plan.range)
    check_fingerprint(found.fingerprint, step.fingerprint, folder.where)
    return found
