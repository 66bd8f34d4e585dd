"""How results leave the last stage of a query: as rows for Spark, or as parts of a folder that workers write themselves.

Spark makes rows of what a worker sends it and columns of these rows again before they are written, one after the other; for
millions of results that takes several times as long as computing them. A part that the worker writes costs Spark one row.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.query.outputs import in_column
from tidegate.query.schema import conform
from tidegate.results import PartWriter, result_folder
from tidegate.runtime.spark.codec import METRICS

ROWS_PER_BATCH = 65_536
ROWS_PER_GROUP = 131_072
PART_COLUMNS = pa.schema([("output", pa.int32()), ("part", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])
"""What is said of a part that a worker has written: which result of the query it belongs to, its name and its size."""


Results = Iterable[tuple[int, pa.Table]]
"""Tables of results, each after the number of the result of the query that it belongs to; 0 if there is one."""


@dataclass(frozen=True, slots=True)
class Output(ABC):
    """Where the results of a query go; metrics go with them, in rows of their own.

    ``schema`` are the columns of the result. Of several it has one column for each, a struct of that result's columns.
    """

    schema: pa.Schema
    names: tuple[str, ...] = field(default=(), kw_only=True)
    """The names of several results."""

    @property
    def schemas(self) -> list[pa.Schema]:
        """The columns of each result."""
        return [pa.schema(list(each.type)) for each in self.schema] if self.names else [self.schema]

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows that leave the stage."""
        return self.row_schema.append(pa.field(METRICS, pa.string()))

    @property
    @abstractmethod
    def row_schema(self) -> pa.Schema:
        """The columns of the rows that leave the stage, without metrics."""

    @abstractmethod
    def emit(self, results: Results, batch: int) -> Iterator[pa.RecordBatch]:
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
    """Results as rows, for any sink of Spark; those of several in columns of structs, of which one is not null."""

    @property
    def row_schema(self) -> pa.Schema:
        return self.schema

    def emit(self, results: Results, batch: int) -> Iterator[pa.RecordBatch]:
        schemas = self.schemas
        for number, table in results:
            table = conform(table, schemas[number])
            yield from self._rows(in_column(self.schema, number, table) if self.names else table)


@dataclass(frozen=True, slots=True)
class PartOutput(Output):
    """Results as parts of a folder, or of a folder in it for each of several; a row for each part tells the driver of it.

    The driver lists it (`part_log`). Attempts of a batch write parts of different names, and the parts of the attempt that
    Spark takes are listed.
    """

    folder: str
    format: str = "parquet"

    @property
    def row_schema(self) -> pa.Schema:
        return PART_COLUMNS

    def emit(self, results: Results, batch: int) -> Iterator[pa.RecordBatch]:
        label = f"{batch:010}-{uuid.uuid4().hex}-"
        folders = [result_folder(Path(self.folder), name) for name in self.names or (None,)]
        writers = [
            PartWriter(folder, self.format, schema, label=label)
            for folder, schema in zip(folders, self.schemas, strict=True)
        ]
        try:
            for number, group in _gathered(results):
                writers[number].write(conform(group, writers[number].schema))
            for writer in writers:
                writer.close()
        finally:
            for writer in writers:
                writer.discard()
        rows = [
            (number, part.name, part.rows, part.bytes)
            for number, writer in enumerate(writers)
            for part in writer.written
        ]
        if rows:
            yield from self._rows(pa.table(list(map(list, zip(*rows, strict=True))), schema=PART_COLUMNS))


def _gathered(results: Results) -> Iterator[tuple[int, pa.Table]]:
    """For each result tables of `ROWS_PER_GROUP` rows or more, but the last: each becomes a row group."""
    held: dict[int, list[pa.Table]] = {}
    for number, table in results:
        if table.num_rows:
            mine = held.setdefault(number, [])
            mine.append(table)
            if sum(each.num_rows for each in mine) >= ROWS_PER_GROUP:
                yield number, pa.concat_tables(held.pop(number))
    for number, mine in held.items():
        yield number, pa.concat_tables(mine)
