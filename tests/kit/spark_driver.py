"""Runs a compiled query as Spark runs it, without Spark: batches, retries, duplicates, restarts, zombies, lost workers.

What Spark does (and `tests/integration/test_driver.py` holds this against the real one):
- batch N gives every stage its rows, in any order and any cut; the control stream is there in each;
- an attempt may fail at any moment, or run to its end without counting; another one gets the same rows and timestamp;
- after a restart the batches that were not committed are run again under the name of another run;
- a worker may have had the cell before, or not.
"""

from __future__ import annotations

import json
import pickle
import random
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from pyspark import cloudpickle

from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Plan
from tidegate.compile.split_hot_keys import HotKeys
from tidegate.operators.joins import cached_join
from tidegate.query.arrival import stamped
from tidegate.query.names import unique_names
from tidegate.query.nodes import Node, Source, walk
from tidegate.query.schema import TIME
from tidegate.reference import Advance, Event, Rows
from tidegate.runtime.spark import codec, control
from tidegate.runtime.spark.cell_batch import StateRoot, TaskBatch
from tidegate.runtime.spark.codec import CLOCK, METRICS
from tidegate.runtime.spark.inputs import CONTROL, INPUT, TEXT, column_name
from tidegate.runtime.spark.stages import (
    ExchangedStage,
    FeedBranch,
    InputBranch,
    OneStage,
    PulseBranch,
    RunOptions,
    stages_of,
)
from tidegate.state import chunks
from tidegate.state.chunks import Chunk, Directory
from tidegate.state.epochs import ADOPT, RECREATE, SHARDS_OF_A_STEP, SIDE
from tidegate.watermark import END, START

FIRST_CLOCK_US = 1_800_000_000_000_000


@dataclass(frozen=True)
class Batch:
    """Rows of each source, by partition; of several ``attempts`` the last counts.

    ``instances`` are control rows in the batch, each with a number of instances, in the order they were sent, and
    ``mappings`` those that move shards. Before a batch with ``restart`` the query was started anew, with other ``cells`` if
    they are given; with ``cold`` its workers are new; with ``zombie`` an attempt of the batch before is run once more,
    behind this one.
    """

    parts: dict[str, list[pa.Table]]
    attempts: int = 1
    instances: tuple[int, ...] = ()
    mappings: tuple[control.SetMapping, ...] = ()
    restart: bool = False
    cells: int | tuple[int, int] | None = None
    cold: bool = False
    zombie: bool = False
    ends: bool = False


