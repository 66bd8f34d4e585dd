"""Records of Kafka as batches: values are objects of JSON, many of them parsed at once as if they were lines of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidegate.sources import Malformed, Numbers, PlacedBatch, Rejects, RowPlace
from tidegate.sources.json_lines import json_parser
from tidegate.sources.kafka import TopicOrigin
from tidegate.sources.lines import Block, parse_block

_NO_VALUE = "no value, as the mark of a key that was deleted has none"
_NO_TIME = 0
"""The kind of time of a record that has none."""


class KafkaRecord(Protocol):
    """What is asked of a message of the client."""

    def value(self) -> bytes | None: ...
    def key(self) -> Any: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def offset(self) -> int: ...
    def partition(self) -> int: ...
    def error(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class RecordPlace(RowPlace):
    """Where the records of a batch come from: a partition, their offsets, and the time that each has in Kafka."""

    stamps: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    def only(self, rows: Numbers) -> RecordPlace:
        return RecordPlace(self.file, self.unit, self.first, RowPlace.only(self, rows).numbers, self.stamps[rows])

    def after(self, rows: int) -> RecordPlace:
        return RecordPlace(
            self.file, self.unit, self.first + rows, RowPlace.after(self, rows).numbers, self.stamps[rows:]
        )


@dataclass(frozen=True, slots=True)
class RecordParser:
    """Makes batches of the records of a topic: the columns of ``schema``, some or all of the origin's.

    A malformed record goes to ``rejects``; so does one without event time, if its column is named.
    """

    origin: TopicOrigin
    schema: pa.Schema
    rejects: Rejects
    time: str | None

    def batch(self, partition: str, records: Sequence[KafkaRecord]) -> PlacedBatch | None:
        """Consecutive records of one partition; None if none of them can be read."""
        values = self.origin.values
        parse = json_parser(values, self.time if self.time in values.names else None)
        given = [record.value() for record in records]
        lines = [b"" if value is None else _line(value) for value in given]
        if not all(lines):
            for record, line in zip(records, lines, strict=True):
                if not line:
                    self.rejects.add(Malformed(partition, record.offset(), _NO_VALUE, "", "offset"))
            records = [record for record, line in zip(records, lines, strict=True) if line]
            lines = [line for line in lines if line]

        def reject(found: Malformed) -> None:
            assert found.line is not None
            offset = records[found.line].offset()
            self.rejects.add(Malformed(partition, offset, found.reason, found.raw, "offset"))

        tables, rows = parse_block(Block(partition, 0, b"".join(line + b"\n" for line in lines)), parse, reject)
        if not tables:
            return None
        table, kept = pa.concat_tables(tables), records if rows is None else [records[int(row)] for row in rows]
        beside, bad = self._beside(kept)
        if bad:
            for row, reason in sorted(bad.items()):
                raw = (kept[row].value() or b"").decode("utf-8", "backslashreplace")
                self.rejects.add(Malformed(partition, kept[row].offset(), reason, raw, "offset"))
            good = [row for row in range(len(kept)) if row not in bad]
            if not good:
                return None
            kept, table = [kept[row] for row in good], table.take(good)
            beside = {name: [found[row] for row in good] for name, found in beside.items()}
        columns = [
            pa.array(beside[field.name], field.type) if field.name in beside else table.column(field.name)
            for field in self.schema
        ]
        offsets = np.array([record.offset() for record in kept], np.int64)
        whole = pa.table(columns, schema=self.schema).combine_chunks().to_batches()[0]
        stamps = np.array([record.timestamp()[1] for record in kept], np.int64)
        return PlacedBatch(whole, RecordPlace(partition, "offset", int(offsets[0]), offsets, stamps))

    def _beside(self, records: Sequence[KafkaRecord]) -> tuple[dict[str, list[Any]], dict[int, str]]:
        """The columns that are not in values, whether a query reads them or not, and why some rows are malformed."""
        topic = self.origin.topic
        found: dict[str, list[Any]] = {}
        bad: dict[int, str] = {}
        if topic.key is not None:
            keys = [record.key() for record in records]
            found[topic.key] = keys
            if self.origin.schema.field(topic.key).type == pa.string():
                for row, key in enumerate(keys):
                    try:
                        keys[row] = None if key is None else key.decode()
                    except UnicodeDecodeError as error:
                        bad[row] = f"the key is not UTF-8: {error.reason} at byte {error.start + 1}"
        if topic.timestamp is not None:
            stamps = [record.timestamp() for record in records]
            found[topic.timestamp] = [None if kind == _NO_TIME else 1000 * moment for kind, moment in stamps]
            if self.time == topic.timestamp:
                bad |= {row: "no time in Kafka" for row, (kind, _) in enumerate(stamps) if kind == _NO_TIME}
        if topic.headers is not None:
            found[topic.headers] = [_headers(record) for record in records]
        return found, bad


def _line(value: bytes) -> bytes:
    """A value on a line of its own; where JSON has line breaks, blanks mean the same."""
    line = value.strip()
    return line.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in line or b"\r" in line else line


def _headers(record: KafkaRecord) -> list[dict[str, Any]] | None:
    found = record.headers()
    return None if found is None else [{"key": key, "value": value} for key, value in found]
