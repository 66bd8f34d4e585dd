"""Runs a compiled query as Spark runs it, without Spark: micro-batches, watermarks, timers, retries, no-data batches.

What Spark does (and `tests/integration/test_driver.py` holds this against the real one):
- batch N sees the watermark made of the batches before it: per feed the latest event time in whole milliseconds less
  the delay asked for, the least over feeds, never going back, 0 at first;
- a cell gets its rows of the batch first, then every timer at or before the watermark fires;
- a failed attempt leaves no trace in the state, and the batch runs again with the same rows and watermark.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from tidegate.compile.compiler import compile_query
from tidegate.compile.plan import Feed, Subquery
from tidegate.query.nodes import Node, Source, apply_stateless
from tidegate.reference import Advance, Event, Rows
from tidegate.runtime.spark.codec import COLUMNS, METRICS, ResultCodec, cell_keys, unpack
from tidegate.runtime.spark.control import CONTROL, SetInstances
from tidegate.runtime.spark.dataframe import delay_ms, native_steps, processor, stage_of
from tidegate.runtime.spark.processor import CellProcessor
from tidegate.state.cache import ChunkCache
from tidegate.watermark import END

FAR_MS = 253_370_764_800_000


@dataclass(frozen=True)
class Batch:
    """Rows of each source, by partition; ``attempts`` > 1 means that some attempts fail after doing their work.

    ``instances`` are control rows in the batch, each with a number of instances, in the order they were sent.
    """

    parts: dict[str, list[pa.Table]]
    attempts: int = 1
    instances: tuple[int, ...] = ()


@dataclass
class Outcome:
    """What the run gave, and what happened: the events to replay through the reference.

    ``instances`` are, for each batch, the numbers of instances that cells with something to do ran.
    """

    tables: list[pa.Table] = field(default_factory=list)
    late: int = 0
    events: list[Event] = field(default_factory=list)
    instances: list[set[int]] = field(default_factory=list)


@dataclass
class _CellStore:
    """The state of one group in the state store."""

    directory: tuple[bytes] | None = None
    chunks: dict[Any, Any] = field(default_factory=dict)
    timers: set[int] = field(default_factory=set)

    def copy(self) -> _CellStore:
        return _CellStore(self.directory, dict(self.chunks), set(self.timers))


class _Handle:
    """What a processor sees of the state store, for the group at hand."""

    def __init__(self) -> None:
        self.store = _CellStore()

    def getValueState(self, name: str, schema: Any) -> Any:
        return _Value(self)

    def getMapState(self, name: str, key: Any, value: Any) -> Any:
        return _Map(self)

    def registerTimer(self, at: int) -> None:
        assert at > 0
        self.store.timers.add(at)

    def deleteTimer(self, at: int) -> None:
        self.store.timers.remove(at)


@dataclass
class _Value:
    handle: _Handle

    def get(self) -> Any:
        return self.handle.store.directory

    def update(self, value: Any) -> None:
        self.handle.store.directory = value


@dataclass
class _Map:
    handle: _Handle

    def getValue(self, key: Any) -> Any:
        return self.handle.store.chunks.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self.handle.store.chunks[key] = value

    def removeKey(self, key: Any) -> None:
        del self.handle.store.chunks[key]


@dataclass(frozen=True)
class _Timer:
    watermark_ms: int

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark_ms


class _Step:
    """One stateful step: what runs before its exchange, and the cells behind it."""

    def __init__(self, subquery: Subquery, cells: int, cache: ChunkCache | None, instances: int) -> None:
        assert subquery.operator is not None
        self.number, self.node = subquery.number, subquery.operator
        self.feeds = [(feed, stage_of(subquery, feed, cells)) for feed in subquery.feeds]
        self.shipped = cloudpickle.dumps(processor(self.node, cells, cache, instances, "this run"))
        self.keys = cell_keys(cells)
        self.cells: dict[int, _CellStore] = {}

    def told(self, instances: tuple[int, ...]) -> list[pd.DataFrame]:
        """What the control stream says to every cell; the row sent last may come first."""
        messages = [str(SetInstances(sent, number)) for sent, number in enumerate(instances)][::-1]
        return [
            pd.DataFrame({"cell": [key], **dict.fromkeys(COLUMNS), "control": [message]}).astype(object)
            for message in messages
            for key in self.keys
        ]

    def run(
        self, rows: pd.DataFrame, stores: dict[int, _CellStore], watermark_ms: int
    ) -> tuple[pa.Table, list[dict[str, int]]]:
        """One attempt at a batch: the results, and what cells tell of it."""
        worker: CellProcessor = pickle.loads(self.shipped)
        handle: Any = _Handle()
        worker.init(handle)
        frames: list[pd.DataFrame] = []
        timer: Any = _Timer(watermark_ms)
        if len(rows):
            for key, group in rows.groupby("cell"):
                handle.store = stores.setdefault(int(str(key)), _CellStore())
                frames += worker.handleInputRows((key,), iter([group.drop(columns="cell")]), timer)
        for key, store in stores.items():
            for due in sorted(due for due in store.timers if due <= watermark_ms):
                handle.store = store
                store.timers.discard(due)
                frames += worker.handleExpiredTimer((key,), timer, None)  # type: ignore[arg-type]
        return self._split(frames)

    def _split(self, frames: list[pd.DataFrame]) -> tuple[pa.Table, list[dict[str, int]]]:
        codec = ResultCodec(self.node.schema, self.node.time)
        tables = [self.node.schema.empty_table()]
        told: list[dict[str, int]] = []
        for frame in frames:
            table = pa.Table.from_pandas(frame, schema=codec.columns, preserve_index=False)
            told += [json.loads(metrics) for metrics in table.column(METRICS).to_pylist() if metrics is not None]
            results = table.filter(pc.is_null(table.column(METRICS))).drop_columns([METRICS])
            if codec.packs:
                results = pa.Table.from_batches(unpack(iter(results.to_batches())), schema=self.node.schema)
            tables.append(results)
        return pa.concat_tables(tables), told


class Driver:
    """One run of a query."""

    def __init__(self, query: Node, cells: int, cache: ChunkCache | None = None, instances: int = 1) -> None:
        self.plan = compile_query(query, "spark")
        self.steps = [_Step(sub, cells, cache, instances) for sub in self.plan.subqueries if sub.operator is not None]
        marked = [feed for step in self.steps for feed, _ in step.feeds]
        self.latest = {_place(feed): 0 for feed in marked if isinstance(feed.origin, Source)}
        self.watermark_ms = 0
        self.outcome = Outcome()

    def run(self, batches: Sequence[Batch], no_data_after: Sequence[bool] = ()) -> Outcome:
        """All batches, then the end of input."""
        for number, batch in enumerate(batches):
            self._batch(batch)
            if number < len(no_data_after) and no_data_after[number]:
                self._batch(Batch({}))
        self._batch(Batch({}))
        self.watermark_ms = FAR_MS
        self._batch(Batch({}))
        return self.outcome

    def _batch(self, batch: Batch) -> None:
        if self.watermark_ms > 0:
            ended = self.watermark_ms == FAR_MS
            self.outcome.events.append(Advance(END if ended else (self.watermark_ms + 1) * 1000))
        self.outcome.events += [Rows(name, part) for name, parts in batch.parts.items() for part in parts]
        for attempt in range(batch.attempts):
            seen = dict(self.latest)
            made: dict[int, pa.Table] = {}
            told: list[dict[str, int]] = []
            stores = []
            for step in self.steps:
                rows = self._before_exchange(step, batch, made, seen)
                stores.append({key: store.copy() for key, store in step.cells.items()})
                made[step.number], tidings = step.run(rows, stores[-1], self.watermark_ms)
                told += tidings
            if attempt == batch.attempts - 1:
                for step, kept in zip(self.steps, stores, strict=True):
                    step.cells = kept
                self.latest = seen
                self.outcome.tables += [table for feed in self.plan.outputs for table in self._after(feed, made)]
                self.outcome.late += sum(metrics["late"] for metrics in told)
                self.outcome.instances.append({metrics["instances"] for metrics in told})
        self.watermark_ms = max(self.watermark_ms, min(self.latest.values()))

    def _before_exchange(
        self, step: _Step, batch: Batch, made: dict[int, pa.Table], seen: dict[tuple[int, int], int]
    ) -> pd.DataFrame:
        """The rows that cross a step's exchange; notes the latest time of each feed that sets the watermark."""
        frames = step.told(batch.instances)
        for feed, stage in step.feeds:
            source = feed.origin
            for part in batch.parts.get(source.name, ()) if isinstance(source, Source) else [made[source]]:
                native = part
                for native_step in native_steps(feed):
                    native = apply_stateless(native_step, native)
                native = native.select(stage.fused.columns.names)
                if isinstance(source, Source):
                    if native.num_rows:
                        newest = pc.max(native.column(source.time).cast(pa.int64())).as_py() // 1000
                        seen[_place(feed)] = max(seen[_place(feed)], newest - delay_ms(source))
                    native = native.append_column(CONTROL, pa.nulls(native.num_rows, pa.string()))
                shipped = pickle.loads(cloudpickle.dumps(stage))
                frames += [frame.to_pandas() for frame in shipped(iter(native.to_batches(max_chunksize=7)))]
        return pd.concat(frames) if frames else pd.DataFrame()

    def _after(self, feed: Feed, made: dict[int, pa.Table]) -> list[pa.Table]:
        """The results of a feed from a stateful step, after the stateless steps behind it."""
        assert isinstance(feed.origin, int), "tests drive queries whose results all come from stateful steps"
        return [feed.apply(made[feed.origin])]


def _place(feed: Feed) -> tuple[int, int]:
    return feed.target, feed.input
