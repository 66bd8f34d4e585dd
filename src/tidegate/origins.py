"""Origins that say more than their tuples: when each is due, and how far event time has come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegate.errors import QueryError
from tidegate.query.ahead import micros
from tidegate.query.durations import Duration, parse_duration


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
class Paced:
    """Batches that are due at given seconds after the start: an open-loop load, which does not wait for the query."""

    batches: Iterable[tuple[float, Any]]

    def __iter__(self) -> Iterator[tuple[float, Any]]:
        return iter(self.batches)


def heartbeat(time: datetime | int) -> Heartbeat:
    """An item of a stream that promises: no tuple before ``time`` is still due.

    A stream that falls silent holds back all that is joined with it; heartbeats between its tuples let the others go on.
    ``time`` is a datetime, in UTC if it names no zone, or microseconds since the epoch.

    >>> heartbeat(datetime(1970, 1, 1, 0, 0, 2))
    Heartbeat(time=2000000)
    """
    if isinstance(time, datetime):
        return Heartbeat(micros(time))
    if isinstance(time, bool) or not isinstance(time, int):
        raise QueryError(f"heartbeat: time is a datetime or microseconds since the epoch; got {time!r}")
    return Heartbeat(time)


def marked(items: Iterable[Any]) -> Marked:
    """Batches, tables or dicts in any order, whose watermark is told by the heartbeats between them alone.

    A tuple below the last heartbeat is late. At the end of the items the input ends and every window is handed out.

    >>> import pyarrow as pa, tidegate as tg
    >>> rows = [{"ts": 7, "k": "a"}, {"ts": 3, "k": "a"}, tg.heartbeat(10), {"ts": 12, "k": "a"}]
    >>> schema = {"ts": pa.timestamp("us"), "k": pa.string()}
    >>> counts = tg.stream(tg.marked(rows), time="ts", schema=schema).key_by("k").window(10).aggregate(n=tg.count())
    >>> [row["n"] for table in tg.start(counts) for row in table.to_pylist()]
    [2, 1]
    """
    return Marked(items)


def paced(items: Iterable[Any], *, rate: float | None = None, every: Duration | None = None) -> Paced:
    """An open-loop load: each batch comes when it is due, whether or not the query has kept up.

    ``rate`` is in tuples per second; a batch is due when its first tuple is. Or one item is due ``every`` so often. With
    neither, the items are pairs of seconds after the start and a batch. The latency of results counts from when the tuple
    that released them was due, so falling behind shows.

    >>> [due for due, _ in paced([{"x": 1}, {"x": 2}, {"x": 3}], rate=100)]
    [0.0, 0.01, 0.02]
    """
    if rate is not None and every is not None:
        raise QueryError("paced: give rate=... or every=..., not both")
    if rate is not None:
        if rate <= 0:
            raise QueryError(f"paced: rate is in tuples per second and above 0; got {rate}")
        return Paced(_AtRate(items, rate))
    if every is not None:
        return Paced(_Every(items, parse_duration(every, "paced: every") / 1e6))
    return Paced(items)


@dataclass(frozen=True, slots=True)
class _AtRate:
    items: Iterable[Any]
    tuples_per_second: float

    def __iter__(self) -> Iterator[tuple[float, Any]]:
        tuples = 0
        for item in self.items:
            yield tuples / self.tuples_per_second, item
            tuples += 0 if isinstance(item, Heartbeat) else getattr(item, "num_rows", 1)


@dataclass(frozen=True, slots=True)
class _Every:
    items: Iterable[Any]
    seconds: float

    def __iter__(self) -> Iterator[tuple[float, Any]]:
        return ((number * self.seconds, item) for number, item in enumerate(self.items))
