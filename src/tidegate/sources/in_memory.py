"""Tables and iterables as sources; and iterables that say when each item is due, or how far event time has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from inspect import GEN_CLOSED, getgeneratorstate, isgenerator
from typing import Any, TypeAlias

import pyarrow as pa

from tidegate.errors import DataError, QueryError
from tidegate.query.advice import advised
from tidegate.query.event_time import Duration, in_microseconds, parse_duration
from tidegate.query.schema import fitting
from tidegate.sources import PlacedBatch, Rejects, RowPlace
from tidegate.sources.standard_input import StandardInput


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """The rows of an Arrow table, in their order."""

    table: pa.Table
    name: str = "table"

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def batches(self, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None = None) -> Iterator[PlacedBatch]:
        place = RowPlace(None, "row", 0)
        for batch in fitting(self.table, schema, f"stream '{rejects.stream}'").to_batches(rows):
            yield PlacedBatch(batch, place)
            place = place.after(batch.num_rows)


def is_dataframe(given: Any) -> bool:
    """Whether an object is a table or DataFrame that Arrow can read whole, as often as wanted."""
    of_spark = type(given).__module__.startswith("pyspark.")
    one_shot = isinstance(given, pa.RecordBatchReader | pa.ChunkedArray)
    return hasattr(given, "__arrow_c_stream__") and not of_spark and not one_shot


def as_table(given: Any) -> pa.Table:
    """A table or DataFrame of any library as an Arrow table; an index of pandas that holds numbers of rows is left out."""
    if isinstance(given, pa.Table):
        return given
    table = pa.table(given)
    unnamed = [name for name in table.column_names if name == "__index_level_0__"]
    return table.drop_columns(unnamed).replace_schema_metadata(None)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A promise: no tuple before this time, in microseconds since the epoch, is still due."""

    time: int


@dataclass(slots=True, eq=False)
class OneShotIterator:
    """A generator or another iterator, which gives its items once: read a second time it would give nothing."""

    items: Iterator[Any]
    _read: bool = False

    @property
    def is_read(self) -> bool:
        """Whether its items are gone."""
        return self._read or (isgenerator(self.items) and getgeneratorstate(self.items) == GEN_CLOSED)

    def __iter__(self) -> Iterator[Any]:
        self._read = True
        return self.items


@dataclass(frozen=True, slots=True)
class IteratorFunction:
    """A function that gives the items anew each time that they are read."""

    function: Callable[[], Iterable[Any] | AsyncIterable[Any]]

    def __iter__(self) -> Iterator[Any]:
        items = self.function()
        if isinstance(items, AsyncIterable):
            return iter(AsyncItems(items))
        if not isinstance(items, Iterable) or isinstance(items, str | Mapping):
            raise DataError(
                f"the function {getattr(self.function, '__name__', 'given')!r} returned {type(items).__name__}; it should "
                "return an iterable of batches, tables or dicts"
            )
        return iter(items)


@dataclass(frozen=True, slots=True)
class AsyncItems:
    """The items of an asynchronous iterable, on an event loop of its own in the thread that reads them."""

    items: AsyncIterable[Any]

    def __iter__(self) -> Iterator[Any]:
        given = aiter(self.items)

        async def following() -> Any:
            return await anext(given, _END)

        with asyncio.Runner() as loop:
            try:
                while (item := loop.run(following())) is not _END:
                    yield item
            finally:
                if isinstance(given, AsyncGenerator):
                    loop.run(given.aclose())


_END = object()
IterableOrFunction: TypeAlias = Iterable[Any] | AsyncIterable[Any] | Callable[[], Iterable[Any] | AsyncIterable[Any]]


def items_of(given: IterableOrFunction) -> Iterable[Any]:
    """What gives the items of a stream: an iterable, asynchronous or not, or a function that returns one."""
    if isinstance(given, AsyncIterable):
        items = AsyncItems(given)
        return OneShotIterator(iter(items)) if isinstance(given, AsyncIterator) else items
    if isinstance(given, Iterator):
        return OneShotIterator(given)
    if callable(given) and not isinstance(given, Iterable):
        return IteratorFunction(given)
    return given


