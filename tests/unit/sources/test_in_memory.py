"""Tables, DataFrames of other libraries, readers of record batches and asynchronous iterables as sources."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import QueryError

TABLE = pa.table({"ts": pa.array([1, 2, 13], pa.timestamp("us")), "k": ["a", "b", "a"]})
SCHEMA = {"ts": pa.timestamp("us"), "k": pa.string()}


def counted(origin: Any, **named: Any) -> list[tuple[str, int]]:
    counts = tg.stream(origin, time="ts", **named).key_by("k").window("10us").aggregate(n=tg.count())
    return sorted((row["k"], row["n"]) for table in tg.start(counts) for row in table.to_pylist())


@pytest.mark.parametrize(
    "frame",
    [TABLE, TABLE.to_batches()[0], pl.from_arrow(TABLE), TABLE.to_pandas(), TABLE.to_pandas().iloc[::1]],
    ids=["arrow table", "arrow batch", "polars", "pandas", "pandas view"],
)
def test_a_dataframe_is_a_source(frame: Any) -> None:
    assert counted(frame) == [("a", 1), ("a", 1), ("b", 1)]
    stream = tg.stream(frame, time="ts")
    assert stream.schema.names == ["ts", "k"]


def test_rows_of_pandas_that_were_picked_have_no_column_of_their_numbers() -> None:
    picked = TABLE.to_pandas()
    picked = picked[picked["k"] == "a"]
    assert not isinstance(picked.index, pd.RangeIndex)
    assert tg.stream(picked, time="ts").schema.names == ["ts", "k"]


def test_a_relation_of_duckdb_is_a_source() -> None:
    relation = duckdb.sql("select make_timestamp(i) as ts, 'k' || i % 2 as k from range(5) t(i)")
    assert counted(relation) == [("k0", 3), ("k1", 2)]


def test_a_reader_of_record_batches_is_read_once() -> None:
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=2))
    stream = tg.stream(reader, time="ts")
    counts = stream.key_by("k").window("10us").aggregate(n=tg.count())
    assert sum(table.num_rows for table in tg.start(counts)) == 3
    with pytest.raises(QueryError, match="gives its items once"):
        tg.start(counts)


async def _items(ended: threading.Event | None = None) -> AsyncIterator[Any]:
    try:
        for row in TABLE.to_pylist():
            await asyncio.sleep(0.001)
            yield row
    finally:
        if ended is not None:
            ended.set()


class _Rows:
    """Asynchronous, and can be read as often as wanted."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return _items()


@pytest.mark.parametrize("items", [_items, _items(), _Rows()], ids=["function", "generator", "iterable"])
def test_an_asynchronous_iterable_is_a_source(items: Any) -> None:
    assert counted(items, schema=SCHEMA) == [("a", 1), ("a", 1), ("b", 1)]


def test_an_asynchronous_generator_is_read_once() -> None:
    stream = tg.stream(_items(), time="ts", schema=SCHEMA)
    counts = stream.key_by("k").window("10us").aggregate(n=tg.count())
    assert sum(table.num_rows for table in tg.start(counts)) == 3
    with pytest.raises(QueryError, match="gives its items once"):
        tg.start(counts)


def test_an_asynchronous_generator_that_fails_names_its_stream() -> None:
    async def failing() -> AsyncIterator[Any]:
        yield {"ts": 1, "k": "a"}
        raise OSError("the line is down")

    with pytest.raises(OSError, match="the line is down") as raised:
        counted(failing, schema=SCHEMA, name="feed")
    assert any("stream 'feed', after 1 items" in note for note in raised.value.__notes__)


def test_an_asynchronous_generator_is_closed_when_a_run_is_cancelled() -> None:
    ended = threading.Event()

    async def endless() -> AsyncIterator[Any]:
        try:
            at = 0
            while True:
                await asyncio.sleep(0.001)
                yield {"ts": (at := at + 1), "k": "a"}
        finally:
            ended.set()

    counts = tg.stream(endless, time="ts", schema=SCHEMA).key_by("k").window("10us").aggregate(n=tg.count())
    job = tg.start(counts)
    next(iter(job))
    job.cancel()
    assert ended.wait(10)
