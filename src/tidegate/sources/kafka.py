"""A topic of Kafka, as where tuples come from and where results go to; what connects to it is a runtime's own business.

Partitions are read side by side, each at its own pace, and each has a watermark of its own: that of the stream is the
least of them. A position is, for each partition, the offset behind the last record that was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidegate.errors import QueryError, choices
from tidegate.query.advice import advised
from tidegate.query.schema import TIME
from tidegate.watermark import START, Watermark

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
OURS = {
    "bootstrap.servers": "servers=...",
    "group.id": "nothing: offsets are kept in the checkpoint of a run",
    "enable.auto.commit": "nothing: offsets are kept in the checkpoint of a run",
    "enable.auto.offset.store": "nothing: offsets are kept in the checkpoint of a run",
    "enable.partition.eof": "until='latest'",
    "auto.offset.reset": "start=...",
    "isolation.level": "nothing: only what was committed is read",
    "transactional.id": "nothing: it belongs to the checkpoint of a run",
    "enable.idempotence": "nothing: results are always written so",
}
"""Settings of the client that are not for users, and what to give instead."""
KAFKA_ON_SPARK = (
    "on Spark, give tg.stream spark.readStream.format('kafka'), and write the DataFrame of to_spark with "
    "writeStream.format('kafka'), as docs/spark.md shows"
)


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic and how it is reached; made by `kafka`."""

    topic: str
    servers: str
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    start: str = "earliest"
    until: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"topic '{self.topic}' on {self.servers}"

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The columns that are not in the value of a record, and their types."""
        given = {self.key: pa.string(), self.timestamp: TIME, self.headers: HEADERS}
        return {name: kind for name, kind in given.items() if name is not None}


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """How far a partition was read: the offset of the ``next`` record, and the ``newest`` event time before it.

    ``end`` is the offset before which a bounded read stops. ``last`` is the offset of the last record that was taken, and
    ``stamp`` its time in Kafka: one of another time at that place is of another topic.
    """

    name: str
    next: int
    newest: int = START
    end: int | None = None
    last: int = -1
    stamp: int = -1

    @property
    def ended(self) -> bool:
        """Whether nothing more is read from it."""
        return self.end is not None and self.next >= self.end

    @property
    def number(self) -> int:
        """The number of the partition in its topic."""
        return int(self.name.rpartition("[")[2].removesuffix("]"))

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self.name.rpartition("[")[0]


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """What arrives when a bounded read of a partition has come to its end."""

    name: str


@dataclass(frozen=True, slots=True)
class TopicOrigin:
    """A topic as the origin of a stream. ``partitions`` say where each is read from, once a run has asked the brokers."""

    topic: KafkaTopic
    schema: pa.Schema
    partitions: tuple[PartitionPosition, ...] = ()

    @property
    def name(self) -> str:
        """What its stream is called, unless the user names it."""
        return self.topic.topic

    @property
    def values(self) -> pa.Schema:
        """The columns that are in the value of a record."""
        return pa.schema([field for field in self.schema if field.name not in self.topic.columns])


def partition_name(topic: str, number: int) -> str:
    """What a partition is called in positions and messages.

    >>> partition_name("calls", 3)
    'calls[3]'
    """
    return f"{topic}[{number}]"


def watermark_of(partitions: Iterable[PartitionPosition], disorder_us: int) -> Watermark:
    """The watermark of a topic: the least of its partitions that are still read.

    One that has brought nothing yet holds it back, as does one that falls silent: something early may still come.
    """
    return min((each.newest - disorder_us for each in partitions if not each.ended), default=START)


def moved(
    partitions: tuple[PartitionPosition, ...], name: str, last: int, stamp: int, newest: int
) -> tuple[PartitionPosition, ...]:
    """The positions when the ``last`` record of one partition was taken; a partition that is new is added."""
    found = {each.name: each for each in partitions}
    before = found.get(name, PartitionPosition(name, last + 1))
    found[name] = replace(before, next=last + 1, newest=max(before.newest, newest), last=last, stamp=stamp)
    return tuple(found.values())


@advised
def kafka(
    topic: str,
    *,
    servers: str,
    key: str | None = None,
    timestamp: str | None = None,
    headers: str | None = None,
    start: str = "earliest",
    until: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> KafkaTopic:
    """A topic of Kafka, to read in process, ``tg.stream(tg.kafka(...), time=..., schema=...)``, or for results, ``to=``.

    ``servers`` are the addresses of brokers, as in ``"one:9092,two:9092"``. Values are JSON objects. ``key`` names the
    column that is the key of a record; read, it is text, or binary if ``schema`` says so. ``timestamp`` and ``headers`` name
    columns for the time that a record has in Kafka and for its headers, where they are wanted.

    A topic is read from its ``start``, 'earliest' or 'latest', or from where a checkpoint says, and without end; with
    ``until="latest"`` up to where its partitions ended when the run began. ``config`` has further settings of the client,
    librdkafka, such as those for security.

    >>> kafka("calls", servers="localhost:9092", key="src").columns
    {'src': DataType(string)}
    """
    if not isinstance(topic, str) or not topic:
        raise QueryError(f"kafka: topic is a name; got {topic!r}")
    if not isinstance(servers, str) or not servers:
        raise QueryError(f"kafka: servers are addresses of brokers, as in 'localhost:9092'; got {servers!r}")
    names = [name for name in (key, timestamp, headers) if name is not None]
    for what, name in {"key": key, "timestamp": timestamp, "headers": headers}.items():
        if name is not None and (not isinstance(name, str) or names.count(name) > 1):
            raise QueryError(f"kafka: {what} is the name of a column of its own; got {name!r}")
    if start not in ("earliest", "latest"):
        raise QueryError(f"kafka: start is one of {choices(('earliest', 'latest'))}; got {start!r}")
    if until not in (None, "latest"):
        raise QueryError(f"kafka: until is None, to read without end, or 'latest'; got {until!r}")
    if config is not None and not isinstance(config, Mapping):
        raise QueryError(f"kafka: config has settings by name, as in {{'security.protocol': 'SSL'}}; got {config!r}")
    for name in config or {}:
        if name in OURS:
            raise QueryError(f"kafka: the setting {name!r} is tidegate's own; give {OURS[name]}")
    return KafkaTopic(topic, servers, key, timestamp, headers, start, until, dict(config or {}))


def origin_of(topic: KafkaTopic, declared: pa.Schema | None) -> TopicOrigin:
    """A topic as an origin of the declared columns; those that are not in values are added unless they are declared."""
    if declared is None:
        raise QueryError(f"stream: {topic} tells nothing of its columns; declare those of its values: schema=...")
    columns = dict(zip(declared.names, declared.types, strict=True))
    for name, kind in topic.columns.items():
        wanted = columns.setdefault(name, kind)
        if wanted != kind and not (name == topic.key and wanted == pa.binary()):
            raise QueryError(f"stream: '{name}' of {topic} is {kind}; the schema has {wanted}")
    origin = TopicOrigin(topic, pa.schema(list(columns.items())))
    if not origin.values.names:
        raise QueryError(f"stream: schema has no column of the values of {topic}; declare at least one")
    return origin
