"""Topics of Kafka as sources of a run in process, on a cluster for tests."""

from __future__ import annotations

import json
import sys
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.kafka import PARTITIONS, make, mock_cluster, write, write_rows
from tidegate.errors import DataError, EnvironmentFault, SilentPartitionWarning
from tidegate.runtime.local import kafka_client
from tidegate.runtime.local.sources import topic as topic_reader
from tidegate.testing import answer, difference

SCHEMA = pa.schema({"ts": pa.timestamp("us"), "k": pa.string(), "n": pa.int64()})


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with mock_cluster() as address:
        yield address


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex}"


def calls(rows: int = 2_000, seed: int = 1) -> pa.Table:
    """Tuples in the order of time, some at the same."""
    drawn = np.random.default_rng(seed)
    times = np.sort(drawn.integers(0, 5_000_000, rows))
    keys = [f"k{key}" for key in drawn.integers(0, 7, rows)]
    return pa.table([pa.array(times, pa.timestamp("us")), keys, pa.array(drawn.integers(0, 99, rows))], schema=SCHEMA)


def counted(tuples: tg.Stream) -> tg.Stream:
    return (
        tuples.key_by("k").window("500 milliseconds", every="100 milliseconds").aggregate(n=tg.count(), s=tg.sum("n"))
    )


def whole(job: Any, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *job])


def bounded(servers: str, topic: str, **how: Any) -> tg.Stream:
    return tg.stream(tg.kafka(topic, servers=servers, until="latest"), time="ts", schema=SCHEMA, **how)


@pytest.mark.parametrize("instances", [1, 3])
def test_a_query_over_a_topic_and_over_a_table_give_one_answer(servers: str, topic: str, instances: int) -> None:
    table = calls()
    write_rows(servers, topic, table)
    job = tg.start(counted(bounded(servers, topic)), instances=instances)
    found = whole(job, counted(bounded(servers, topic)).schema)
    assert difference(found, answer(counted(tg.stream(table, time="ts"))).rows) is None
    assert job.rows == table.num_rows and job.late == 0


def test_a_topic_is_joined_with_a_table_and_with_itself(servers: str, topic: str) -> None:
    table = calls(300)
    write_rows(servers, topic, table)

    def query(one: tg.Stream) -> tg.Stream:
        other = tg.stream(table, time="ts", name="other")
        near = one.join(other, on="k", within="20 milliseconds")
        return near.union(one.join(one, on="k", within="10 milliseconds"))

    expected = answer(query(tg.stream(table, time="ts"))).rows
    made = query(bounded(servers, topic))
    assert expected.num_rows and difference(whole(tg.start(made), made.schema), expected) is None


