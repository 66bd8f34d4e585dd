"""Encoded tuples as they cross an exchange and wait in a cell: in the order of their event time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import as_numpy
from tidegate.operators.delta import Delta
from tidegate.query.schema import contiguous
from tidegate.state import chunks
from tidegate.state.chunk_store import Piece
from tidegate.watermark import Watermark

Array = np.ndarray[Any, Any]
PRIMARY = "__tg_primary"
"""The column that marks the tuples which are counted in this cell; without it all are."""


def with_primary(tuples: pa.Table, primary: Array) -> pa.Table:
    """Tuples with the mark."""
    return tuples.append_column(PRIMARY, pa.array(primary))


def tuple_piece(tuples: pa.Table, time: str) -> Piece:
    """Encode tuples, at least one, in the order of their time."""
    tuples = tuples.combine_chunks()
    times = times_of(tuples, time)
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        tuples, times = tuples.take(pa.array(order)), times[order]
    if (
        PRIMARY in tuples.column_names
        and np.asarray(contiguous(tuples.column(PRIMARY)).to_numpy(zero_copy_only=False)).all()
    ):
        tuples = tuples.drop_columns([PRIMARY])
    return Piece(int(times[0]), int(times[-1]), len(times), chunks.encode(tuples))


def times_of(tuples: pa.Table, time: str) -> Array:
    """The event times of tuples in microseconds."""
    return as_numpy(contiguous(tuples.column(time)), pa.int64())


def without_late(delta: Delta, time: str, watermark: Watermark) -> tuple[Piece | None, int]:
    """A source's delta without the tuples before a watermark and without marks, and how many of those count here."""
    late = sum(count for at, count in delta.tuples if at < watermark)
    piece = delta.piece
    if piece is None:
        return None, late
    tuples = chunks.decode(piece.data)
    marked = PRIMARY in tuples.column_names
    cut = 0 if piece.low >= watermark else int(np.searchsorted(times_of(tuples, time), watermark))
    if cut == 0 and not marked:
        return piece, late
    if marked:
        primary = np.asarray(contiguous(tuples.column(PRIMARY)).to_numpy(zero_copy_only=False))
        late, tuples = late + int(np.count_nonzero(primary[:cut])), tuples.drop_columns([PRIMARY])
    else:
        late += cut
    kept = tuples.slice(cut)
    return tuple_piece(kept, time) if kept.num_rows else None, late
