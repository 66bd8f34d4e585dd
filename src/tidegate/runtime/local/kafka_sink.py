"""Results as records of Kafka: one JSON object each, as they come, or in one transaction for each snapshot of a run.

A snapshot is in force before its transaction begins, and holds what is to be written in drafts beside its state. The last
record of a transaction has a header that says which snapshot it belongs to. A run that goes on looks for that record
behind what was there when the snapshot was taken: if it is there, the transaction was committed; if not, it is written
again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import CheckpointError, EnvironmentFault, QueryError, choices
from tidegate.runtime.local.durable_folder import DraftedPart, ToDurableFolders
from tidegate.runtime.local.kafka_client import (
    asking,
    client,
    committed_records,
    consumer_of,
    offsets_of,
    partitions_of,
    producer_of,
)
from tidegate.sources.kafka import KafkaTopic, partition_name
from tidegate.tables import json_rows

HEADER = "tidegate"
FULL_SECONDS = 0.1
WRITE_SECONDS = 60.0
"""How long brokers may take to confirm what was written to them."""


def topics_of(topic: KafkaTopic, schemas: Mapping[str | None, pa.Schema]) -> tuple[KafkaTopic, ...]:
    """The topic of each result: the one that was given, or of several one for each, such as 'results.alerts'."""
    for name, schema in schemas.items():
        if topic.key is not None and topic.key not in schema.names:
            of = "" if name is None else f" '{name}'"
            raise QueryError(f"to={topic}: key={topic.key!r} is no column of the result{of}: {choices(schema.names)}")
    return tuple(topic if name is None else replace(topic, topic=f"{topic.topic}.{name}") for name in schemas)


def records_of(table: pa.Table, key: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    """The key and the value of each row; keys are text, or JSON where they are neither text nor bytes."""
    for row in json_rows(table):
        yield None if key is None else _key(row[key]), json.dumps(row).encode()


def _key(value: Any) -> bytes | None:
    return None if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()


def _offsets(topic: KafkaTopic) -> dict[str, tuple[int, int]]:
    """The first and the next offset of each partition of a topic, which must be there."""
    with consumer_of(topic) as consumer:
        numbers = partitions_of(consumer, topic)
        return {partition_name(topic.topic, number): offsets_of(consumer, topic, number) for number in numbers}


@dataclass(slots=True)
class RecordWriter:
    """Writes records and learns what has become of them; for one thread."""

    topics: tuple[KafkaTopic, ...]
    producer: Any
    _failure: Any = None

    def write(self, table: pa.Table, output: int, mark: bytes | None = None) -> None:
        """Hand rows of one result to the client; the last of them gets the ``mark``, if there is one."""
        topic = self.topics[output]
        last = table.num_rows - 1
        with asking(topic, "a result cannot be written"):
            for row, (key, value) in enumerate(records_of(table, topic.key)):
                headers = [(HEADER, mark)] if mark is not None and row == last else None
                while not self._is_taken(topic.topic, value, key, headers):
                    self.producer.poll(FULL_SECONDS)
        self.producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until brokers have all that was written."""
        if self.producer.flush(WRITE_SECONDS):
            raise EnvironmentFault(f"{self.topics[0]}: brokers have not taken all results within {WRITE_SECONDS:.0f} s")
        self._check()

    def _is_taken(self, topic: str, value: bytes, key: bytes | None, headers: Any) -> bool:
        """Whether the client has room for a record."""
        try:
            self.producer.produce(topic, value, key, headers=headers, on_delivery=self._delivered)
            return True
        except BufferError:
            return False

    def _delivered(self, error: Any, message: object) -> None:
        self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure is not None:
            raise EnvironmentFault(f"{self.topics[0]}: a result was not written: {self._failure.str()}")


@dataclass(slots=True)
class ToKafka:
    """Records as results come. A run that fails and is started again writes some of them again."""

    writer: RecordWriter

    @staticmethod
    def open(topics: tuple[KafkaTopic, ...]) -> ToKafka:
        """A sink of topics, each of which is there."""
        for topic in topics:
            _offsets(topic)
        return ToKafka(RecordWriter(topics, producer_of(topics[0])))

    def write(self, table: pa.Table, output: int = 0) -> None:
        self.writer.write(table, output)

    def close(self, complete: bool) -> None:
        if complete:
            self.writer.flush()
        else:
            self.writer.producer.purge()
            self.writer.producer.flush(0)


