"""The side of a stateful step behind the exchange: one cell in Spark's state store.

Spark calls `handleInputRows` once per batch for a cell with input and `handleExpiredTimer` for one whose time has come.
The cell's directory is one value; its chunks are entries of a map; nothing is ever iterated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from tidegate.operators.cell import Cell, Delta
from tidegate.operators.windowed_aggregate import Panes
from tidegate.runtime.spark.fingerprint import check
from tidegate.state.cache import ChunkCache
from tidegate.state.directory import Directory
from tidegate.state.slice_log import SliceLog

METRICS = pa.schema([(f"__tg_{name}", pa.int64()) for name in ("late", "state_rows", "state_bytes", "cells")])


@dataclass(frozen=True, slots=True)
class MapBlobs:
    """Chunks as entries of a Spark map state."""

    state: MapState

    def get(self, blob_id: int) -> bytes | None:
        found = self.state.getValue((blob_id,))
        return bytes(found[0]) if found is not None else None

    def put(self, blob_id: int, data: bytes) -> None:
        self.state.updateValue((blob_id,), (data,))

    def remove(self, blob_id: int) -> None:
        self.state.removeKey((blob_id,))


class CellProcessor(StatefulProcessor):
    """Runs a cell for Spark. Results are rows with null metrics; each call adds one row of metrics with null results."""

    def __init__(self, panes: Panes, fingerprint: str, cache: ChunkCache | None) -> None:
        self.panes = panes
        self.fingerprint = fingerprint
        self.cache = cache

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.directory = handle.getValueState("directory", "data binary")
        self.chunks = handle.getMapState("chunks", "id long", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Any]:
        deltas = [
            Delta(int(slice_id), int(tuples), int(count), data if data is None else bytes(data))
            for frame in rows
            for slice_id, tuples, count, data in zip(
                frame["slice"], frame["tuples"], frame["rows"], frame["data"], strict=True
            )
        ]
        cell = self._cell()
        yield from self._results(cell, cell.receive(deltas, watermark_us(timerValues)))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        cell = self._cell()
        cell.log.directory.timer_ms = None
        yield from self._results(cell, cell.advance(watermark_us(timerValues)))

    def close(self) -> None:
        pass

    def _cell(self) -> Cell:
        stored = self.directory.get()
        if stored is None:
            directory = Directory(self.fingerprint)
        else:
            directory = Directory.decode(bytes(stored[0]))
            check(directory.fingerprint, self.fingerprint, "the checkpoint")
        log = SliceLog(directory, MapBlobs(self.chunks), self.cache, self.panes.merge_chunks)
        return Cell(self.panes, log)

    def _results(self, cell: Cell, results: Iterator[pa.Table]) -> Iterator[pd.DataFrame]:
        held: pa.Table | None = None
        for table in results:
            if held is not None:
                yield frame(held)
            held = _widened(table)
        directory = cell.log.directory
        self._set_timer(directory, cell.next_due())
        self.directory.update((directory.encode(),))
        figures = [cell.late, directory.state_rows(), directory.state_bytes(), 1]
        metrics = self._metrics_row(figures)
        yield frame(metrics if held is None else pa.concat_tables([held, metrics]))

    def _set_timer(self, directory: Directory, due_us: int | None) -> None:
        wanted = None if due_us is None else timer_ms(due_us)
        if wanted == directory.timer_ms:
            return
        if directory.timer_ms is not None:
            self.handle.deleteTimer(directory.timer_ms)
        if wanted is not None:
            self.handle.registerTimer(wanted)
        directory.timer_ms = wanted

    def _metrics_row(self, figures: list[int]) -> pa.Table:
        nulls = [pa.nulls(1, field.type) for field in self.panes.node.schema]
        values = [pa.array([figure], pa.int64()) for figure in figures]
        return pa.table(nulls + values, schema=pa.schema([*self.panes.node.schema, *METRICS]))


def watermark_us(timer_values: TimerValues) -> int | None:
    """Our watermark: Spark's was asked to be 1 ms too long, and its 0 means that nothing is known yet."""
    milliseconds = timer_values.getCurrentWatermarkInMs()
    return (milliseconds + 1) * 1000 if milliseconds > 0 else None


def timer_ms(due_us: int) -> int:
    """When Spark's watermark shows that ours has reached a time; Spark's knows nothing before 1970."""
    return max(-(-due_us // 1000) - 1, 1)


def frame(table: pa.Table) -> pd.DataFrame:
    """A pandas frame over Arrow memory; PySpark takes lists and structs only as Python objects."""
    return pd.DataFrame({name: _series(table.column(name)) for name in table.column_names})


def _series(column: pa.ChunkedArray) -> pd.Series[Any]:
    if pa.types.is_nested(column.type):
        return pd.Series(column.to_pylist(), dtype=object)
    return pd.Series(pd.arrays.ArrowExtensionArray(column.combine_chunks()))


def _widened(table: pa.Table) -> pa.Table:
    nulls = [pa.nulls(table.num_rows, field.type) for field in METRICS]
    return pa.table(table.columns + nulls, schema=pa.schema([*table.schema, *METRICS]))
