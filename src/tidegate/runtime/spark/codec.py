"""Rows that cross the exchange of a stateful step: deltas to cells, and results and metrics back.

PySpark takes the output of cells as pandas frames. Scalar columns pass through them untouched, over Arrow memory. Lists and
structs would become Python objects, and NaN in them null, so results with such columns travel packed, as encoded tables in
one binary column, and are unpacked behind the step. Metrics are rows of the same schema, told apart by their column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.operators.exchange import Delta
from tidegate.query.schema import TIME, conform, contiguous
from tidegate.runtime.spark.types import spark_schema
from tidegate.state import chunks
from tidegate.state.chunks import Piece

DELTA_ROWS = pa.schema(
    [("cell", pa.int32())]
    + [(name, pa.int64()) for name in ("low", "high", "rows")]
    + [(name, pa.binary()) for name in ("data", "tuples")]
    + [("derived", pa.bool_()), ("side", pa.int32()), ("control", pa.string())]
)
"""The group key of a cell, an encoded delta, and in the last column what the control stream says instead."""
COLUMNS = tuple(DELTA_ROWS.names[1:])
METRICS = "__tg_metrics"
PACKED = "__tg_packed"
OBSERVED = "tidegate:"
"""What the names of observed metrics begin with; the number and the name of the stateful step follow."""
ROWS_PER_PACK = 65_536
ROWS_PER_FRAME = 262_144  # Spark writes one frame while the next is built
_MASK = 0xFFFFFFFF


def cell_keys(cells: int) -> tuple[int, ...]:
    """For each cell p the smallest integer that Spark places on partition p of ``cells``: ``pmod(murmur3(k), cells)``.

    >>> cell_keys(2)
    (2, 0)
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < cells:
        found.setdefault(murmur3(candidate) % cells, candidate)
        candidate += 1
    return tuple(found[cell] for cell in range(cells))


def murmur3(value: int, seed: int = 42) -> int:
    """Spark's 32-bit Murmur3 hash of an int, signed."""
    k = _rotate(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(seed ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def delta_row(key: int, delta: Delta) -> pa.RecordBatch:
    """Encodes a delta as a row for the cell with a group key."""
    piece = delta.piece
    if piece is None:
        encoded: tuple[Any, ...] = (None, None, None, None, np.array(delta.tuples, np.int64).tobytes())
    else:
        encoded = (piece.low, piece.high, piece.rows, piece.data, None)
    row = (key, *encoded, delta.derived, delta.side, None)
    arrays = [pa.array([value], kind) for value, kind in zip(row, DELTA_ROWS.types, strict=True)]
    return pa.record_batch(arrays, DELTA_ROWS)


def decode_delta(
    low: Any, high: Any, rows: Any, data: bytes | None, tuples: bytes | None, derived: Any, side: Any
) -> Delta:
    """Decodes the values of a row."""
    if data is not None:
        return Delta(Piece(int(low), int(high), int(rows), bytes(data)), derived=bool(derived), side=int(side))
    counts = np.frombuffer(tuples or b"", np.int64).reshape(-1, 2).tolist()
    return Delta(None, tuple((place, count) for place, count in counts), bool(derived), int(side))


@dataclass(frozen=True, slots=True)
class CellMetrics:
    """What a cell reports of a batch.

    ``busy_ms`` is how long its instances worked, added up; ``damaged`` counts files of the chunk cache that held something
    else than was put there.
    """

    cell: int
    late: int
    state_rows: int
    state_bytes: int
    instances: int
    busy_ms: int
    damaged: int
    cells: int = 1


@dataclass(frozen=True, slots=True)
class ResultCodec:
    """Encodes results of a schema, and metrics, as the rows that leave a stateful step, and decodes them behind it.

    Event time travels unpacked, since a later stateful step needs it, and with a zone, UTC: Spark's watermarks know no
    other times.
    """

    schema: pa.Schema
    time: str

    @property
    def packs(self) -> bool:
        """Whether results travel packed."""
        return any(pa.types.is_nested(kind) for kind in self.schema.types)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the encoded rows."""
        results = [pa.field(self.time, TIME) if field.name == self.time else field for field in self.schema]
        if self.packs:
            results = [pa.field(self.time, TIME), pa.field(PACKED, pa.binary())]
        return pa.schema([*results, pa.field(METRICS, pa.string())])

    def results(self, table: pa.Table) -> Iterator[pd.DataFrame]:
        """Encodes results."""
        if self.packs:
            parts = [table.slice(at, ROWS_PER_PACK) for at in range(0, table.num_rows, ROWS_PER_PACK)]
            times = pa.array([pc.min(part.column(self.time)) for part in parts], self.schema.field(self.time).type)
            packs = pa.array(map(chunks.encode, parts), pa.binary())
            yield self._frame([times.cast(TIME), packs, pa.nulls(len(packs), pa.string())])
        else:
            for at in range(0, table.num_rows, ROWS_PER_FRAME):
                part = conform(table.slice(at, ROWS_PER_FRAME), pa.schema(list(self.columns)[:-1]))
                yield self._frame([*part.columns, pa.nulls(part.num_rows, pa.string())])

    def metrics(self, metrics: CellMetrics) -> pd.DataFrame:
        """Encodes metrics."""
        nulls = [pa.nulls(1, field.type) for field in self.columns if field.name != METRICS]
        return self._frame([*nulls, pa.array([json.dumps(asdict(metrics))])])

    def decoded(self, df: DataFrame, step: str) -> DataFrame:
        """Decodes the results; the metrics go to the query's progress."""
        results = df.observe(f"{OBSERVED}{step}", *_observed()).where(F.col(METRICS).isNull()).drop(METRICS)
        if self.packs:
            return results.mapInArrow(unpack, spark_schema(self.schema))
        if self.schema.field(self.time).type == TIME:
            return results
        return results.withColumn(self.time, F.col(self.time).cast(spark_schema(self.schema)[self.time].dataType))

    def _frame(self, arrays: list[Any]) -> pd.DataFrame:
        columns = pa.table(arrays, schema=self.columns)
        return pd.DataFrame(
            {
                name: pd.Series(pd.arrays.ArrowExtensionArray(contiguous(columns.column(name))))
                for name in columns.column_names
            }
        )


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decodes packed results."""
    for batch in batches:
        for pack in batch.column(PACKED):
            yield from chunks.decode(pack.as_buffer()).to_batches()


def _observed() -> list[Column]:
    """What progress shows: sums over the cells that had something to do, and the figures of each of them."""
    figures = {each.name: F.get_json_object(METRICS, f"$.{each.name}").cast("long") for each in fields(CellMetrics)}
    sums = [F.sum(figures[name]).alias(name) for name in figures if name != "cell"]
    of_each = F.struct(*(figures[name].alias(name) for name in ("cell", "instances", "busy_ms")))
    return [*sums, F.sort_array(F.collect_list(F.when(F.col(METRICS).isNotNull(), of_each))).alias("by_cell")]
