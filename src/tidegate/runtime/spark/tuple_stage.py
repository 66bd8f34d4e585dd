"""The side before the exchange of an operator that needs whole tuples: Arrow batches in, packed tuples out.

Tuples are routed to cells and travel in the order of their event time, as one encoded table per cell. A tuple that goes
to several cells is marked in one of them, its primary cell; of those that go to none, one cell gets the times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.operators.columns import as_numpy
from tidegate.operators.exchange import Delta, Router, regrouped, tuple_piece, with_primary
from tidegate.operators.memory import keep_memory
from tidegate.query.event_time import check_times
from tidegate.query.schema import conform, contiguous
from tidegate.runtime.spark.delta_rows import Intake, delta_row

ROWS_AT_ONCE = 65_536
MOST_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class TupleStage:
    """The function that `mapInArrow` runs: the steps fused into the kernel, then the deal.

    ``tuples`` are the columns that the operator reads, in its order; ``derived`` says that a stateful step makes them;
    ``keys`` are the group keys of the cells. Memory is bounded: past `MOST_BYTES` what was routed so far is sent on.
    """

    intake: Intake
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
            yield from self._take(conform(self.intake(table), self.tuples), waiting)
            if sum(part.nbytes for parts in waiting.values() for part in parts) > MOST_BYTES:
                yield from self._send(waiting)
        yield from self._send(waiting)

    def _take(self, tuples: pa.Table, waiting: dict[int, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
        """Deal some tuples; the times of those that go nowhere are sent at once."""
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
                told = tuple(zip(times.tolist(), counts.tolist(), strict=True))
                yield delta_row(self.keys[0], Delta(None, told, side=self.side))

    def _send(self, waiting: dict[int, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
        for cell in sorted(waiting):
            piece = tuple_piece(pa.concat_tables(waiting[cell]), self.time)
            yield delta_row(self.keys[cell], Delta(piece, derived=self.derived, side=self.side))
        waiting.clear()