@dataclass
class Outcome:
    """What the run gave, and what happened: the events to replay through the reference.

    ``instances`` are, for each batch, the numbers of instances that cells ran.
    """

    tables: list[pa.Table] = field(default_factory=list)
    late: int = 0
    unfilled: int = 0
    events: list[Event] = field(default_factory=list)
    instances: list[set[int]] = field(default_factory=list)
    reports: list[list[dict[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True)
class _Task:
    """Says to a shipped stage which batch it works on."""

    batch: TaskBatch

    def __call__(self) -> TaskBatch:
        return self.batch


class Driver:
    """One query, its state in a folder."""

    def __init__(
        self,
        query: Node,
        cells: int | tuple[int, int],
        folder: Path | str | None = None,
        instances: int = 1,
        seed: int = 0,
        retain: int = 100,
        late_to: str | None = None,
        storage_options: dict[str, str] | None = None,
        hot_keys: HotKeys = False,
        continues: bool = False,
    ) -> None:
        self.query, self.instances, self.late_to, self.seed = query, instances, late_to, seed
        self.hot_keys, self.steps = hot_keys, {node.name for node in walk(unique_names(query))}
        self.plan = plan = self._compiled(cells)
        self._temporary = tempfile.TemporaryDirectory(prefix="tidegate-driver-", ignore_cleanup_errors=True)
        self._finalizer = weakref.finalize(self, self._temporary.cleanup)
        options = tuple((storage_options or {}).items())
        self.root = StateRoot(str(folder or self._temporary.name), options, f"build{seed}", retain, continues)
        self.root.storage.put(self.root.probe, b"")
        self.stages = stages_of(plan, RunOptions(self.root, "", instances, late_to))
        self.schema = query.schema
        self.newest = dict.fromkeys((source.name for source in plan.sources), START)
        self.number = self._now = 0
        self.run_number = 0
        self.random = random.Random(seed)
        self.outcome = Outcome()
        self._shipped: dict[int, Any] = {}
        self._last: tuple[Batch, TaskBatch] | None = None

    def run(self, batches: Sequence[Batch], no_data_after: Sequence[bool] = ()) -> Outcome:
        """All batches, then the end of input."""
        for number, batch in enumerate(batches):
            self.batch(batch)
            if number < len(no_data_after) and no_data_after[number]:
                self.batch(Batch({}))
        self.batch(Batch({}, ends=True))
        return self.outcome

    def events_of(self, batches: Sequence[Batch], no_data_after: Sequence[bool] = ()) -> list[Event]:
        """What a run would see, without running it."""
        for number, batch in enumerate(batches):
            for _ in range(2 if number < len(no_data_after) and no_data_after[number] else 1):
                for stage in self.stages:
                    for branch in inputs_of(stage):
                        list(self._input(branch, batch))
                self._note(batch, [], [])
                batch = Batch({})
        self._note(Batch({}, ends=True), [], [])
        return self.outcome.events

    def held(self) -> list[Chunk]:
        """The chunks that the cells of all steps list after the last batch."""
        return [chunk for directory in self.directories() for chunk in directory.chunks]

    def directories(self) -> list[Directory]:
        """The directories of the cells of all steps after the last batch."""
        storage, found = self.root.storage, []
        for step in storage.folders("query"):
            for cell in (name for name in storage.folders(f"query/{step}") if name.startswith("cell-")):
                newest = storage.names(f"query/{step}/{cell}")
                for name in newest:
                    if name.startswith(f"{self.number - 1:010}-{self.root.build}-run{self.run_number}"):
                        data = storage.get(f"query/{step}/{cell}/{name}")
                        assert data is not None
                        found.append(Directory.decode(bytes(data), name))
        return found

    def batch(self, batch: Batch) -> None:
        """One batch, with all that happens around it."""
        if batch.restart:
            self.run_number += 1
            if batch.cells is not None:
                self.start(batch.cells)
        if batch.cold:
            forget()
        task = TaskBatch(self.number, "query", f"run{self.run_number}")
        for _ in range(batch.attempts - 1):
            self.attempt(batch, task)
        results, told = self.attempt(batch, task)
        if batch.zombie and self._last is not None:
            self.attempt(*self._last)
        self._last, self.number = (batch, task), self.number + 1
        self._note(batch, results, told)

    def start(self, cells: int | tuple[int, int]) -> None:
        """The query is built anew, with other cells, over the same state."""
        self.plan = self._compiled(cells)
        self.root = replace(self.root, build=f"build{self.seed}-{self.run_number}")
        self.root.storage.put(self.root.probe, b"")
        self.stages = stages_of(self.plan, RunOptions(self.root, "", self.instances, self.late_to))
        self._shipped.clear()
        self._last = None

    def _compiled(self, cells: int | tuple[int, int]) -> Plan:
        every = self.late_to is not None
        return compile_query(self.query, "spark", all_columns=every, cells=cells, hot_keys=self.hot_keys)

    def attempt(self, batch: Batch, task: TaskBatch) -> tuple[list[pa.Table], list[dict[str, Any]]]:
        """Runs all stages once: results, and what cells report."""
        self._now = task.batch
        results: list[pa.Table] = []
        told: list[dict[str, Any]] = []
        for stage in self.stages:
            for part in self._stage(stage, batch, task):
                for each in part:
                    told += [one for text in each.column(METRICS).to_pylist() if text for one in json.loads(text)]
                    kept = each.filter(each.column(METRICS).is_null()).drop_columns([METRICS])
                    results.append(pa.Table.from_batches([kept]))
        return results, told

    def _note(self, batch: Batch, results: list[pa.Table], told: list[dict[str, Any]]) -> None:
        outcome = self.outcome
        outcome.tables += results
        outcome.late += sum(one["late"] for one in told if "step" in one)
        outcome.unfilled += sum(one.get("unfilled", 0) for one in told)
        outcome.instances.append({one["instances"] for one in told if "step" in one})
        outcome.reports.append(told)
        named = {source.name: source for source in self.plan.sources}
        outcome.events += [
            Rows(name, _arrived(named[name], part, clock_of(self.number - 1)))
            for name, parts in batch.parts.items()
            for part in parts
        ]
        for subquery in self.plan.subqueries:
            # One that merges the parts of keys is none of the query's own.
            if subquery.operator is not None and subquery.name in self.steps:
                before = self.plan.sources_before(subquery.number)
                times = [(self.newest[source.name], source.disorder_us) for source in before]
                reached = min(START if time == START else time - disorder for time, disorder in times)
                label = control.step_label(subquery.number, subquery.name)
                known = {one["watermark_us"] for one in told if one.get("step") == label}
                if any(source.idle_us is not None for source in self.plan.sources):
                    reached = min(known, default=reached)  # one that idles is passed over, by the clock
                ended = {END if batch.ends else max(reached, START)}
                assert known <= ended, f"cells of '{label}' have come to {known}, and their sources to {ended}"
                if reached > START or batch.ends:
                    outcome.events.append(Advance(END if batch.ends else reached, subquery.name))

    def _stage(self, stage: OneStage | ExchangedStage, batch: Batch, task: TaskBatch) -> Iterator[list[pa.RecordBatch]]:
        """What the tasks of a stage give."""
        if isinstance(stage, OneStage):
            rows = [each for branch in stage.inputs for part in self._input(branch, batch) for each in part]
            if stage.function.steps:
                rows += self._control(batch)
            yield self._run(stage.function, rows, task)
            return
        exchanged: dict[int, list[pa.RecordBatch]] = {key: [] for key in codec.cell_keys(stage.cells)}
        for branch in stage.before:
            for part in self._before_exchange(branch, batch, task):
                for each in part:
                    clock = self._clock() if isinstance(branch, PulseBranch) else None
                    exchanged[each.column("cell")[0].as_py()].append(_with_clock(each, clock))
        for rows in exchanged.values():
            self.random.shuffle(rows)
            yield self._run(stage.function, rows, task)

    def _before_exchange(self, branch: Any, batch: Batch, task: TaskBatch) -> Iterator[list[pa.RecordBatch]]:
        match branch:
            case ExchangedStage():
                yield from self._stage(branch, batch, task)
            case FeedBranch():
                for part in self._input(branch.input, batch):
                    yield self._run(branch.function, part, task)
            case PulseBranch():
                yield self._run(branch.function, self._control(batch), task)

    def _run(self, function: Any, rows: list[pa.RecordBatch], task: TaskBatch) -> list[pa.RecordBatch]:
        if id(function) not in self._shipped:
            self._shipped[id(function)] = pickle.loads(cloudpickle.dumps(function))
        shipped = self._shipped[id(function)]
        run: Callable[..., Iterator[pa.RecordBatch]]
        run = replace(shipped, task=_Task(task)) if hasattr(shipped, "task") else shipped
        return list(run(iter(rows)))

    def _input(self, branch: InputBranch, batch: Batch) -> Iterator[list[pa.RecordBatch]]:
        """The partitions of an input, in small Arrow batches; none if its source is idle: Spark prunes it."""
        parts = [_arrived(branch.source, part, self._clock()) for part in batch.parts.get(branch.source.name, ())]
        self.random.shuffle(parts)
        for part in parts:
            if part.num_rows:
                self._saw(branch, part)
            columns = {
                INPUT: pa.array([branch.number] * part.num_rows, pa.int32()),
                TEXT: pa.nulls(part.num_rows, pa.string()),
                CLOCK: pa.array([self._clock()] * part.num_rows, TIME),
            }
            columns |= {column_name(branch.number, name): part.column(name) for name in branch.columns}
            yield pa.table(columns).to_batches(max_chunksize=self.random.choice([7, 1000]))

    def _saw(self, branch: InputBranch, tuples: pa.Table) -> None:
        source = branch.source
        latest = pc.max(tuples.column(source.time).cast(pa.int64())).as_py()
        if latest is not None:
            self.newest[source.name] = max(self.newest[source.name], latest)

    def _control(self, batch: Batch) -> list[pa.RecordBatch]:
        """The messages of a batch; the row sent last may come first."""
        texts = [str(control.SetInstances(sent, number)) for sent, number in enumerate(batch.instances)][::-1]
        texts += [str(each) for each in batch.mappings][::-1]
        texts += [control.END] if batch.ends else []
        count = len(texts)
        columns = {INPUT: [CONTROL] * count, TEXT: texts, CLOCK: pa.array([self._clock()] * count, TIME)}
        schema = pa.schema([(INPUT, pa.int32()), (TEXT, pa.string()), (CLOCK, TIME)])
        return pa.table(columns, schema=schema).to_batches() if count else []

    def _clock(self) -> int:
        return clock_of(self._now)


def clock_of(batch: int) -> int:
    """The timestamp of a batch."""
    return FIRST_CLOCK_US + batch * 1_000_000


def _arrived(source: Source, part: pa.Table, clock: int) -> pa.Table:
    """Rows with the batch's timestamp, where that is their event time."""
    return stamped(part, source.time, clock) if source.stamped else part


def inputs_of(stage: Any) -> Iterator[InputBranch]:
    """The inputs of a stage, and of those before it."""
    match stage:
        case OneStage():
            yield from stage.inputs
        case ExchangedStage():
            for branch in stage.before:
                yield from inputs_of(branch)
        case FeedBranch():
            yield stage.input


MOST_CELLS = 4


def faults() -> st.SearchStrategy[dict[str, Any]]:
    """What may happen around a batch: a restart, with other cells, new workers, a late attempt of the batch before, and
    shards that are asked to move."""
    rare = st.sampled_from([False, False, True])
    cells = st.sampled_from([None, None, 1, 2, 3, (1, 3), (2, MOST_CELLS)])
    return st.fixed_dictionaries({"restart": rare, "cold": rare, "zombie": rare, "cells": cells, "mappings": moves()})


def moves() -> st.SearchStrategy[tuple[control.SetMapping, ...]]:
    """The mappings that a batch asks for; often none. Some name cells that the run does not have: they are left out."""
    return st.lists(_moves(), max_size=1).flatmap(
        lambda first: st.lists(_moves(), max_size=1).map(lambda second: (*first, *second)) if first else st.just(())
    )


@st.composite
def _moves(draw: st.DrawFn) -> control.SetMapping:
    sent, cells = draw(st.integers(0, 9)), draw(st.integers(1, MOST_CELLS))
    protocol = draw(st.sampled_from([ADOPT, ADOPT, RECREATE]))
    match draw(st.sampled_from(["cells", "all", "some", "halves"])):
        case "cells":
            return control.SetMapping(sent, cells=cells, protocol=protocol)
        case "all":
            chance = random.Random(draw(st.integers(0, 99)))
            mapping = tuple(chance.choices(range(cells), k=SHARDS_OF_A_STEP))
            return control.SetMapping(sent, mapping=mapping, protocol=protocol)
        case "some":
            chance = random.Random(draw(st.integers(0, 99)))
            some = chance.sample(range(SHARDS_OF_A_STEP), 400)
            moves = {shard: chance.randrange(cells) for shard in some}
            return control.SetMapping(sent, moves=moves, protocol=protocol)
        case _:
            # On a grid whole rows, or whole columns.
            by = draw(st.sampled_from([1, SIDE]))
            mapping = tuple(shard // by % SIDE * cells // SIDE for shard in range(SHARDS_OF_A_STEP))
            return control.SetMapping(sent, mapping=mapping, protocol=protocol)


def forget() -> None:
    """What a new worker knows of earlier batches: nothing."""
    chunks.IN_THIS_PROCESS.clear()
    cached_join.IN_THIS_PROCESS.clear()


def _with_clock(rows: pa.RecordBatch, clock: int | None) -> pa.RecordBatch:
    moment = pa.array([clock] * rows.num_rows, TIME)
    return pa.record_batch([*rows.columns, moment], names=[*rows.schema.names, CLOCK])
