"""How results leave the last stage of a query: as rows for Spark, or as parts of a folder that workers write themselves.

Spark makes rows of what a worker sends it and columns of these rows again before they are written, one after the other; for
millions of results that takes several times as long as computing them. A part that the worker writes costs Spark one row.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.query.schema import conform
from tidegate.results import PartWriter
from tidegate.runtime.spark.codec import METRICS

ROWS_PER_BATCH = 65_536
ROWS_PER_GROUP = 131_072
PART_COLUMNS = pa.schema([("part", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])
"""What is said of a part that a worker has written."""


@dataclass(frozen=True, slots=True)
class Output(ABC):
    """Where the results of a query, of a schema, go; metrics go with them, in rows of their own."""

    schema: pa.Schema

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows that leave the stage."""
        return self.row_schema.append(pa.field(METRICS, pa.string()))

    @property
    @abstractmethod
    def row_schema(self) -> pa.Schema:
        """The columns of the rows that leave the stage, without metrics."""

    @abstractmethod
    def emit(self, tables: Iterable[pa.Table], batch: int) -> Iterator[pa.RecordBatch]:
        """The rows that leave the stage for the results of a batch."""

    def metrics(self, told: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        """Metrics as one row."""
        nulls = [pa.nulls(1, kind) for kind in self.row_schema.types]
        yield pa.record_batch([*nulls, pa.array([json.dumps(list(told))])], self.columns)

    def _rows(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        rows = table.append_column(METRICS, pa.nulls(table.num_rows, pa.string()))
        yield from rows.combine_chunks().to_batches(max_chunksize=ROWS_PER_BATCH)


@dataclass(frozen=True, slots=True)
class RowOutput(Output):
    """Results as rows, for any sink of Spark."""

    @property
    def row_schema(self) -> pa.Schema:
        return self.schema

    def emit(self, tables: Iterable[pa.Table], batch: int) -> Iterator[pa.RecordBatch]:
        for table in tables:
            yield from self._rows(conform(table, self.schema))


@dataclass(frozen=True, slots=True)
class PartOutput(Output):
    """Results as parquet parts of a folder; a row for each part tells the driver, which lists it (`part_log`).

    Attempts of a batch write parts of different names, and the parts of the attempt that Spark takes are listed.
    """

    folder: str

    @property
    def row_schema(self) -> pa.Schema:
        return PART_COLUMNS

    def emit(self, tables: Iterable[pa.Table], batch: int) -> Iterator[pa.RecordBatch]:
        writer = PartWriter(Path(self.folder), "parquet", self.schema, label=f"{batch:010}-{uuid.uuid4().hex}-")
        try:
            for group in _gathered(conform(table, self.schema) for table in tables):
                writer.write(group)
            writer.close()
        finally:
            writer.discard()
        columns = zip(*((part.name, part.rows, part.bytes) for part in writer.written), strict=True)
        if writer.written:
            yield from self._rows(pa.table(list(map(list, columns)), schema=PART_COLUMNS))


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables of `ROWS_PER_GROUP` rows or more, but the last: each becomes a row group."""
    held: list[pa.Table] = []
    for table in tables:
        if table.num_rows:
            held.append(table)
            if sum(each.num_rows for each in held) >= ROWS_PER_GROUP:
                yield pa.concat_tables(held)
                held = []
    if held:
        yield pa.concat_tables(held)
