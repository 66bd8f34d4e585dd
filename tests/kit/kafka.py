"""A cluster of Kafka for tests: librdkafka's own, in a process of its own, so that it outlives runs that are killed.

It has brokers, partitions, groups and transactions, each of which ends with a mark that takes an offset; a topic is made,
with four partitions, when it is first written to. It has no isolation: a consumer of what is committed also gets the
records of transactions that a killed run has left open, which brokers abort when the next run begins. `isolated` leaves
those out, as brokers do, and `with_isolation` lets a run see what it would see there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import confluent_kafka
import pyarrow as pa

import tidegate as tg
from tidegate.runtime.local import kafka_client, kafka_sink
from tidegate.sources.kafka import KafkaTopic, partition_name
from tidegate.tables import json_rows

ATTEMPT = "attempt"
PARTITIONS = 4


@contextmanager
def mock_cluster() -> Iterator[str]:
    """The address of a cluster that is there until the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.kafka_broker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin as held, process.stdout as told:
        yield told.readline().strip()
        held.close()
        process.wait()


def write(servers: str, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records: what `Producer.produce` takes besides the topic."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 1})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(20) == 0


def write_rows(servers: str, topic: str, table: pa.Table, partitions: int = PARTITIONS) -> None:
    """Write the rows of a table in turns to some of the partitions."""
    rows = enumerate(json_rows(table))
    write(servers, topic, ({"value": json.dumps(row), "partition": number % partitions} for number, row in rows))


def make(servers: str, topic: str) -> None:
    """Make a topic that is empty."""
    asked = {"bootstrap.servers": servers, "allow.auto.create.topics": True, "group.id": "tests"}
    consumer = confluent_kafka.Consumer(asked)
    consumer.list_topics(topic, timeout=10)
    consumer.close()


def read(servers: str, topic: str) -> list[Any]:
    """All records that consumers of what is committed get from brokers."""
    asked = tg.kafka(topic, servers=servers)
    return isolated(asked, list(kafka_client.committed_records(asked, {})))


def rows_of(servers: str, topic: str) -> list[dict[str, Any]]:
    """The objects of all committed records."""
    return [json.loads(record.value()) for record in read(servers, topic)]


def isolated(topic: KafkaTopic, records: Sequence[Any]) -> list[Any]:
    """Records without those of transactions that nobody ended; others were written without a transaction."""
    with kafka_client.consumer_of(topic) as consumer:
        numbers = kafka_client.partitions_of(consumer, topic)
        highs = {number: kafka_client.offsets_of(consumer, topic, number)[1] for number in numbers}
    kept = []
    for number, high in highs.items():
        mine = sorted((each for each in records if each.partition() == number), key=lambda each: each.offset())
        following = [*(each.offset() for each in mine[1:]), high] if mine else []
        committed: str | None = None
        for record, after in zip(reversed(mine), reversed(following), strict=True):
            attempt = dict(record.headers() or ()).get(ATTEMPT)
            if after > record.offset() + 1:
                committed = (
                    attempt  # A mark stands behind it, and so it does behind what its transaction has before it.
                )
            if attempt is None or attempt == committed:
                kept.append(record)
            else:
                committed = None
    return sorted(kept, key=lambda each: (each.partition(), each.offset()))


class AttemptProducer:
    """A producer whose records say which transaction they are of."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._attempt = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def begin_transaction(self) -> None:
        self._attempt = uuid.uuid4().hex
        self._producer.begin_transaction()

    def produce(self, topic: str, value: bytes, key: Any, headers: Any = None, **others: Any) -> None:
        said = [*(headers or ()), (ATTEMPT, self._attempt.encode())]
        self._producer.produce(topic, value, key, headers=said, **others)


@contextmanager
def with_isolation() -> Iterator[None]:
    """Let runs find what brokers with isolation would tell them."""
    producer_of, committed_records = kafka_client.producer_of, kafka_client.committed_records

    def told(topic: KafkaTopic, starts: Mapping[str, int]) -> list[Any]:
        return isolated(topic, list(committed_records(topic, starts)))

    def made(topic: KafkaTopic, transactional_id: str | None = None) -> Any:
        producer = producer_of(topic, transactional_id)
        return producer if transactional_id is None else AttemptProducer(producer)

    with patch.object(kafka_sink, "committed_records", told), patch.object(kafka_sink, "producer_of", made):
        yield


def names(topic: str) -> list[str]:
    """What the partitions of a topic are called."""
    return [partition_name(topic, number) for number in range(PARTITIONS)]
