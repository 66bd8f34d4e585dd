"""Topics of Kafka as values: what is asked of them, and how positions of partitions move."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import QueryError, UnsupportedError
from tidegate.sources import Malformed
from tidegate.sources.kafka import HEADERS, PartitionEnd, PartitionPosition, TopicOrigin, watermark_of
from tidegate.sources.kafka_records import RecordPlace
from tidegate.sources.positions import ReadPosition, position_from
from tidegate.watermark import START

SCHEMA = {"ts": pa.timestamp("us"), "k": pa.string()}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topic": ""}, "topic is a name"),
        ({"servers": 9092}, "servers are addresses of brokers"),
        ({"key": "k", "timestamp": "k"}, "key is the name of a column of its own"),
        ({"headers": 3}, "headers is the name of a column"),
        ({"start": "now"}, "start is one of 'earliest', 'latest'"),
        ({"until": 7}, "until is None, to read without end, or 'latest'"),
        ({"config": "fast"}, "config has settings by name"),
        ({"config": {"group.id": "mine"}}, "'group.id' is tidegate's own; give nothing: offsets are kept"),
    ],
)
def test_what_makes_no_topic_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(QueryError, match=told):
        tg.kafka(**{"topic": "calls", "servers": "localhost:9092", **given})


def test_a_stream_of_a_topic_has_the_declared_columns_and_those_of_records() -> None:
    topic = tg.kafka("calls", servers="localhost:9092", key="k", timestamp="at", headers="said")
    stream = tg.stream(topic, time="at", schema={"n": pa.int64(), "k": pa.binary()})
    assert stream.schema == pa.schema(
        {"n": pa.int64(), "k": pa.binary(), "at": pa.timestamp("us", tz="UTC"), "said": HEADERS}
    )
    assert stream.node.name == "calls"


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (None, "tells nothing of its columns; declare those of its values: schema="),
        ({"k": pa.string()}, "no column of the values"),
        ({"ts": pa.timestamp("us"), "k": pa.int64()}, "'k' of topic 'calls' on localhost:9092 is string; .* int64"),
    ],
)
def test_columns_that_cannot_be_are_refused(schema: Any, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        tg.stream(tg.kafka("calls", servers="localhost:9092", key="k"), time="ts", schema=schema)


def test_the_watermark_of_a_topic_is_the_least_of_the_partitions_that_are_read() -> None:
    one, two = PartitionPosition("calls[0]", 5, newest=70, end=8), PartitionPosition("calls[1]", 2, newest=30, end=4)
    assert watermark_of([one, two], 10) == 20
    position = ReadPosition(70, START, partitions=(one, two)).behind(PartitionEnd("calls[1]"))
    assert watermark_of(position.partitions, 10) == 60 and position.partitions[1].next == 4
    assert watermark_of([one, PartitionPosition("calls[2]", 0)], 0) == START
    assert watermark_of([], 0) == START


def test_a_position_is_behind_the_last_record_of_each_partition() -> None:
    position = ReadPosition(START, START, partitions=(PartitionPosition("a[b][11]", 3),))
    (only,) = position.partitions
    assert (only.topic, only.number) == ("a[b]", 11)
    one = RecordPlace("a[b][11]", "offset", 3, np.array([3, 5, 7, 8]), np.array([30, 50, 70, 80]))
    behind = position.after(one.only(np.array([0, 2, 3])).after(1), 0, newest=9)
    behind = behind.after(replace(one, file="a[b][12]"), 0)
    assert behind.partitions == (
        PartitionPosition("a[b][11]", 8, newest=9, last=7, stamp=70),
        PartitionPosition("a[b][12]", 4, last=3, stamp=30),
    )
    assert behind.newest == 9 and position_from(json.loads(json.dumps(asdict(behind)))) == behind


def test_a_dead_letter_of_a_record_says_topic_partition_and_offset() -> None:
    letter = Malformed("a[b][11]", 7, "why", "raw", "offset").letter()
    assert letter == {"topic": "a[b]", "partition": 11, "offset": 7, "reason": "why", "raw": "raw"}


def test_a_topic_on_spark_is_refused_with_what_to_do(tmp_path: Path) -> None:
    sources = pytest.importorskip("tidegate.runtime.spark.sources", reason="pyspark is not installed")
    stream = tg.stream(tg.kafka("calls", servers="localhost:9092"), time="ts", schema=SCHEMA)
    assert isinstance(stream.node.origin, TopicOrigin)
    with pytest.raises(UnsupportedError, match=r"spark.readStream.format\('kafka'\).*docs/spark.md"):
        sources.StagedSource.of(stream.node, tmp_path, None)
