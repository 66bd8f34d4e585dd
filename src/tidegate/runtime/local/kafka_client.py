"""Clients of Kafka, and what brokers say of a topic; the only file that knows how to make them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tidegate.errors import DataError, EnvironmentFault, choices
from tidegate.sources.kafka import KafkaTopic, partition_name
from tidegate.sources.kafka_records import KafkaRecord

BROKER_SECONDS = 15.0
"""How long to wait for an answer of the brokers."""
_LOGGER = logging.getLogger("tidegate.kafka")


def client() -> Any:
    """The package of clients."""
    try:
        import confluent_kafka
    except ModuleNotFoundError as error:
        raise EnvironmentFault(
            "the package 'confluent-kafka' is missing; install Kafka's part of tidegate: pip install 'tidegate[kafka]'"
        ) from error
    return confluent_kafka


@contextmanager
def asking(topic: KafkaTopic, what: str) -> Iterator[None]:
    """Say what could not be done with a topic when a client raises."""
    kafka = client()
    try:
        yield
    except kafka.KafkaException as error:
        raise EnvironmentFault(f"{topic}: {what}: {error.args[0].str()}") from error


@contextmanager
def consumer_of(topic: KafkaTopic, *, ends: bool = False) -> Iterator[Any]:
    """A consumer of what was committed, closed in the end; with ``ends`` it says when it is at the end of a partition."""
    settings = {
        **topic.config,
        "bootstrap.servers": topic.servers,
        "group.id": "tidegate",  # Asked for by the client; nothing is committed to it, and no group is joined.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": ends,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
    }
    with asking(topic, "no consumer can be made"):
        consumer = client().Consumer(settings, logger=_LOGGER)
    try:
        yield consumer
    finally:
        consumer.close()


def producer_of(topic: KafkaTopic, transactional_id: str | None = None) -> Any:
    """A producer that writes each record once as long as it lives, or transactions of an identity that outlives it."""
    # The partitioner is the one that Java's clients have, so that equal keys meet.
    settings = {"partitioner": "murmur2_random", "linger.ms": 5, **topic.config, "enable.idempotence": True}
    settings["delivery.report.only.error"] = True
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    with asking(topic, "no producer can be made"):
        return client().Producer({**settings, "bootstrap.servers": topic.servers}, logger=_LOGGER)


def partitions_of(client_: Any, topic: KafkaTopic) -> list[int]:
    """The numbers of a topic's partitions; a topic that is not there is an error."""
    with asking(topic, f"no broker has told of it within {BROKER_SECONDS:.0f} s; are the servers right, and up?"):
        known = client_.list_topics(topic.topic, timeout=BROKER_SECONDS)
    found = known.topics[topic.topic]
    if found.error is not None or not found.partitions:
        with asking(topic, "its brokers do not tell which topics they have"):
            there = sorted(name for name in client_.list_topics(timeout=BROKER_SECONDS).topics if name[:2] != "__")
        why = "has no partitions" if found.error is None else found.error.str()
        raise DataError(f"{topic} cannot be used: {why}; there is {choices(there)}. Create it, or name another")
    return sorted(found.partitions)


def offsets_of(consumer: Any, topic: KafkaTopic, number: int) -> tuple[int, int]:
    """The offset of the first record that a partition still has, and the one behind its last."""
    kafka = client()
    with asking(topic, f"no broker tells what {partition_name(topic.topic, number)} holds"):
        low, high = consumer.get_watermark_offsets(kafka.TopicPartition(topic.topic, number), BROKER_SECONDS)
    return int(low), int(high)


def committed_records(topic: KafkaTopic, starts: Mapping[str, int]) -> Iterator[KafkaRecord]:
    """The committed records of a topic up to its present end, of partitions from some offsets, of others from the first."""
    kafka = client()
    with consumer_of(topic, ends=True) as consumer:
        left = {}
        for number in partitions_of(consumer, topic):
            low, high = offsets_of(consumer, topic, number)
            if (start := max(low, starts.get(partition_name(topic.topic, number), low))) < high:
                left[number] = start, high
        consumer.assign([kafka.TopicPartition(topic.topic, number, start) for number, (start, _) in left.items()])
        while left:
            for message in consumer.consume(10_000, 0.1):
                error, number = message.error(), message.partition()
                if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
                    raise EnvironmentFault(f"{topic}: {partition_name(topic.topic, number)}: {error.str()}")
                if number in left and error is None and message.offset() < left[number][1]:
                    yield message
                behind = message.offset() + (error is None)
                if number in left and behind >= left[number][1]:
                    del left[number]