@dataclass(slots=True)
class ToDurableKafka(ToDurableFolders):
    """One transaction for each snapshot. Parts of results are drafts in the checkpoint until then."""

    topics: tuple[KafkaTopic, ...] = ()
    identity: str = field(default_factory=lambda: f"tidegate-{uuid.uuid4().hex}")
    _writer: RecordWriter | None = None

    def __str__(self) -> str:
        return ", ".join(f"topic '{topic.topic}'" for topic in self.topics)

    def state(self, parts: Sequence[DraftedPart]) -> dict[str, Any]:
        """What a snapshot remembers of it: its identity, and where its topics end before these parts are written."""
        ends = {name: high for topic in self.topics if parts for name, (_, high) in _offsets(topic).items()}
        return {"identity": self.identity, "ends": ends}

    def publish(self, number: int, parts: Sequence[DraftedPart]) -> None:
        """Write parts in one transaction, which is committed when this returns, and remove their drafts."""
        if parts:
            self._write(number, parts)
        self._forget(parts)

    def recover(
        self, number: int, parts: Sequence[DraftedPart], next_parts: Sequence[int], state: Mapping[str, Any]
    ) -> None:
        """Go on where a snapshot was taken: its transaction is written unless it is known to be committed."""
        self.identity = state["identity"]
        self._writer = self._begun()
        left = [part for part in parts if self._path(part.output, part.draft).is_file()]
        # Drafts are removed only when their transaction is committed.
        if left and not self._is_committed(number, state["ends"]):
            if len(left) < len(parts):
                raise CheckpointError(
                    f"{self.folder} lacks some of the results of snapshot {number}, which are not in {self} either; restore "
                    "it, or start from a new checkpoint"
                )
            self._write(number, parts)
        self._forget(left)
        for writer, following in zip(self.writers, next_parts, strict=True):
            writer.next_part = following
        self._remove_drafts()

    def begin(self) -> None:
        """Begin a run that has no snapshot yet."""
        for topic in self.topics:
            _offsets(topic)
        self._writer = self._begun()
        self._remove_drafts()

    def _begun(self) -> RecordWriter:
        """A writer of transactions; what an earlier run has left of one is aborted, and that run can write no more."""
        topic = self.topics[0]
        producer = producer_of(topic, self.identity)
        with asking(topic, "brokers do not begin transactions"):
            producer.init_transactions(WRITE_SECONDS)
        return RecordWriter(self.topics, producer)

    def _write(self, number: int, parts: Sequence[DraftedPart]) -> None:
        writer, topic, kafka = self._writer, self.topics[0], client()
        assert writer is not None
        try:
            with asking(
                topic, f"the results of snapshot {number} are not committed; start the run again, which goes on"
            ):
                writer.producer.begin_transaction()
                for part in parts:
                    table = pq.read_table(self._path(part.output, part.draft))
                    writer.write(table, part.output, self._mark(number) if part is parts[-1] else None)
                writer.flush()
                writer.producer.commit_transaction(WRITE_SECONDS)
        except EnvironmentFault as error:
            cause = error.__cause__
            if isinstance(cause, kafka.KafkaException) and cause.args[0].code() == kafka.KafkaError._FENCED:
                raise CheckpointError(
                    f"{self}: another run goes on with a copy of this checkpoint; only one of them can write results"
                ) from error
            raise

    def _mark(self, number: int) -> bytes:
        return f"{self.identity}:{number}".encode()

    def _is_committed(self, number: int, ends: Mapping[str, int]) -> bool:
        """Whether the topics have, behind where they ended before, the record that ends the transaction of a snapshot."""
        for topic in self.topics:
            for name, (low, high) in _offsets(topic).items():
                if not low <= ends.get(name, low) <= high:
                    raise CheckpointError(
                        f"{name} had records up to offset {ends[name]:,} and has those from {low:,} to {high:,} now, so "
                        f"whether the results of snapshot {number} are among them cannot be told; restore it, or start from "
                        "a new checkpoint"
                    )
            for record in committed_records(topic, ends):
                if (HEADER, self._mark(number)) in (record.headers() or ()):
                    return True
        return False

    def _forget(self, parts: Sequence[DraftedPart]) -> None:
        for part in parts:
            self._path(part.output, part.draft).unlink(missing_ok=True)
        with self._lock:
            self._drafted = [part for part in self._drafted if part not in parts]
