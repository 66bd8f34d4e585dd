"""The tuples of a source as they arrive, whatever its origin is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

from tidegate.errors import DataError, UnsupportedError
from tidegate.query.nodes import Source
from tidegate.runtime.local.sources.items import ItemReader, LingerBuffer
from tidegate.runtime.local.sources.topic import TopicReader
from tidegate.sources import ArrivingOrigin, BatchOrigin, PlacedBatch, Rejects
from tidegate.sources.in_memory import Heartbeat, Marked, Paced
from tidegate.sources.kafka import PartitionEnd, PartitionPosition, TopicOrigin
from tidegate.sources.positions import ReadPosition, records_after

LINGER_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch, a heartbeat or the end of a partition, and when it was due by the clock of the run, if scheduled."""

    what: PlacedBatch | Heartbeat | PartitionEnd
    due: float | None = None


def _run_on_a_thread(function: Callable[[], None]) -> None:
    threading.Thread(target=function, name="tidegate-iterable", daemon=True).start()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a source is read.

    Batches that we cut or gather ourselves have at most ``rows`` rows. What an iterable gives in small pieces is held
    back for others to come, ``linger_seconds`` at most; for that it is read on a thread of its own, which ``spawn`` starts.
    What is not due yet, or not there, is waited for by ``pause``, which returns early, and is true, when no more is wanted.
    Records up to ``position`` are left out, where a source is read on. A topic is read for as long as ``wanted`` says so;
    ``partitions`` tells how far each of its partitions has come by what was taken.
    """

    rows: int
    rejects: Rejects
    linger_seconds: float = LINGER_SECONDS
    spawn: Callable[[Callable[[], None]], None] = _run_on_a_thread
    clock: Callable[[], float] = field(default=time.monotonic)
    pause: Callable[[float], object] = field(default=time.sleep)
    position: ReadPosition | None = None
    wanted: Callable[[], bool] = lambda: True
    partitions: Callable[[], tuple[PartitionPosition, ...]] = tuple

    def behind(self, source: Source, found: Iterable[PlacedBatch | Heartbeat]) -> Iterator[Arrival]:
        """What comes behind the position."""
        return map(Arrival, found if self.position is None else records_after(found, self.position, source.name))


def arrivals_of(source: Source, reading: ReadOptions) -> Generator[Arrival, None, None]:
    """What a source delivers, in its order. To be closed when no more is wanted."""
    items = ItemReader(source.name, source.read_schema, reading.rows)
    match source.origin:
        case BatchOrigin() as origin:
            batches = origin.batches(source.read_schema, reading.rows, reading.rejects, source.read_time)
            yield from reading.behind(source, batches)
        case ArrivingOrigin() as origin:
            arriving = origin.arriving(
                source.read_schema, reading.rows, reading.rejects, source.read_time, reading.pause
            )
            yield from reading.behind(source, arriving)
        case TopicOrigin():
            yield from map(Arrival, TopicReader(source, source.origin, reading).arrivals())
        case Paced():
            yield from _paced(source.name, items, source.origin, reading)
        case Marked():
            # Nothing is ready before the next heartbeat, so what is held back until then is not late for it.
            yield from reading.behind(source, items.gathered(items.guarded(source.origin), tables_at_once=True))
        case None:
            raise UnsupportedError(
                f"stream '{source.name}' has a schema and nothing to read; make it with files, an Arrow table or an "
                "iterable of batches"
            )
        case list() | tuple():
            # What lies in memory is not waited for.
            yield from reading.behind(source, items.gathered(source.origin))
        case Iterable():
            yield from _iterable(items, source.origin, reading)
        case _:
            raise UnsupportedError(
                f"stream '{source.name}' reads a {type(source.origin).__name__}, which cannot be read in this process; "
                "give files, an Arrow table or an iterable of batches, or run it on='spark'"
            )


def _paced(stream: str, items: ItemReader, paced: Paced, reading: ReadOptions) -> Iterator[Arrival]:
    began = reading.clock()
    for pair in items.guarded(paced):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], int | float):
            raise DataError(
                f"stream '{stream}': without rate=... or every=... paced takes pairs of seconds and a batch; got "
                f"{type(pair).__name__}. Did you mean tg.paced(items, rate=1000)?"
            )
        due, item = pair
        wait = began + due - reading.clock()
        if wait > 0:
            reading.pause(wait)
        yield Arrival(items.single(item), began + due)


def _iterable(items: ItemReader, origin: Iterable[object], reading: ReadOptions) -> Iterator[Arrival]:
    if reading.linger_seconds <= 0:
        yield from (Arrival(items.single(item)) for item in items.guarded(origin))
        return
    buffer = LingerBuffer(reading.rows, reading.linger_seconds, reading.clock)
    reading.spawn(lambda: buffer.fill(items.guarded(origin)))
    try:
        while (held := buffer.take()) is not None:
            yield from map(Arrival, items.gathered(held))
    finally:
        buffer.close()
