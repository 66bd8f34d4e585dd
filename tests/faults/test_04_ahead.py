"""Tuples from the future: they are set aside and counted, and spoil neither the watermark nor any other tuple."""

from __future__ import annotations

import json
import os
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import DataError, QueryError, SetAsideWarning, UnsupportedError
from tidegate.progress import Progress
from tidegate.reference import Rows, interpret
from tidegate.testing import answer, difference

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = {"ts": TIME, "k": pa.int64()}
FAR = datetime(2200, 1, 1, tzinfo=UTC)
START = datetime(2024, 5, 1, tzinfo=UTC)


def table(times: list[datetime]) -> pa.Table:
    return pa.table({"ts": pa.array(times, TIME), "k": pa.array([n % 3 for n in range(len(times))], pa.int64())})


def disordered() -> list[datetime]:
    """200 tuples, one every second, each pair of neighbours swapped."""
    return [START + timedelta(seconds=number ^ 1) for number in range(200)]


def spoilt(at: int) -> pa.Table:
    """The same with one more from 2200 among them."""
    times = disordered()
    return table([*times[:at], FAR, *times[at:]])


def counted(origin: Any, **options: Any) -> tg.Stream:
    kept = {"disorder": "1 minute", **options}
    return tg.stream(origin, time="ts", **kept).key_by("k").window("10 seconds").aggregate(n=tg.count())


def without(at: int) -> pa.Table:
    whole = spoilt(at)
    return pa.concat_tables([whole.slice(0, at), whole.slice(at + 1)])


@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("at", [0, 3, 31, 200])
def test_nothing_else_is_late_in_process_whatever_the_batching(at: int, rows: int) -> None:
    stream = counted(spoilt(at).to_batches(rows), schema=SCHEMA)
    with pytest.warns(SetAsideWarning, match=rf"stream 'stream': row {at} has 2200-01-01 00:00:00 in 'ts'.*ahead=None"):
        job = tg.start(stream, segment_rows=rows)
        given = pa.concat_tables([stream.schema.empty_table(), *job])
    assert (job.rows, job.late, job.ahead, job.malformed) == (201, 0, 1, 0)
    assert difference(given, answer(counted(without(at))).rows) is None


def test_taken_it_would_ruin_the_stream() -> None:
    job = tg.start(counted(spoilt(31).to_batches(7), schema=SCHEMA, ahead=None), segment_rows=7)
    assert sum(made.num_rows for made in job) < 60
    assert job.late > 100


def test_a_sorted_stream_stays_sorted(tmp_path: Path) -> None:
    times = sorted(disordered())
    reports: list[Progress] = []
    query = counted(table([*times[:50], FAR, *times[50:120], FAR, *times[120:]]), disorder=0)
    with pytest.warns(SetAsideWarning) as warned:
        result = tg.run(query, on="local", to=tmp_path / "out", progress=reports.append)
    assert len(warned) == 1, "said once"
    assert (result.rows, result.late, result.ahead) == (202, 0, 2)
    assert "row 50 has 2200-01-01" in result.notes[0]
    assert reports[-1].ahead_total == 2
    assert "2 ahead" in str(reports[-1])
    whole = table(times).set_column(1, "k", pa.array([n % 3 for n in (*range(50), *range(51, 121), *range(122, 202))]))
    assert difference(result.read(), answer(counted(whole, disorder=0)).rows) is None


def test_the_law() -> None:
    query = counted(table([]), ahead="10 minutes")
    clock = START + timedelta(seconds=200)
    inside, outside = clock + timedelta(minutes=10), clock + timedelta(minutes=10, microseconds=1)
    given = table([START, inside, outside])
    law = interpret(query.node, [Rows("table", given, micros(clock))])
    assert (law.late, law.ahead) == (0, 1)
    assert [row["ts"] for row in law.ahead_tuples["table"]] == [micros(outside)]
    assert interpret(query.node, [Rows("table", given)]).ahead == 0, "without a clock nothing is in the future"
    with pytest.warns(SetAsideWarning):
        told = answer(query, {"table": given}, clock=clock)
    assert (told.ahead, told.rows.num_rows) == (1, 2)
    with pytest.warns(SetAsideWarning):
        assert answer(counted(spoilt(7))).ahead == 1, "now, unless told otherwise"


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_what_is_not_far_ahead_is_taken_and_so_is_everything_if_asked_for() -> None:
    soon, later = (datetime.now(UTC) + timedelta(minutes=minutes) for minutes in (59, 62))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job = tg.start(counted([{"ts": soon, "k": 1}], schema=SCHEMA))
        assert sum(made.num_rows for made in job) == 1
        job = tg.start(counted([{"ts": later, "k": 1}, {"ts": FAR, "k": 1}], schema=SCHEMA, ahead=None))
        assert sum(made.num_rows for made in job) == 2
    with pytest.warns(SetAsideWarning):
        job = tg.start(counted([{"ts": later, "k": 1}], schema=SCHEMA))
        assert sum(made.num_rows for made in job) == 0


