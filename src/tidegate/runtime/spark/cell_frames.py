"""A cell behind the exchange: frames of deltas in, frames of results and metrics out, state in Spark's store.

The cell's directory is one value; its chunks are entries of a map; nothing is ever iterated. Instances are threads that
live as long as a call; Spark's state is touched by the thread that Spark calls on, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, TimerValues, ValueState

from tidegate.operators.cell_logic import CellLogic, OpenCell
from tidegate.operators.exchange import Delta
from tidegate.operators.instances import Instances
from tidegate.query.event_time import AFTER_LATEST_US
from tidegate.runtime.spark.control import for_cells
from tidegate.runtime.spark.delta_rows import COLUMNS, decode_delta
from tidegate.runtime.spark.fingerprint import check
from tidegate.runtime.spark.outward import Metrics, Outward
from tidegate.state.cache import ChunkCache
from tidegate.state.chunks import Asked, ChunkStore, Directory
from tidegate.watermark import END, START, Watermark


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


@dataclass(frozen=True, slots=True)
class Store:
    """The cell at hand, by its group key, and what Spark keeps for it."""

    key: int
    handle: StatefulProcessorHandle
    directory: ValueState
    chunks: MapState


@dataclass(frozen=True, slots=True)
class CellFrames:
    """Runs a cell for Spark; results and metrics leave as `Outward` says, and each call adds one row of metrics.

    A cell runs ``instances`` until the control stream asks for another number. That holds for the ``run`` in which it was
    asked for: it is kept with the state only because a batch may be run by any worker.
    """

    logic: CellLogic
    fingerprint: str
    cache: ChunkCache | None
    keys: tuple[int, ...]
    instances: int
    run: str

    def receive(self, store: Store, rows: Iterator[Any], timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        """Take the rows of a batch."""
        deltas: list[Delta] = []
        messages: list[str] = []
        for frame in rows:
            for *delta, message in zip(*(frame[name] for name in COLUMNS), strict=True):
                if isinstance(message, str):
                    messages.append(message)
                else:
                    deltas.append(decode_delta(*delta))
        # Rows come in any order; attempts of a batch are to do the same.
        deltas.sort(key=_order)
        directory = self._directory(store)
        wanted = for_cells(messages)
        if wanted is not None:
            directory.asked = Asked(self.run, wanted.number)
        with self._instances(directory) as instances:
            chunks = ChunkStore(directory, MapBlobs(store.chunks), self.cache)
            cell = self.logic.open(self.keys.index(store.key), chunks, instances)
            results = cell.receive(deltas, watermark_of(timer_values))
            yield from self._results(store, chunks, instances, cell, results)

    def advance(self, store: Store, timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        """Do what the timer was set for."""
        directory = self._directory(store)
        directory.timer_ms = None
        with self._instances(directory) as instances:
            chunks = ChunkStore(directory, MapBlobs(store.chunks), self.cache)
            cell = self.logic.open(self.keys.index(store.key), chunks, instances)
            results = cell.advance(watermark_of(timer_values))
            yield from self._results(store, chunks, instances, cell, results)

    def _directory(self, store: Store) -> Directory:
        stored = store.directory.get()
        if stored is None:
            return Directory(self.fingerprint)
        directory = Directory.decode(bytes(stored[0]))
        check(directory.fingerprint, self.fingerprint, "the checkpoint")
        return directory

    def _instances(self, directory: Directory) -> Instances:
        asked = directory.asked
        return Instances(asked.instances if asked is not None and asked.run == self.run else self.instances)

    def _results(
        self,
        store: Store,
        chunks: ChunkStore,
        instances: Instances,
        cell: OpenCell,
        results: Iterator[pa.Table],
    ) -> Iterator[pd.DataFrame]:
        directory = chunks.directory
        way = Outward(self.logic.schema, self.logic.time)
        for table in results:
            yield from way.results(table)
        _set_timer(store, directory, cell.next_due())
        store.directory.update((directory.encode(),))
        yield way.metrics(
            Metrics(
                cell=self.keys.index(store.key),
                late=cell.late,
                state_rows=directory.state_rows(),
                state_bytes=directory.state_bytes(),
                instances=instances.number,
                busy_ms=round(1000 * instances.busy_seconds),
                damaged=chunks.damaged,
            )
        )


def _order(delta: Delta) -> tuple[object, ...]:
    piece = delta.piece
    if piece is None:
        return delta.side, delta.derived, 0, delta.tuples
    return delta.side, delta.derived, 1, piece.low, piece.high, piece.rows, piece.data


def _set_timer(store: Store, directory: Directory, due: Watermark | None) -> None:
    wanted = None if due is None else timer_ms(due)
    if wanted == directory.timer_ms:
        return
    if directory.timer_ms is not None:
        store.handle.deleteTimer(directory.timer_ms)
    if wanted is not None:
        store.handle.registerTimer(wanted)
    directory.timer_ms = wanted


def watermark_of(timer_values: TimerValues) -> Watermark:
    """Our watermark: Spark's was asked to be 1 ms too long, is 0 if nothing is known, and past all times at the end."""
    milliseconds = timer_values.getCurrentWatermarkInMs()
    if milliseconds <= 0:
        return START
    reached = (milliseconds + 1) * 1000
    return reached if reached < AFTER_LATEST_US else END


def timer_ms(due: Watermark) -> int:
    """When Spark's watermark shows that ours has come so far; Spark's knows nothing before 1970."""
    return max(-(-min(due, AFTER_LATEST_US) // 1000) - 1, 1)
