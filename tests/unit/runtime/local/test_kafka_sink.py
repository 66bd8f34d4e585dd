"""Topics of Kafka for results, and runs that go on from snapshots: who reads what is committed gets every row once."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.kafka import AttemptProducer, make, mock_cluster, read, rows_of, with_isolation, write, write_rows
from tidegate.errors import CheckpointError, DataError, EnvironmentFault, QueryError, UnsupportedError
from tidegate.runtime.local import kafka_client, kafka_sink
from tidegate.runtime.local.kafka_sink import ToDurableKafka
from tidegate.runtime.local.sources import assignment
from tidegate.tables import json_rows
from tidegate.testing import answer

SCHEMA = pa.schema({"ts": pa.timestamp("us"), "k": pa.int64()})
SMALL: dict[str, Any] = {"segment_rows": 50, "waiting_rows": 100}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with mock_cluster() as address:
        yield address


@pytest.fixture(autouse=True)
def isolation() -> Iterator[None]:
    with with_isolation():
        yield


@pytest.fixture
def topic(servers: str) -> str:
    name = f"results-{uuid.uuid4().hex}"
    make(servers, name)
    return name


def calls(rows: int = 1_500, first: int = 0) -> pa.Table:
    drawn = np.random.default_rng(rows)
    times = first + np.sort(drawn.integers(0, 10_000_000, rows))
    return pa.table([pa.array(times, pa.timestamp("us")), drawn.integers(0, 9, rows)], schema=SCHEMA)


@pytest.fixture(scope="module")
def given(servers: str) -> str:
    """A topic of calls, and some time later of more."""
    write_rows(servers, "given", calls())
    return "given"


def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, after a while: a run lasts longer than it takes to end it."""
    if batch.num_rows:
        time.sleep(0.01)
    return batch


def counts(tuples: tg.Stream) -> tg.Stream:
    return tuples.map_batches(slowly).key_by("k").window("2 seconds", every="1 second").aggregate(n=tg.count())


def over_topic(servers: str, name: str, **how: Any) -> tg.Stream:
    return counts(tg.stream(tg.kafka(name, servers=servers, until="latest"), time="ts", schema=SCHEMA, **how))


def as_rows(objects: Any) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in objects)


def expected(tuples: pa.Table | None = None) -> list[str]:
    given = calls() if tuples is None else tuples
    return as_rows(json_rows(answer(counts(tg.stream(given, time="ts"))).rows))


def durable(servers: str, given: str, topic: str, checkpoint: Path, **how: Any) -> Any:
    to = tg.kafka(topic, servers=servers, key="k")
    return tg.start(over_topic(servers, given), to=to, checkpoint=checkpoint, **{**SMALL, "every": "5 ms", **how})


def test_results_are_records_with_the_key_that_is_asked_for(servers: str, given: str, topic: str) -> None:
    to = tg.kafka(topic, servers=servers, key="k")
    result = tg.run(over_topic(servers, given), on="local", to=to, progress=False)
    records = read(servers, topic)
    assert as_rows(json.loads(record.value()) for record in records) == expected()
    assert result.results == len(records) and result.to is None
    assert all(record.key() == str(json.loads(record.value())["k"]).encode() for record in records)
    with pytest.raises(tg.UserError, match="a topic"):
        result.read()


def test_several_results_have_topics_of_their_own(servers: str, given: str, topic: str, tmp_path: Path) -> None:
    counted = over_topic(servers, given)
    query = {"all": counted, "busy": counted.filter(nw.col("n") > 40)}
    for name in query:
        make(servers, f"{topic}.{name}")
    tg.start(query, to=tg.kafka(topic, servers=servers), checkpoint=tmp_path / "cp", every="5 ms", **SMALL).wait()
    rows = rows_of(servers, f"{topic}.all")
    assert as_rows(rows) == expected()
    assert as_rows(rows_of(servers, f"{topic}.busy")) == as_rows(row for row in rows if row["n"] > 40) != []


