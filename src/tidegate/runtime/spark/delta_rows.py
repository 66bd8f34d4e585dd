"""Deltas as the rows that cross an exchange, and how tuples are taken in before they become deltas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.exchange import Delta
from tidegate.query.nodes import Stateless, apply_stateless
from tidegate.query.schema import conform
from tidegate.runtime.spark.control import COLUMN
from tidegate.state.chunks import Piece

SCHEMA = "cell int, low long, high long, rows long, data binary, tuples binary, made boolean, side int, control string"
_ARROW = pa.schema(
    [("cell", pa.int32())]
    + [(name, pa.int64()) for name in ("low", "high", "rows")]
    + [(name, pa.binary()) for name in ("data", "tuples")]
    + [("made", pa.bool_()), ("side", pa.int32()), ("control", pa.string())]
)
COLUMNS = tuple(_ARROW.names[1:])
"""The columns of an encoded delta, and in the last one what the control stream says instead."""


def delta_row(key: int, delta: Delta) -> pa.RecordBatch:
    """A delta as a row for the cell with a group key."""
    row = (key, *_encode(delta), None)
    return pa.record_batch([pa.array([value], kind) for value, kind in zip(row, _ARROW.types, strict=True)], _ARROW)


def decode_delta(
    low: Any, high: Any, rows: Any, data: bytes | None, tuples: bytes | None, derived: Any, side: Any
) -> Delta:
    """The delta of a row's values."""
    if data is not None:
        return Delta(Piece(int(low), int(high), int(rows), bytes(data)), derived=bool(derived), side=int(side))
    counts = np.frombuffer(tuples or b"", np.int64).reshape(-1, 2).tolist()
    return Delta(None, tuple((place, count) for place, count in counts), bool(derived), int(side))


def _encode(delta: Delta) -> tuple[Any, ...]:
    piece = delta.piece
    if piece is None:
        return None, None, None, None, np.array(delta.tuples, np.int64).tobytes(), delta.derived, delta.side
    return piece.low, piece.high, piece.rows, piece.data, None, delta.derived, delta.side


@dataclass(frozen=True, slots=True)
class Intake:
    """Makes tuples of what arrives from Spark: ``columns`` is what comes, ``steps`` are those fused into the kernel."""

    columns: pa.Schema
    steps: tuple[Stateless, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        """The tuples: without control rows, after the fused steps."""
        if COLUMN in table.column_names and table.column(COLUMN).null_count < table.num_rows:
            table = table.filter(pc.is_null(table.column(COLUMN)))
        table = conform(table, self.columns)
        for step in self.steps:
            table = apply_stateless(step, table)
        return table
