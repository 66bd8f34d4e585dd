"""The side of a stateful step before the exchange: Arrow batches of tuples in, packed deltas out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.combine import Combiner
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import Stateless, apply_stateless
from tidegate.query.schema import conform
from tidegate.runtime.spark.control import COLUMN

SCHEMA = "cell int, slice long, tuples long, rows long, data binary"
_ARROW = pa.schema(
    [("cell", pa.int32()), ("slice", pa.int64()), ("tuples", pa.int64()), ("rows", pa.int64()), ("data", pa.binary())]
)


@dataclass(frozen=True)
class CombineStage:
    """The function that `mapInArrow` runs: the steps fused into the kernel, then the combiner.

    ``columns`` is the schema of the tuples that arrive; ``keys`` are the group keys of the cells.
    """

    columns: pa.Schema
    steps: tuple[Stateless, ...]
    panes: Panes
    keys: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        combiner = Combiner(self.panes, len(self.keys), self._tuples)
        for cell, delta in combiner.deltas(pa.Table.from_batches([batch]) for batch in batches):
            row = [[self.keys[cell]], [delta.slice_id], [delta.tuples], [delta.rows], [delta.data]]
            yield pa.record_batch([pa.array(*pair) for pair in zip(row, _ARROW.types, strict=True)], schema=_ARROW)

    def _tuples(self, table: pa.Table) -> pa.Table:
        """The tuples of what arrives: without control rows, after the fused steps."""
        control = table.column(COLUMN)
        if control.null_count < len(control):
            table = table.filter(pc.is_null(control))
        table = conform(table, self.columns)
        for step in self.steps:
            table = apply_stateless(step, table)
        return table