@pytest.mark.parametrize("durably", [False, True])
def test_a_topic_that_cannot_be_written_is_refused_at_the_start(
    servers: str, given: str, tmp_path: Path, durably: bool
) -> None:
    checkpoint = tmp_path / "cp" if durably else None
    with pytest.raises(DataError, match=r"topic 'nowhere' on .* cannot be used"):
        tg.start(over_topic(servers, given), to=tg.kafka("nowhere", servers=servers), checkpoint=checkpoint)
    with pytest.raises(QueryError, match=r"key='who' is no column of the result: 'ts', 'k', .*'n'"):
        tg.start(over_topic(servers, given), to=tg.kafka("any", servers=servers, key="who"), checkpoint=checkpoint)


def test_a_run_that_was_cancelled_goes_on_with_other_instances(
    servers: str, given: str, topic: str, tmp_path: Path
) -> None:
    runs = 0
    while True:
        job = durable(servers, given, topic, tmp_path / "cp", instances=1 + runs % 3)
        first = job.running.durable.checkpoint.last
        while not job.ended and (runs > 2 or job.running.durable.checkpoint.last is first):
            job.wait(0.002)
        job.cancel()
        runs += 1
        if not job.cancelled:
            break
    assert runs == 4 and as_rows(rows_of(servers, topic)) == expected()
    durable(servers, given, topic, tmp_path / "cp").wait()
    assert as_rows(rows_of(servers, topic)) == expected()


class Killed(Exception):
    """What stands for the end of the process."""


def before_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Any, number: int, parts: Any) -> None:
        raise Killed

    monkeypatch.setattr(ToDurableKafka, "_write", killed)


def within_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Any, timeout: float) -> None:
        raise Killed

    monkeypatch.setattr(AttemptProducer, "commit_transaction", killed, raising=False)


def behind_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Any, parts: Any) -> None:
        if parts:
            raise Killed

    monkeypatch.setattr(ToDurableKafka, "_forget", killed)


@pytest.mark.parametrize("kill", [before_the_transaction, within_the_transaction, behind_the_transaction])
def test_the_transaction_of_a_snapshot_is_committed_once(
    servers: str, given: str, topic: str, tmp_path: Path, kill: Callable[[pytest.MonkeyPatch], None]
) -> None:
    for again in range(2):
        with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
            kill(patched)
            # The second run is killed while it goes on from the snapshot, or at a later one.
            durable(servers, given, topic, tmp_path / "cp", instances=1 + again).wait()
    left = list((tmp_path / "cp" / "results").glob(".draft-*"))
    assert left
    durable(servers, given, topic, tmp_path / "cp", instances=3).wait()
    assert as_rows(rows_of(servers, topic)) == expected()
    assert not list((tmp_path / "cp" / "results").glob(".draft-*"))