def test_partitions_that_are_far_apart_make_nothing_late(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has all times from first to last, and few rows of the others may wait while the last one is read."""
    monkeypatch.setattr(topic_reader, "MOST_AHEAD", 10)
    table = calls(100)
    lines = [json.dumps({**row, "ts": row["ts"].isoformat()}) for row in table.to_pylist()]
    for partition in range(PARTITIONS):
        write(servers, topic, ({"value": line, "partition": partition} for line in lines))
    job = tg.start(counted(bounded(servers, topic)), segment_rows=50)
    found = whole(job, counted(bounded(servers, topic)).schema)
    four = pa.concat_tables([table] * PARTITIONS).sort_by("ts")
    assert difference(found, answer(counted(tg.stream(four, time="ts"))).rows) is None
    assert job.late == 0 and job.rows == 4 * table.num_rows


def test_keys_headers_and_times_of_records_are_columns_where_they_are_wanted(servers: str, topic: str) -> None:
    record = {"value": '{\n  "n": 3\n}', "key": "ann", "headers": [("of", b"\xff"), ("of", None)], "timestamp": 1_500}
    write(servers, topic, [{**record, "partition": 0}, {"value": '{"n": 4}', "partition": 0, "timestamp": 2_500}])
    asked = tg.kafka(topic, servers=servers, key="who", timestamp="at", headers="said", until="latest")
    tuples = tg.stream(asked, time="at", schema={"n": pa.int64(), "who": pa.binary()})
    assert tuples.schema.names == ["n", "who", "at", "said"]
    assert [row for table in tg.start(tuples) for row in table.to_pylist()] == [
        {
            "n": 3,
            "who": b"ann",
            "at": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
            "said": [{"key": "of", "value": b"\xff"}, {"key": "of", "value": None}],
        },
        {"n": 4, "who": None, "at": datetime(1970, 1, 1, 0, 0, 2, 500_000, UTC), "said": None},
    ]


BAD = [
    ({"value": '{"ts": "1970-01-01T00:00:01", "k"'}, "JSON"),
    ({"value": '{"ts": "1970-01-01T00:00:01", "n": "many"}'}, "'n' is \"many\", which is no int64"),
    ({"value": '{"n": 1}'}, "no event time in 'ts'"),
    ({"value": None, "key": "k"}, "no value"),
    ({"value": "  "}, "no value"),
    ({"value": "[]"}, "not a JSON object"),
    ({"value": '{"ts": "1970-01-01T00:00:01", "n": 1}', "key": b"\xff"}, "the key is not UTF-8"),
]


def test_a_malformed_record_stops_the_run_with_its_place(servers: str, topic: str) -> None:
    write(servers, topic, [{"value": '{"ts": "1970-01-01T00:00:01"}', "partition": 2}])
    write(servers, topic, [{"value": "{", "partition": 2}])
    with pytest.raises(DataError, match=rf"{topic}\[2\], offset 1: .*the value is '{{'.*dead_letters"):
        whole(tg.start(bounded(servers, topic)), SCHEMA)


def test_malformed_records_are_set_aside_with_topic_partition_and_offset(
    servers: str, topic: str, tmp_path: Path
) -> None:
    good = {"value": '{"ts": "1970-01-01T00:00:01", "k": "a", "n": 1}', "key": "k", "partition": 1}
    write(servers, topic, [each for bad, _ in BAD for each in (good, {**bad, "partition": 1})])
    letters = tmp_path / "letters.jsonl"
    asked = tg.kafka(topic, servers=servers, key="who", until="latest")
    job = tg.start(tg.stream(asked, time="ts", schema=SCHEMA, dead_letters=letters))
    assert sum(table.num_rows for table in job) == len(BAD) and job.malformed == len(BAD)
    found = sorted(map(json.loads, letters.read_text().splitlines()), key=lambda letter: letter["offset"])
    assert [letter["offset"] for letter in found] == [2 * number + 1 for number in range(len(BAD))]
    for letter, (_, reason) in zip(found, BAD, strict=True):
        assert (letter["stream"], letter["topic"], letter["partition"]) == (topic, topic, 1)
        assert reason in letter["reason"]


def test_a_record_too_far_in_the_future_is_set_aside_and_moves_no_watermark(
    servers: str, topic: str, tmp_path: Path
) -> None:
    times = ["1970-01-01T00:00:01", "2400-01-01T00:00:00", "1970-01-01T00:00:02"]
    write(servers, topic, ({"value": json.dumps({"ts": time, "k": "a", "n": 1}), "partition": 3} for time in times))
    letters = tmp_path / "letters.jsonl"
    # The reader may come to the record before the job is in our hands.
    with pytest.warns(tg.errors.SetAsideWarning, match=rf"{topic}\[3\], offset 1"):
        job = tg.start(counted(bounded(servers, topic, dead_letters=letters)))
        assert sum(row["n"] for table in job for row in table.to_pylist()) == 10
    assert (job.ahead, job.late) == (1, 0)
    assert json.loads(letters.read_text())["offset"] == 1


def test_a_partition_out_of_order_is_an_error_unless_it_is_declared(servers: str, topic: str) -> None:
    times = ["1970-01-01T00:00:02", "1970-01-01T00:00:01"]
    for time in times:
        write(servers, topic, [{"value": json.dumps({"ts": time, "k": "a", "n": 1}), "partition": 0}])
    with pytest.raises(DataError, match=rf"declared sorted by 'ts', but {topic}\[0\], offset 1 has"):
        whole(tg.start(counted(bounded(servers, topic))), SCHEMA)
    job = tg.start(counted(bounded(servers, topic, disorder="1 second")))
    assert sum(row["n"] for table in job for row in table.to_pylist()) == 10


def test_a_topic_without_end_gives_results_until_it_is_stopped(servers: str, topic: str) -> None:
    table = calls(500)
    write_rows(servers, topic, table)
    made = counted(tg.stream(tg.kafka(topic, servers=servers), time="ts", schema=SCHEMA))
    job = tg.start(made)
    results = iter(job)
    tables = [next(results)]
    write_rows(
        servers, topic, pa.table([pa.array([9_000_000] * 4, pa.timestamp("us")), ["z"] * 4, [1] * 4], schema=SCHEMA)
    )
    for found in results:
        tables.append(found)
        if job.rows == 504:
            job.stop()
    assert sum(row["n"] for found in tables for row in found.to_pylist()) == 504 * 5


def test_a_run_whose_results_are_left_early_ends(servers: str, topic: str) -> None:
    write_rows(servers, topic, calls(500))
    with tg.start(tg.stream(tg.kafka(topic, servers=servers), time="ts", schema=SCHEMA)) as job:
        for _ in job:
            break
    assert job.cancelled
    assert not [each for each in threading.enumerate() if each.name.startswith("tidegate")]


def test_only_what_comes_is_read_from_the_latest_on(servers: str, topic: str) -> None:
    write_rows(servers, topic, calls(100))
    asked = tg.kafka(topic, servers=servers, start="latest", until="latest")
    assert whole(tg.start(tg.stream(asked, time="ts", schema=SCHEMA)), SCHEMA).num_rows == 0


def test_a_partition_that_holds_others_back_is_told_of(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "SILENT_SECONDS", 0.0)
    write_rows(servers, topic, calls(100), partitions=PARTITIONS - 1)
    job = tg.start(
        tg.stream(tg.kafka(topic, servers=servers), time="ts", schema=SCHEMA, name="calls"), to=lambda _: None
    )
    with pytest.warns(SilentPartitionWarning, match=rf"stream 'calls': {topic}\[3\] has brought no record") as told:
        while not job.notes:
            job.wait(0.01)
        job.stop()
        job.wait()
    assert len(told) == 1 and "holds back" in job.notes[0]


def test_a_topic_that_cannot_be_read_is_refused_at_the_start(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(servers, topic)
    with pytest.raises(DataError, match=f"topic 'nothing' on .* cannot be used: .*there is .*'{topic}'"):
        tg.start(bounded(servers, "nothing"))
    monkeypatch.setattr(kafka_client, "BROKER_SECONDS", 0.2)
    with pytest.raises(EnvironmentFault, match=r"no broker has told of it within 0 s; are the servers right"):
        tg.start(bounded("127.0.0.1:1", topic))
    with pytest.raises(EnvironmentFault, match="no consumer can be made: No such configuration property"):
        tg.start(tg.stream(tg.kafka(topic, servers=servers, config={"no.such": 1}), time="ts", schema=SCHEMA))
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(EnvironmentFault, match=r"pip install 'tidegate\[kafka\]'"):
        tg.start(bounded(servers, topic))
