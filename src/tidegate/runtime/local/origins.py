"""Where tuples come from in this process: files, tables, iterables, and a generator that keeps to a schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import DataError, UnsupportedError
from tidegate.files import Files, json_records, json_table
from tidegate.query.nodes import Source
from tidegate.query.schema import conform


@dataclass(frozen=True, slots=True)
class Paced:
    """Batches that are due at given seconds after the start: an open-loop load, which does not wait for the query."""

    batches: Iterable[tuple[float, pa.RecordBatch]]

    def __iter__(self) -> Iterator[tuple[float, pa.RecordBatch]]:
        return iter(self.batches)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A promise: no tuple before this time, in microseconds since the epoch, is still due."""

    time: int


@dataclass(frozen=True, slots=True)
class Marked:
    """Batches, tables and dicts, and between them heartbeats: the watermark is what they say, and nothing else."""

    items: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch or a heartbeat, and when it was due by the clock of the run; None where nothing was scheduled."""

    what: pa.RecordBatch | Heartbeat
    due: float | None = None


def arrivals_of(source: Source, rows: int, clock: Callable[[], float] = time.monotonic) -> Iterator[Arrival]:
    """The batches of a source in their order, of at most ``rows`` rows where we cut them ourselves."""
    match source.origin:
        case pa.Table():
            yield from (Arrival(batch) for batch in conform(source.origin, source.schema).to_batches(rows))
        case Files():
            yield from (Arrival(batch) for batch in _files(source.origin, source.schema, rows))
        case Paced():
            yield from _paced(source.origin, source.schema, clock)
        case None:
            raise UnsupportedError(
                f"stream '{source.name}' has a schema and nothing to read; make it with files, an Arrow table or an "
                "iterable of batches"
            )
        case Iterable():
            yield from (Arrival(_item(source, item)) for item in source.origin)
        case _:
            raise UnsupportedError(
                f"stream '{source.name}' reads a {type(source.origin).__name__}, which cannot be read in this process; "
                "give files, an Arrow table or an iterable of batches, or run it on='spark'"
            )


def _paced(paced: Paced, schema: pa.Schema, clock: Callable[[], float]) -> Iterator[Arrival]:
    began = clock()
    for due, batch in paced:
        wait = began + due - clock()
        if wait > 0:
            time.sleep(wait)
        yield Arrival(_whole(conform(pa.Table.from_batches([batch]), schema)), began + due)


def _item(source: Source, item: Any) -> pa.RecordBatch | Heartbeat:
    """One item of an iterable: a batch, a table, a row as a mapping, or a heartbeat."""
    match item:
        case Heartbeat():
            return item
        case pa.RecordBatch():
            table = pa.Table.from_batches([item])
        case pa.Table():
            table = item
        case Mapping():
            table = pa.Table.from_pylist([dict(item)], schema=source.schema)
        case _:
            raise DataError(
                f"stream '{source.name}': an item of its iterable is {type(item).__name__}; give record batches, tables "
                "or dicts"
            )
    return _whole(conform(table, source.schema))


def _files(files: Files, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    for path in files.paths:
        match files.format:
            case "parquet":
                yield from _parquet(path, schema, rows)
            case _:
                yield from _json_lines(path, schema, rows)


def _parquet(path: str, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(rows, columns=schema.names):
                yield _whole(conform(pa.Table.from_batches([batch]), schema))
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path} does not hold rows of ({', '.join(schema.names)}): {error}") from error


def _json_lines(path: str, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    records = json_records(path)
    while held := list(islice(records, rows)):
        try:
            yield _whole(conform(json_table(held, schema), schema))
        except (KeyError, pa.ArrowException) as error:
            raise DataError(f"{path} does not hold rows of ({', '.join(schema.names)}): {error}") from error


def _whole(table: pa.Table) -> pa.RecordBatch:
    """One batch of a table."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
