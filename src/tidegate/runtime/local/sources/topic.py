"""Reads a topic of Kafka: all of its partitions with one consumer, in batches of one partition each."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.errors import DataError, EnvironmentFault, SilentPartitionWarning
from tidegate.query.nodes import Source
from tidegate.runtime.local.kafka_client import client, consumer_of, offsets_of, partitions_of
from tidegate.sources import PlacedBatch
from tidegate.sources.kafka import PartitionEnd, PartitionPosition, TopicOrigin, partition_name, watermark_of
from tidegate.sources.kafka_records import KafkaRecord, RecordParser
from tidegate.watermark import START

if TYPE_CHECKING:
    from tidegate.runtime.local.sources.arrivals import ReadOptions

RECORDS_AT_ONCE = 20_000
POLL_SECONDS = 0.1
"""How long the consumer may wait before the end of a run is noticed."""
LOOK_SECONDS = 30.0
"""How often partitions that are new are looked for."""
MOST_AHEAD = 200_000
"""So many rows may wait for partitions that are behind."""
SILENT_SECONDS = 30.0
"""A partition that holds others back for so long is told of."""


@dataclass(slots=True)
class TopicReader:
    """Reads one topic, on the thread that asks it for more.

    What partitions bring that are ahead of the others waits for those. When that is much, only the ones that are behind are
    read, so that what waits stays where it is, with the brokers.
    """

    source: Source
    origin: TopicOrigin
    reading: ReadOptions
    _left: dict[int, PartitionPosition] = field(init=False)
    _heard: dict[int, float] = field(init=False)
    _looked: float = field(init=False)
    _told: set[int] = field(default_factory=set)
    _ahead: list[tuple[int, int]] = field(default_factory=list)
    _rows_ahead: int = 0
    _paused: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._left = {each.number: each for each in self.origin.partitions if not each.ended}
        self._looked = self.reading.clock()
        self._heard = dict.fromkeys(self._left, self._looked)

    def arrivals(self) -> Iterator[PlacedBatch | PartitionEnd]:
        """Batches of one partition each, and the ends of partitions where the read is bounded."""
        topic, kafka = self.origin.topic, client()
        parser = RecordParser(self.origin, self.source.read_schema, self.reading.rejects, self.source.read_time)
        with consumer_of(topic, ends=topic.until is not None) as consumer:
            consumer.assign([kafka.TopicPartition(topic.topic, each.number, each.next) for each in self._left.values()])
            while self._left and self.reading.wanted():
                for number, messages in self._next(consumer).items():
                    before = self._left.get(number)
                    if before is None:
                        continue
                    records = [message for message in messages if message.error() is None]
                    behind = max(message.offset() + (message.error() is None) for message in messages)
                    if before.end is not None:
                        records = [record for record in records if record.offset() < before.end]
                    if records and (placed := parser.batch(before.name, records)) is not None:
                        yield placed
                        self._count(placed)
                    if before.end is not None and behind >= before.end:
                        del self._left[number]
                        yield PartitionEnd(before.name)
                self._pause_those_ahead(consumer)
                if topic.until is None:
                    self._look_for_new(consumer)
                    self._tell_of_silence()

    def _next(self, consumer: Any) -> dict[int, list[KafkaRecord]]:
        """What has come, by partition; nothing if nothing comes for a while."""
        first = consumer.poll(POLL_SECONDS)
        if first is None:
            return {}
        rows = min(self.reading.rows, RECORDS_AT_ONCE)
        found: dict[int, list[KafkaRecord]] = {}
        for message in (first, *consumer.consume(rows, self.reading.linger_seconds)):
            self._check(message)
            found.setdefault(message.partition(), []).append(message)
        self._heard.update(dict.fromkeys(found, self.reading.clock()))
        self._told -= found.keys()
        return found

    def _count(self, placed: PlacedBatch) -> None:
        """Count rows that may have to wait for other partitions."""
        newest = max(
            (each.newest for each in self.reading.partitions() if each.name == placed.place.file), default=START
        )
        heapq.heappush(self._ahead, (newest - self.source.disorder_us, placed.batch.num_rows))
        self._rows_ahead += placed.batch.num_rows

    def _pause_those_ahead(self, consumer: Any) -> None:
        """Read only the partitions that all others wait for, while too many rows wait."""
        known = [each for each in self.reading.partitions() if not each.ended]
        watermark = watermark_of(known, self.source.disorder_us)
        while self._ahead and self._ahead[0][0] <= watermark:
            self._rows_ahead -= heapq.heappop(self._ahead)[1]
        paused: frozenset[int] = frozenset()
        if self._rows_ahead > MOST_AHEAD:
            paused = frozenset(each.number for each in known if each.newest - self.source.disorder_us > watermark)
        if paused != self._paused:
            consumer.resume(self._named(self._paused - paused))
            consumer.pause(self._named(paused - self._paused))
            self._paused = paused

    def _named(self, numbers: Iterable[int]) -> list[Any]:
        topic, kafka = self.origin.topic.topic, client()
        return [kafka.TopicPartition(topic, number) for number in numbers if number in self._left]

    def _check(self, message: KafkaRecord) -> None:
        """Stop at what is no record and no end of a partition."""
        error, codes = message.error(), client().KafkaError
        if error is None or error.code() == codes._PARTITION_EOF:
            return
        where = f"stream '{self.source.name}': {partition_name(self.origin.topic.topic, message.partition())}"
        if error.code() == codes._AUTO_OFFSET_RESET:
            raise DataError(
                f"{where}: records from offset {message.offset():,} on are gone before they were read ({error.str()}); keep "
                "them for longer (retention.ms), or read faster"
            )
        raise EnvironmentFault(f"{where}: {error.str()}")

    def _look_for_new(self, consumer: Any) -> None:
        """Read partitions that have been added to the topic, from their first record."""
        now, topic, kafka = self.reading.clock(), self.origin.topic, client()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for number in partitions_of(consumer, topic):
            if number not in self._left:
                low, _ = offsets_of(consumer, topic, number)
                self._left[number] = PartitionPosition(partition_name(topic.topic, number), low)
                self._heard[number] = now
                consumer.incremental_assign([kafka.TopicPartition(topic.topic, number, low)])

    def _tell_of_silence(self) -> None:
        """Tell of partitions that have brought nothing for long and are behind others, which wait for them."""
        now, known = self.reading.clock(), self.reading.partitions()
        least, most = (chosen(each.newest for each in known) for chosen in (min, max))
        for each in known:
            silent = now - self._heard[each.number]
            if each.newest == least < most and silent >= SILENT_SECONDS and each.number not in self._told:
                self._told.add(each.number)
                notice = (
                    f"stream '{self.source.name}': {each.name} has brought no record for {silent:.0f} s and holds back what "
                    "other partitions bring, since something early may still come from it; write to all partitions, or make "
                    "as many as are written to (docs/local.md)"
                )
                self.reading.rejects.notice = self.reading.rejects.notice or notice
                warnings.warn(notice, SilentPartitionWarning, stacklevel=2)