@pytest.mark.parametrize("moment", [2**62, 2**63 - 2])
def test_a_time_that_no_calendar_has_is_set_aside_too(moment: int, tmp_path: Path) -> None:
    odd = pa.table({"ts": pa.array([1, moment], pa.int64()).view(TIME), "k": pa.array([1, 1], pa.int64())})
    with pytest.warns(SetAsideWarning):
        law = answer(counted(odd))
    assert (law.ahead, law.rows.num_rows) == (1, 1)
    for runtime in ("local", "reference"):
        with pytest.warns(SetAsideWarning, match=f"{moment} µs"):
            result = tg.run(counted(odd), on=runtime, to=tmp_path / runtime, progress=False)
        assert (result.ahead, result.results) == (1, 1)


def test_a_heartbeat_from_the_future_is_no_promise() -> None:
    items = [{"ts": START, "k": 1}, tg.heartbeat(FAR), {"ts": START + timedelta(seconds=30), "k": 1}]
    for origin in (items, tg.marked(items)):
        with pytest.warns(SetAsideWarning, match="a heartbeat says 2200-01-01 00:00:00"):
            job = tg.start(counted(origin, schema=SCHEMA))
            assert sum(made.num_rows for made in job) == 2
        assert (job.late, job.ahead) == (0, 1)


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_it_goes_to_the_dead_letters_of_a_stream_that_has_some(runtime: str, tmp_path: Path) -> None:
    lines = [json.dumps({"ts": f"{at:%Y-%m-%dT%H:%M:%SZ}", "k": 1}) for at in (START, FAR, START)]
    (tmp_path / "in.jsonl").write_text("\n".join([lines[0], "broken", *lines[1:]]) + "\n")
    letters = tmp_path / "letters.jsonl"
    query = counted(str(tmp_path / "in.jsonl"), dead_letters=letters, schema=SCHEMA)
    with pytest.warns(SetAsideWarning, match=r"in\.jsonl, line 3"):
        result = tg.run(query, on=runtime, to=tmp_path / "out", progress=False)
    assert (result.ahead, result.malformed, result.late) == (1, 1, 0)
    malformed, ahead = map(json.loads, letters.read_text().splitlines())
    assert (malformed["line"], ahead["line"]) == (2, 3)
    assert ahead["file"].endswith("in.jsonl")
    assert ahead["reason"].startswith("'ts' is 2200-01-01 00:00:00, more than 1 hour after the clock")
    assert json.loads(ahead["raw"]) == {"ts": "2200-01-01 00:00:00", "k": 1}


def test_held_against_the_stream_itself_it_stops_the_run() -> None:
    later = START + timedelta(minutes=30)
    for origin in (table([START, later, later + timedelta(minutes=61)]), table([later, START, FAR])):
        query = counted(origin, disorder="1 hour", ahead_of="stream")
        with pytest.raises(DataError, match=r"stream 'table': row 2 has .* more than 1 hour after .* 00:30:00"):
            list(tg.start(query))
        with pytest.raises(DataError, match=r"more than 1 hour after"):
            answer(query)
    fine = counted(table([FAR, FAR + timedelta(minutes=60)]), ahead_of="stream")
    assert sum(made.num_rows for made in tg.start(fine)) == 2
    with pytest.raises(UnsupportedError, match=r"ahead_of='stream'.*'table'"):
        tg.run(fine)


def test_heartbeats_are_part_of_the_stream() -> None:
    items = [{"ts": START, "k": 1}, *(tg.heartbeat(START + timedelta(minutes=40 * n)) for n in (1, 2))]
    last = {"ts": START + timedelta(minutes=120), "k": 1}
    assert sum(made.num_rows for made in tg.start(counted([*items, last], schema=SCHEMA, ahead_of="stream"))) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ahead": "-1 hour"}, "stream 'table': ahead"),
        ({"ahead": timedelta(seconds=-1)}, "stream 'table': ahead must not be negative"),
        ({"ahead_of": "batch"}, "stream 'table': ahead_of is 'clock' or 'stream'; got 'batch'"),
        ({"ahead": None, "ahead_of": "stream"}, "stream 'table': ahead_of='stream' goes with ahead="),
    ],
)
def test_what_is_no_bound_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        counted(table([START]), **options)


@pytest.mark.spark
def test_nothing_else_is_late_on_spark_whatever_the_batching(spark: Any, tmp_path: Path) -> None:
    whole = spoilt(31)
    for number in range(3):
        file = tmp_path / f"in-{number}.parquet"
        pq.write_table(whole.slice(number * 70, 70), file)
        os.utime(file, (1_700_000_000 + 2 * number,) * 2)
    query = counted(str(tmp_path / "in-*.parquet"))
    with pytest.warns(SetAsideWarning, match=r"stream '.*': 1 tuple lies more than 1 hour after the clock"):
        result = tg.run(query, to=tmp_path / "out", spark=spark, files_per_batch=1, progress=False)
    assert result.batches >= 3
    assert (result.late, result.ahead) == (0, 1)
    assert difference(result.read(), answer(counted(without(31))).rows) is None


@pytest.mark.spark
def test_a_stream_that_spark_reads_twice_is_counted_once(spark: Any, tmp_path: Path) -> None:
    whole = spoilt(31)
    naive = whole.set_column(0, "ts", whole.column("ts").cast(pa.timestamp("us")))
    stream = tg.stream(naive, time="ts", disorder="1 minute")
    query = stream.join(stream, on="k", within="1 second")
    with pytest.warns(SetAsideWarning):
        result = tg.run(query, to=tmp_path / "out", spark=spark, progress=False)
    assert (result.late, result.ahead) == (0, 1)