def test_what_a_consumer_without_isolation_gets_is_what_was_aborted_too(
    servers: str, given: str, topic: str, tmp_path: Path
) -> None:
    """The tests above would not notice a transaction that is written twice if there were nothing to leave out."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        within_the_transaction(patched)
        durable(servers, given, topic, tmp_path / "cp").wait()
    assert rows_of(servers, topic) == []
    assert list(kafka_client.committed_records(tg.kafka(topic, servers=servers), {}))


def test_records_that_come_between_two_runs_are_not_read_by_a_bounded_one(
    servers: str, topic: str, tmp_path: Path
) -> None:
    name = f"given-{uuid.uuid4().hex}"
    write_rows(servers, name, calls())
    half_done(servers, name, topic, tmp_path / "cp")
    write_rows(servers, name, calls(100, first=20_000_000))
    durable(servers, name, topic, tmp_path / "cp").wait()
    assert as_rows(rows_of(servers, topic)) == expected()


def half_done(servers: str, given: str, topic: str, checkpoint: Path) -> None:
    """Leave a run behind its first snapshot after a record."""
    job = durable(servers, given, topic, checkpoint, instances=1)
    while not job.ended:
        last = job.running.durable.checkpoint.last
        if last is not None and any(each.last >= 0 for each in last.positions[0].partitions):
            break
        job.wait(0.002)
    job.cancel()
    assert job.cancelled


def test_a_topic_that_is_not_what_it_was_is_refused(
    servers: str, given: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_done(servers, given, topic, tmp_path / "cp")
    offsets_of = assignment.offsets_of
    for low, high, why in (
        (10_000, 10_001, r"given\[\d\] was read up to offset \d+, and begins at 10,000 now: [\d,]+ records are gone"),
        (0, 0, r"given\[\d\] was read up to offset \d+, and ends at 0: the topic was made anew"),
    ):
        monkeypatch.setattr(assignment, "offsets_of", lambda *_, low=low, high=high: (low, high))
        with pytest.raises(CheckpointError, match=why):
            durable(servers, given, topic, tmp_path / "cp")
    monkeypatch.setattr(assignment, "offsets_of", offsets_of)
    monkeypatch.setattr(assignment, "partitions_of", lambda *_: [0, 1])
    with pytest.raises(CheckpointError, match=r"given\[2\] was read before, and topic 'given' on .* does not have it"):
        durable(servers, given, topic, tmp_path / "cp")
    monkeypatch.undo()
    with mock_cluster() as others:
        write_rows(others, given, calls())
        make(others, topic)
        with pytest.raises(CheckpointError, match=r"given\[\d\] has another record at offset \d+ than was read there"):
            durable(others, given, topic, tmp_path / "cp")
    with pytest.raises(CheckpointError, match="belongs to a run that writes topic"):
        durable(servers, given, given, tmp_path / "cp")
    durable(servers, given, topic, tmp_path / "cp").wait()
    assert as_rows(rows_of(servers, topic)) == expected()


def test_a_partition_that_is_added_is_read_from_its_first_record(
    servers: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"given-{uuid.uuid4().hex}"
    # Its tuples are newer than all others, so that none is late, however far the run before it came.
    added = calls(100, first=20_000_000)
    write_rows(servers, name, calls(), partitions=3)
    write(servers, name, ({"value": json.dumps(row), "partition": 3} for row in json_rows(added)))
    monkeypatch.setattr(assignment, "partitions_of", lambda *_: [0, 1, 2])
    half_done(servers, name, topic, tmp_path / "cp")
    monkeypatch.undo()
    job = durable(servers, name, topic, tmp_path / "cp")
    job.wait()
    positions = job.running.durable.checkpoint.last.positions[0].partitions
    assert [each.name for each in positions] == [f"{name}[{number}]" for number in range(4)]
    assert all(each.ended for each in positions)
    assert job.late == 0
    assert as_rows(rows_of(servers, topic)) == expected(pa.concat_tables([calls(), added]))


def test_results_that_brokers_have_lost_cannot_be_told_from_those_that_were_not_written(
    servers: str, given: str, topic: str, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        behind_the_transaction(patched)
        durable(servers, given, topic, tmp_path / "cp").wait()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kafka_sink, "offsets_of", lambda *_: (1_000_000, 1_000_000))
        with pytest.raises(CheckpointError, match=r"whether the results of snapshot \d+ are among them cannot be told"):
            durable(servers, given, topic, tmp_path / "cp")


def test_a_failure_of_brokers_ends_the_run_and_the_next_one_goes_on(
    servers: str, given: str, topic: str, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kafka_sink, "WRITE_SECONDS", 5.0)
        patched.setattr(kafka_sink, "records_of", lambda *_: iter([(None, b"x" * 2_000_000)]))
        with pytest.raises(EnvironmentFault, match=r"are not committed|cannot be written"):
            durable(servers, given, topic, tmp_path / "cp").wait()
    durable(servers, given, topic, tmp_path / "cp").wait()
    assert as_rows(rows_of(servers, topic)) == expected()


def test_what_is_not_a_topic_is_refused(servers: str, given: str, tmp_path: Path) -> None:
    query, topic = over_topic(servers, given), tg.kafka("any", servers=servers)
    for on, remedy in (("spark", r"writeStream.format\('kafka'\)"), ("reference", "name a folder")):
        with pytest.raises(UnsupportedError, match=remedy):
            tg.run(query, on=on, to=topic)
    with pytest.raises(UnsupportedError, match="stream 'given' reads neither files nor an Arrow table"):
        tg.run(query, on="reference")
    with pytest.raises(QueryError, match="is for results in a folder"):
        tg.start(query, to=topic, format="jsonl")
    letters = over_topic(servers, given, dead_letters=tmp_path / "letters.jsonl")
    with pytest.raises(UnsupportedError, match="a run that goes on would write some of them twice"):
        tg.start(letters, to=topic, checkpoint=tmp_path / "cp")
