"""Runs a compiled query as Spark runs it, without Spark: micro-batches, watermarks, timers, retries, no-data batches.

What Spark does (and `tests/integration/test_driver.py` holds this against the real one):
- batch N sees the watermark made of the batches before it: per feed the latest event time in whole milliseconds less
  the delay asked for, the least over feeds, never going back, 0 at first;
- a cell gets its rows of the batch first, then every timer at or before the watermark fires;
- a failed attempt leaves no trace in the state, and the batch runs again with the same rows and watermark.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from tidegate.compile.compiler import compile_query
from tidegate.query.nodes import Node, Source, Union, WindowAggregate, apply_stateless, walk
from tidegate.reference import Advance, Event, Rows
from tidegate.runtime.spark.control import COLUMN, SetInstances
from tidegate.runtime.spark.outward import METRICS, Outward, unpack
from tidegate.runtime.spark.processor import CellProcessor
from tidegate.runtime.spark.stages import Feed, feeds, processor
from tidegate.state.cache import ChunkCache

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


class Driver:
    """One run of a query with one stateful step."""

    def __init__(self, query: Node, cells: int, cache: ChunkCache | None = None, instances: int = 1) -> None:
        self.plan = compile_query(query, "spark")
        self.node = next(node for node in walk(self.plan.query) if isinstance(node, WindowAggregate))
        self.feeds = feeds(self.plan, self.node, cells)
        self.shipped = cloudpickle.dumps(processor(self.node, cells, cache, instances, "this run"))
        self.cells: dict[int, _CellStore] = {}
        self.latest = dict.fromkeys(range(len(self.feeds)), 0)
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
            self.outcome.events.append(Advance(math.inf if ended else (self.watermark_ms + 1) * 1000))
        self.outcome.events += [Rows(name, part) for name, parts in batch.parts.items() for part in parts]
        rows, seen = self._map_side(batch)
        for attempt in range(batch.attempts):
            stores = {key: store.copy() for key, store in self.cells.items()}
            tables, told = self._state_side(rows, stores)
            if attempt == batch.attempts - 1:
                self.cells = stores
                self.outcome.tables.extend(tables)
                self.outcome.late += sum(metrics["late"] for metrics in told)
                self.outcome.instances.append({metrics["instances"] for metrics in told})
        for feed, latest in seen.items():
            self.latest[feed] = max(self.latest[feed], latest)
        self.watermark_ms = max(self.watermark_ms, min(self.latest.values()))

    def _map_side(self, batch: Batch) -> tuple[pd.DataFrame, dict[int, int]]:
        frames, seen = [], {}
        for number, feed in enumerate(self.feeds):
            frames += [made.to_pandas() for made in self._controlled(feed, batch.instances)]
            for part in batch.parts.get(feed.source.name, ()):
                native = _native(feed.native, part).select(feed.stage.columns.names)
                if native.num_rows:
                    latest = pc.max(native.column(feed.source.time).cast(pa.int64())).as_py() // 1000 - feed.delay_ms
                    seen[number] = max(seen.get(number, latest), latest)
                marked = native.append_column(COLUMN, pa.nulls(native.num_rows, pa.string()))
                stage = pickle.loads(cloudpickle.dumps(feed.stage))
                frames += [made.to_pandas() for made in stage(iter(marked.to_batches(max_chunksize=7)))]
        return (pd.concat(frames) if frames else pd.DataFrame()), seen

    def _controlled(self, feed: Feed, instances: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        """What becomes of control rows; the one sent last may come first."""
        messages = [str(SetInstances(sent, number)) for sent, number in enumerate(instances)][::-1]
        if messages:
            columns = [
                pa.array([0] * len(messages)).cast(kind.type)
                if kind.name == feed.source.time
                else pa.nulls(len(messages), kind.type)
                for kind in feed.stage.columns
            ]
            rows = pa.table([*columns, pa.array(messages)], names=[*feed.stage.columns.names, COLUMN])
            yield from pickle.loads(cloudpickle.dumps(feed.stage))(iter(rows.to_batches()))

    def _state_side(
        self, rows: pd.DataFrame, stores: dict[int, _CellStore]
    ) -> tuple[list[pa.Table], list[dict[str, int]]]:
        worker: CellProcessor = pickle.loads(self.shipped)
        handle: Any = _Handle()
        worker.init(handle)
        frames: list[pd.DataFrame] = []
        timer: Any = _Timer(self.watermark_ms)
        if len(rows):
            for key, group in rows.groupby("cell"):
                handle.store = stores.setdefault(int(str(key)), _CellStore())
                frames += worker.handleInputRows((key,), iter([group.drop(columns="cell")]), timer)
        for key, store in stores.items():
            for due in sorted(due for due in store.timers if due <= self.watermark_ms):
                handle.store = store
                store.timers.discard(due)
                frames += worker.handleExpiredTimer((key,), timer, None)  # type: ignore[arg-type]
        return self._split(frames)

    def _split(self, frames: list[pd.DataFrame]) -> tuple[list[pa.Table], list[dict[str, int]]]:
        """The results, and what cells tell of the batch."""
        way = Outward(self.node.schema)
        tables: list[pa.Table] = []
        told: list[dict[str, int]] = []
        for frame in frames:
            table = pa.Table.from_pandas(frame, schema=way.columns, preserve_index=False)
            told += [json.loads(metrics) for metrics in table.column(METRICS).to_pylist() if metrics is not None]
            results = table.filter(pc.is_null(table.column(METRICS))).drop_columns([METRICS])
            if way.packs:
                results = pa.Table.from_batches(unpack(iter(results.to_batches())), schema=self.node.schema)
            tables.append(self._after(self.plan.query, results))
        return tables, told

    def _after(self, node: Node, results: pa.Table) -> pa.Table:
        """The stateless steps behind the stateful one."""
        if node is self.node:
            return results
        assert not isinstance(node, Source | Union | WindowAggregate)
        return apply_stateless(node, self._after(node.input, results))


def _native(node: Node, table: pa.Table) -> pa.Table:
    """The steps that Spark would compute natively."""
    if isinstance(node, Source):
        return table
    assert not isinstance(node, Union | WindowAggregate)
    return apply_stateless(node, _native(node.input, table))