def check_unread(origins: Iterable[tuple[str, Any]]) -> None:
    """Refuse iterators of named streams that were read before, or that two streams would share."""
    owners: dict[int, str] = {}
    for stream, origin in origins:
        while isinstance(origin, _ItemsWrapper):
            origin = origin.items
        if isinstance(origin, StandardInput):
            what, kind = origin.descriptor, "standard input"
        elif isinstance(origin, OneShotIterator):
            what, kind = id(origin.items), type(origin.items).__name__
        else:
            continue
        if origin.is_read:
            raise QueryError(
                f"stream '{stream}' reads a {kind}, which gives its items once, and they have been read; to run the query "
                "again, make the stream from a list, or from a function that returns a new iterator each time"
            )
        other = owners.setdefault(what, stream)
        if other != stream:
            raise QueryError(
                f"streams '{other}' and '{stream}' read the same {kind}, so each would get some of its items; make one "
                "stream of it and use that twice"
            )


@dataclass(frozen=True, slots=True)
class _ItemsWrapper:
    items: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class Marked(_ItemsWrapper):
    """Batches, tables and dicts, and between them heartbeats: the watermark is what they say, and nothing else."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Paced(_ItemsWrapper):
    """Batches that are due at given seconds after the start: an open-loop load, which does not wait for the query.

    The items are pairs of seconds and a batch, unless there is a rate in tuples per second, or a time from item to item.
    """

    rate: float | None = None
    every_seconds: float | None = None

    def __iter__(self) -> Iterator[Any]:
        if self.rate is None and self.every_seconds is None:
            yield from self.items
            return
        tuples = 0
        for number, item in enumerate(self.items):
            yield tuples / self.rate if self.rate is not None else number * (self.every_seconds or 0.0), item
            tuples += 0 if isinstance(item, Heartbeat) else getattr(item, "num_rows", 1)


@advised
def heartbeat(time: datetime | int) -> Heartbeat:
    """An item of a stream that promises: no tuple before ``time`` is still due.

    A stream that falls silent holds back all that is joined with it; heartbeats between its tuples let the others go on.
    ``time`` is a datetime, in UTC if it names no zone, or microseconds since the epoch.

    >>> heartbeat(datetime(1970, 1, 1, 0, 0, 2))
    Heartbeat(time=2000000)
    """
    if isinstance(time, datetime):
        return Heartbeat(in_microseconds(time))
    if isinstance(time, bool) or not isinstance(time, int):
        raise QueryError(f"heartbeat: time is a datetime or microseconds since the epoch; got {time!r}")
    return Heartbeat(time)


@advised
def marked(items: IterableOrFunction) -> Marked:
    """Batches, tables or dicts in any order, whose watermark is given by the heartbeats between them alone.

    A tuple below the last heartbeat is late. At the end of the items the input ends and every window is emitted.

    >>> import pyarrow as pa, tidegate as tg
    >>> rows = [{"ts": 7, "k": "a"}, {"ts": 3, "k": "a"}, tg.heartbeat(10), {"ts": 12, "k": "a"}]
    >>> schema = {"ts": pa.timestamp("us"), "k": pa.string()}
    >>> counts = tg.stream(tg.marked(rows), time="ts", schema=schema).key_by("k").window("10us").aggregate(n=tg.count())
    >>> [row["n"] for table in tg.start(counts) for row in table.to_pylist()]
    [2, 1]
    """
    return Marked(items_of(_checked(items, "marked")))


@advised
def paced(items: IterableOrFunction, *, rate: float | None = None, every: Duration | None = None) -> Paced:
    """An open-loop load: each batch comes when it is due, whether or not the query has kept up.

    ``rate`` is in tuples per second; a batch is due when its first tuple is. Or one item is due ``every`` so often. With
    neither, the items are pairs of seconds after the start and a batch. The latency of results counts from when the tuple
    that released them was due, so falling behind shows.

    >>> [due for due, _ in paced([{"x": 1}, {"x": 2}, {"x": 3}], rate=100)]
    [0.0, 0.01, 0.02]
    """
    if rate is not None and every is not None:
        raise QueryError("paced: give rate=... or every=..., not both")
    if rate is not None and (not isinstance(rate, int | float) or not rate > 0):
        raise QueryError(f"paced: rate is in tuples per second and above 0; got {rate!r}")
    seconds = None if every is None else parse_duration(every, "paced: every") / 1e6
    return Paced(items_of(_checked(items, "paced")), rate, seconds)


def _checked(items: IterableOrFunction, what: str) -> IterableOrFunction:
    if not isinstance(items, Iterable | AsyncIterable) and not callable(items):
        raise QueryError(f"{what}: takes an iterable of batches, tables or dicts, or a function of one; got {items!r}")
    return items
