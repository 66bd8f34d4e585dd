"""What runs in Python workers: a stateful step before its exchange, and its cells behind it.

Before the exchange Arrow batches become encoded deltas, one or more for each cell: panes of aggregates, or whole tuples in
the order of their event time. A tuple that goes to several cells is marked in one of them, its primary cell; of those that
go to none, one cell gets the times.

Behind it a cell takes frames of deltas and gives frames of results and metrics. Its state is in Spark's store: its directory
is one value, its chunks are entries of a map, nothing is ever iterated. Instances are threads that live as long as a call;
Spark's state is touched by the thread that Spark calls on, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, TimerValues, ValueState

from tidegate.errors import DataError
from tidegate.operators.cells import CellLogic, Instances, OpenCell, keep_memory
from tidegate.operators.columns import as_numpy
from tidegate.operators.exchange import Combiner, Delta, Router, regrouped, tuple_piece, with_primary
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.event_time import AFTER_LATEST_US, check_times
from tidegate.query.nodes import Stateless, apply_stateless
from tidegate.query.schema import conform, contiguous
from tidegate.runtime.spark.checkpoint import check_fingerprint
from tidegate.runtime.spark.codec import COLUMNS, CellMetrics, ResultCodec, decode_delta, delta_row
from tidegate.runtime.spark.control import CONTROL, for_cells
from tidegate.state.cache import ChunkCache
from tidegate.state.chunks import Asked, ChunkStore, Directory
from tidegate.watermark import END, START, Watermark

ROWS_AT_ONCE = 65_536
MOST_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class FusedSteps:
    """Converts what comes from Spark, of the given ``columns``, to tuples: runs the ``steps`` fused into the kernel."""

    columns: pa.Schema
    steps: tuple[Stateless, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        """The tuples: without control rows, after the fused steps."""
        if CONTROL in table.column_names and table.column(CONTROL).null_count < table.num_rows:
            table = table.filter(pc.is_null(table.column(CONTROL)))
        table = conform(table, self.columns)
        for step in self.steps:
            table = apply_stateless(step, table)
        return table

    def on_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function that `mapInArrow` runs where Python steps are not before an exchange."""
        for batch in batches:
            yield from self(pa.Table.from_batches([batch])).to_batches()


@dataclass(frozen=True)
class CombineStage:
    """The function that `mapInArrow` runs before the exchange of an aggregate: fused steps, then the combiner.

    ``derived`` says that the tuples come from a stateful step; ``keys`` are the group keys of the cells.
    """

    fused: FusedSteps
    panes: Panes
    keys: tuple[int, ...]
    derived: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_memory()
        combiner = Combiner(self.panes, len(self.keys), self._tuples)
        for cell, delta in combiner.deltas(pa.Table.from_batches([batch]) for batch in batches):
            yield delta_row(self.keys[cell], replace(delta, derived=self.derived))

    def _tuples(self, table: pa.Table) -> pa.Table:
        tuples = self.fused(table)
        if not self.derived:
            node = self.panes.node
            check_times(self.panes.times(tuples), f"step '{node.name}'", node.time)
        return tuples


