"""The side of a stateful step before the exchange: Arrow batches of tuples in, packed deltas out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.cell import Delta
from tidegate.operators.combine import Combiner
from tidegate.operators.memory import keep_memory
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import Stateless, apply_stateless
from tidegate.query.schema import conform
from tidegate.runtime.spark.control import COLUMN
from tidegate.state.slice_log import Piece

SCHEMA = "cell int, low long, high long, rows long, data binary, tuples binary, made boolean, control string"
_ARROW = pa.schema(
    [("cell", pa.int32())]
    + [(name, pa.int64()) for name in ("low", "high", "rows")]
    + [(name, pa.binary()) for name in ("data", "tuples")]
    + [("made", pa.bool_()), ("control", pa.string())]
)
COLUMNS = tuple(_ARROW.names[1:])
"""The columns of an encoded delta, and in the last one what the control stream says instead."""


def encode_delta(delta: Delta) -> tuple[Any, ...]:
    """A delta as the values of a row, without its cell."""
    piece = delta.piece
    if piece is None:
        return None, None, None, None, np.array(delta.tuples, np.int64).tobytes(), delta.made
    return piece.low, piece.high, piece.rows, piece.data, None, delta.made


def decode_delta(low: Any, high: Any, rows: Any, data: bytes | None, tuples: bytes | None, made: Any) -> Delta:
    """The delta of a row's values."""
    if data is not None:
        return Delta(Piece(int(low), int(high), int(rows), bytes(data)), made=bool(made))
    counts = np.frombuffer(tuples or b"", np.int64).reshape(-1, 2).tolist()
    return Delta(None, tuple((slice_id, count) for slice_id, count in counts), bool(made))


@dataclass(frozen=True)
class CombineStage:
    """The function that `mapInArrow` runs: the steps fused into the kernel, then the combiner.

    ``columns`` is the schema of the tuples that arrive, ``made`` whether a stateful step makes them; ``keys`` are the group
    keys of the cells.
    """

    columns: pa.Schema
    steps: tuple[Stateless, ...]
    panes: Panes
    keys: tuple[int, ...]
    made: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_memory()
        combiner = Combiner(self.panes, len(self.keys), self._tuples)
        for cell, delta in combiner.deltas(pa.Table.from_batches([batch]) for batch in batches):
            row = (self.keys[cell], *encode_delta(replace(delta, made=self.made)), None)
            columns = [pa.array([value], kind) for value, kind in zip(row, _ARROW.types, strict=True)]
            yield pa.record_batch(columns, schema=_ARROW)

    def _tuples(self, table: pa.Table) -> pa.Table:
        """The tuples of what arrives: without control rows, after the fused steps."""
        if COLUMN in table.column_names and table.column(COLUMN).null_count < table.num_rows:
            table = table.filter(pc.is_null(table.column(COLUMN)))
        table = conform(table, self.columns)
        for step in self.steps:
            table = apply_stateless(step, table)
        return table
