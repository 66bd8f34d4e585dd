"""Where each partition of a topic is read from when a run begins, and whether the topic is the one that was read before."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tidegate.errors import CheckpointError, EnvironmentFault
from tidegate.query.nodes import Source
from tidegate.runtime.local.kafka_client import BROKER_SECONDS, client, consumer_of, offsets_of, partitions_of
from tidegate.sources.kafka import KafkaTopic, PartitionPosition, TopicOrigin, partition_name

FIRST_SECONDS = 0.1
"""How long is waited at a time for the first records."""


def assigned(source: Source, position: tuple[PartitionPosition, ...] = ()) -> Source:
    """A source of a topic that knows where each partition is read from: where a position says, or where it starts.

    What a position says and the topic does not have any more is refused; a partition that is new is read from its start.
    """
    origin = source.origin
    if not isinstance(origin, TopicOrigin):
        return source
    topic, known = origin.topic, {each.name: each for each in position}
    found = []
    with consumer_of(topic, ends=True) as consumer:
        names = {partition_name(topic.topic, number): number for number in partitions_of(consumer, topic)}
        if missing := [name for name in known if name not in names]:
            raise CheckpointError(
                f"stream '{source.name}': {missing[0]} was read before, and {topic} does not have it, so it is another "
                "topic; read the same one, or start from a new checkpoint"
            )
        for name, number in names.items():
            low, high = offsets_of(consumer, topic, number)
            if name in known:
                before = known[name]
                _check_there(source, before, low, high)
            else:
                # A partition that came after the others has brought nothing to anyone.
                before = PartitionPosition(name, high if topic.start == "latest" and not known else low)
            if topic.until is None:
                before = replace(before, end=None)
            elif before.end is None:
                before = replace(before, end=high)
            found.append(before)
        _check_same(source, topic, consumer, found)
    return replace(source, origin=replace(origin, partitions=tuple(found)))


def _check_there(source: Source, before: PartitionPosition, low: int, high: int) -> None:
    where = f"stream '{source.name}': {before.name} was read up to offset {before.next:,}"
    if before.next < low:
        raise CheckpointError(
            f"{where}, and begins at {low:,} now: {low - before.next:,} records are gone that were not read. Start from a "
            "new checkpoint, and keep records for longer than a run may stand still (retention.ms)"
        )
    if before.next > high:
        raise CheckpointError(
            f"{where}, and ends at {high:,}: the topic was made anew, or has lost records. Start from a new checkpoint"
        )


def _check_same(source: Source, topic: KafkaTopic, consumer: Any, positions: Iterable[PartitionPosition]) -> None:
    """Refuse a topic whose partitions have other records where the last ones were taken; those may also be gone."""
    kafka, left = client(), {each.number: each for each in positions if each.last >= 0}
    consumer.assign([kafka.TopicPartition(topic.topic, number, each.last) for number, each in left.items()])
    deadline = time.monotonic() + BROKER_SECONDS
    while left:
        for message in consumer.consume(len(left), FIRST_SECONDS):
            before = left.pop(message.partition(), None)
            if before is None or message.error() is not None or message.offset() != before.last:
                continue
            if message.timestamp()[1] != before.stamp:
                raise CheckpointError(
                    f"stream '{source.name}': {before.name} has another record at offset {before.last:,} than was read "
                    "there before, so the topic was made anew; start from a new checkpoint"
                )
        if left and time.monotonic() > deadline:
            raise EnvironmentFault(f"{topic}: no broker tells what {next(iter(left.values())).name} holds")