@dataclass(frozen=True)
class TupleStage:
    """The function that `mapInArrow` runs before the exchange of an operator that needs whole tuples: fused steps, router.

    ``tuples`` are the columns that the operator reads, in its order; ``derived`` says that they come from a stateful step;
    ``keys`` are the group keys of the cells. Memory is bounded: past `MOST_BYTES` what was routed so far is sent on.
    """

    fused: FusedSteps
    tuples: pa.Schema
    step: str
    time: str
    side: int
    router: Router
    keys: tuple[int, ...]
    derived: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_memory()
        waiting: dict[int, list[pa.Table]] = {}
        for table in regrouped((pa.Table.from_batches([batch]) for batch in batches), ROWS_AT_ONCE):
            yield from self._route(conform(self.fused(table), self.tuples), waiting)
            if sum(part.nbytes for parts in waiting.values() for part in parts) > MOST_BYTES:
                yield from self._send(waiting)
        yield from self._send(waiting)

    def _route(self, tuples: pa.Table, waiting: dict[int, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
        """Routes some tuples; the times of those that go nowhere are sent at once."""
        column = contiguous(tuples.column(self.time))
        if column.null_count:
            raise DataError(
                f"step '{self.step}': {column.null_count} tuples have no event time in '{self.time}'; filter them out "
                "before"
            )
        if not self.derived:
            check_times(as_numpy(column), f"step '{self.step}'", self.time)
        routing = self.router(tuples)
        for cell in np.unique(routing.cells).tolist():
            mine = routing.cells == cell
            part = tuples.take(pa.array(routing.rows[mine]))
            waiting.setdefault(cell, []).append(part if self.derived else with_primary(part, routing.primary[mine]))
        if not self.derived:
            nowhere = np.ones(tuples.num_rows, np.bool_)
            nowhere[routing.rows] = False
            if nowhere.any():
                times, counts = np.unique(as_numpy(column)[nowhere], return_counts=True)
                by_time = tuple(zip(times.tolist(), counts.tolist(), strict=True))
                yield delta_row(self.keys[0], Delta(None, by_time, side=self.side))

    def _send(self, waiting: dict[int, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
        for cell in sorted(waiting):
            piece = tuple_piece(pa.concat_tables(waiting[cell]), self.time)
            yield delta_row(self.keys[cell], Delta(piece, derived=self.derived, side=self.side))
        waiting.clear()


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
class CellState:
    """A cell by its group key, and what Spark keeps for it."""

    key: int
    handle: StatefulProcessorHandle
    directory: ValueState
    chunks: MapState


@dataclass(frozen=True, slots=True)
class CellFrames:
    """Runs the cells of a step for Spark; each call gives results and one row of metrics.

    A cell runs ``instances`` until the control stream asks for another number. That holds for the ``run`` in which it was
    asked for: it is kept with the state only because a batch may be run by any worker.
    """

    logic: CellLogic
    fingerprint: str
    cache: ChunkCache | None
    keys: tuple[int, ...]
    instances: int
    run: str

    def receive(self, state: CellState, rows: Iterator[Any], timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        """Adds the rows of a batch to a cell."""
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
        directory = self._directory(state)
        wanted = for_cells(messages)
        if wanted is not None:
            directory.asked = Asked(self.run, wanted.number)
        return self._run(state, directory, lambda cell: cell.receive(deltas, watermark_of(timer_values)))

    def advance(self, state: CellState, timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        """Advances a cell whose timer has expired to the watermark."""
        directory = self._directory(state)
        directory.timer_ms = None
        return self._run(state, directory, lambda cell: cell.advance(watermark_of(timer_values)))

    def _directory(self, state: CellState) -> Directory:
        stored = state.directory.get()
        if stored is None:
            return Directory(self.fingerprint)
        directory = Directory.decode(bytes(stored[0]))
        check_fingerprint(directory.fingerprint, self.fingerprint, "the checkpoint")
        return directory

    def _run(
        self, state: CellState, directory: Directory, work: Callable[[OpenCell], Iterator[pa.Table]]
    ) -> Iterator[pd.DataFrame]:
        asked, number = directory.asked, self.keys.index(state.key)
        codec = ResultCodec(self.logic.schema, self.logic.time)
        chunks = ChunkStore(directory, MapBlobs(state.chunks), self.cache)
        with Instances(asked.instances if asked is not None and asked.run == self.run else self.instances) as instances:
            cell = self.logic.open(number, chunks, instances)
            for table in work(cell):
                yield from codec.results(table)
            _set_timer(state, directory, cell.next_due())
            state.directory.update((directory.encode(),))
            yield codec.metrics(
                CellMetrics(
                    cell=number,
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


def _set_timer(state: CellState, directory: Directory, due: Watermark | None) -> None:
    wanted = None if due is None else timer_ms(due)
    if wanted == directory.timer_ms:
        return
    if directory.timer_ms is not None:
        state.handle.deleteTimer(directory.timer_ms)
    if wanted is not None:
        state.handle.registerTimer(wanted)
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
