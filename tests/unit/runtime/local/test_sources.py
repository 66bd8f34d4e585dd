"""Sources in this process: iterables, schedules, heartbeats, and what they say when a promise is broken."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import DataError, QueryError
from tidegate.query.builder import source
from tidegate.runtime.local.sources.arrivals import Arrival, ReadOptions, arrivals_of
from tidegate.sources import Rejects
from tidegate.sources.in_memory import Heartbeat

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = {"ts": TIME, "k": pa.string()}


def row(time: int, key: str = "a") -> dict[str, Any]:
    return {"ts": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time), "k": key}


def table(*times: int) -> pa.Table:
    return pa.table({"ts": pa.array(times, pa.int64()).cast(TIME), "k": ["a"] * len(times)})


def counts(origin: Any, **options: Any) -> tg.Stream:
    return tg.stream(origin, time="ts", name="calls", **options).key_by("k").window("10us").aggregate(n=tg.count())


def arrivals(origin: Any, rows: int = 100, linger_seconds: float = 0.5) -> list[Any]:
    """What arrives from an iterable: numbers of rows, and heartbeats."""
    reading = ReadOptions(rows, Rejects("calls"), linger_seconds)
    found = list(arrivals_of(source("calls", SCHEMA, time="ts", origin=origin), reading))
    return [each.what if isinstance(each.what, Heartbeat) else each.what.batch.num_rows for each in found]


# Gathering.


def test_dicts_share_batches() -> None:
    rows = [row(time) for time in range(250)]
    assert arrivals(rows) == [100, 100, 50]
    assert arrivals(iter(rows)) == [100, 100, 50]
    assert arrivals(tg.marked(iter(rows))) == [100, 100, 50]


def test_small_batches_are_gathered_and_large_ones_left_alone() -> None:
    small = [table(*range(n * 10, n * 10 + 10)) for n in range(25)]
    assert arrivals(small) == [100, 100, 50]
    assert arrivals(iter([*small, row(300)])) == [100, 100, 51]
    large = table(*range(5_000))
    assert arrivals([row(0), large, table(5_001)], rows=10_000) == [1, 5_000, 1]


def test_heartbeats_stay_where_they_are() -> None:
    items = [row(1), row(2), Heartbeat(5), row(7), table(8), Heartbeat(9), Heartbeat(10)]
    for origin in (items, iter(items)):
        assert arrivals(origin) == [2, Heartbeat(5), 2, Heartbeat(9), Heartbeat(10)]
    # A table is not held back: who made it may rely on its being there when the next item is asked for.
    assert arrivals(tg.marked(items)) == [2, Heartbeat(5), 2, Heartbeat(9), Heartbeat(10)]


def test_nothing_is_gathered_without_linger() -> None:
    assert arrivals(iter([row(1), row(2), table(3)]), linger_seconds=0) == [1, 1, 1]
    with pytest.raises(QueryError, match="linger_seconds is 0 or more; got -1"):
        tg.start(counts([row(1)], schema=SCHEMA), linger_seconds=-1)


def test_what_has_come_does_not_wait_for_what_has_not() -> None:
    """The iterable blocks after its second row, whose arrival must not depend on the third."""
    seen, go = threading.Event(), threading.Event()

    def slow() -> Iterator[dict[str, Any]]:
        yield row(1)
        yield row(20)
        assert go.wait(30)

    job = tg.start(counts(slow(), schema=SCHEMA), to=lambda _: seen.set())
    assert seen.wait(30), "the window [0, 10) is over, and its result is held back"
    go.set()
    assert job.wait(30)


def test_an_iterable_that_raises_ends_the_run_with_its_error_and_is_named() -> None:
    def breaks() -> Iterator[dict[str, Any]]:
        yield row(1)
        raise ConnectionResetError("the broker is gone")

    for origin in (breaks(), tg.marked(breaks()), tg.paced(breaks(), rate=1e6)):
        job = tg.start(counts(origin, schema=SCHEMA), to=lambda _: None)
        with pytest.raises(ConnectionResetError) as ended:
            job.wait(30)
        assert ended.value.__notes__ == ["raised by the iterable of stream 'calls', after 1 items"]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([row(1), {"ts": "noon", "k": "a"}], r"'calls', row 1: \{'ts': 'noon', 'k': 'a'\} does not fit its columns"),
        ([table(1), 7], "'calls': an item of its iterable is int; give record batches, tables or dicts"),
        ([pa.table({"k": ["a"]})], r"'calls': the column 'ts' is not there; there are 'k'"),
        ([pa.table({"ts": ["x"], "k": ["a"]})], "'calls': the column 'ts' is string and does not fit timestamp"),
        ([row(1), {"k": "a"}], "'calls': row 1 has no event time in 'ts'"),
    ],
)
def test_an_item_that_does_not_fit_is_named(items: list[Any], message: str) -> None:
    for origin in (items, iter(items)):
        with pytest.raises(DataError, match=message):
            tg.start(counts(origin, schema=SCHEMA), to=lambda _: None).wait(30)


# Sorted, if declared so.


def csv_files(folder: Path) -> str:
    for name, seconds in (("1", (1, 3)), ("2", (5, 4))):
        lines = "".join(f"2024-01-01T00:00:0{second}Z,a\n" for second in seconds)
        (folder / f"{name}.csv").write_text(f"ts,k\n{lines}")
    return str(folder / "*.csv")


def json_files(folder: Path) -> str:
    for name, second in (("1", 3), ("2", 2)):
        (folder / f"{name}.jsonl").write_text(json.dumps({"ts": f"2024-01-01T00:00:0{second}Z", "k": "a"}) + "\n")
    return str(folder / "*.jsonl")


def parquet_files(folder: Path) -> str:
    pq.write_table(table(1, 2, 4, 3), folder / "1.parquet")
    return str(folder / "*.parquet")


UNSORTED: list[tuple[Callable[[Path], Any], str]] = [
    (csv_files, r"2\.csv, line 3 has 2024-01-01 00:00:04 after 2024-01-01 00:00:05"),
    (json_files, r"2\.jsonl, line 1 has 2024-01-01 00:00:02 after 2024-01-01 00:00:03"),
    (parquet_files, r"1\.parquet, row 3 has 1970-01-01 00:00:00.000003 after 1970-01-01 00:00:00.000004"),
    (lambda _: table(5, 9, 7), "row 2 has .*000007 after .*000009"),
    (lambda _: [row(5), row(9), row(7)], "row 2 has .*000007 after .*000009"),
    (lambda _: iter([table(5, 9), table(9, 10), table(3)]), "row 4 has .*000003 after .*000010"),
    (lambda _: tg.paced([table(5, 9), table(7)], every="1 ms"), "row 2 has .*000007 after .*000009"),
    (lambda _: [row(5), tg.heartbeat(8), row(7)], "row 1 has .*000007 after a heartbeat at .*000008"),
]


@pytest.mark.parametrize(("origin", "message"), UNSORTED)
def test_an_unsorted_source_is_an_error_that_names_the_row(
    origin: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    made = origin(tmp_path)
    schema = None if isinstance(made, str | pa.Table) else SCHEMA
    # Cut small, so that neighbours are in different batches too.
    for segment_rows in (1, 100) if isinstance(made, str | pa.Table | list) else (100,):
        job = tg.start(counts(made, schema=schema), to=lambda _: None, segment_rows=segment_rows)
        with pytest.raises(DataError, match=f"stream 'calls' is declared sorted by 'ts', but .*{message}; sort it"):
            job.wait(30)


@pytest.mark.parametrize("origin", [csv_files, json_files, parquet_files])
def test_disorder_that_is_declared_is_none(origin: Callable[[Path], Any], tmp_path: Path) -> None:
    job = tg.start(counts(origin(tmp_path), disorder="2 seconds"), to=lambda _: None)
    assert job.wait(30)
    assert job.late == 0


# Heartbeats, marks and schedules.


def test_a_heartbeat_is_a_moment_in_any_zone() -> None:
    assert tg.heartbeat(7) == Heartbeat(7)
    noon = datetime(1970, 1, 1, 12, tzinfo=UTC)
    east = timezone(timedelta(hours=2))
    for moment in (noon, noon.replace(tzinfo=None), noon.astimezone(east)):
        assert tg.heartbeat(moment) == Heartbeat(12 * 3_600_000_000)
    with pytest.raises(QueryError, match="time is a datetime or microseconds since the epoch; got '12:00'"):
        tg.heartbeat("12:00")  # type: ignore[arg-type]


def test_a_silent_stream_lets_the_others_go_on_by_heartbeats() -> None:
    seen, go = threading.Event(), threading.Event()

    def quiet() -> Iterator[Any]:
        yield tg.heartbeat(50)
        assert go.wait(30)

    def busy() -> Iterator[Any]:
        yield table(1, 30)
        assert go.wait(30)

    streams = [tg.stream(origin(), time="ts", schema=SCHEMA, name=origin.__name__) for origin in (quiet, busy)]
    query = streams[0].union(streams[1]).key_by("k").window("10us").aggregate(n=tg.count())
    job = tg.start(query, to=lambda _: seen.set())
    assert seen.wait(30), "a union waits for its silent side, in spite of the heartbeat"
    go.set()
    assert job.wait(30)


def test_marks_alone_move_the_watermark_of_a_marked_stream() -> None:
    #  7, 3 | W = 10 | 25 does not end [10, 20) | 12 is in time | W = 20 | 5 is late
    items = [row(7), row(3), tg.heartbeat(10), row(25), row(12), tg.heartbeat(20), row(5), tg.heartbeat(21)]
    job = tg.start(counts(tg.marked(items), schema=SCHEMA))
    assert [found for made in job for found in made.column("n").to_pylist()] == [2, 1, 1]
    assert job.late == 1


def test_a_schedule_says_when_each_item_is_due() -> None:
    batches = [table(1, 2, 3), tg.heartbeat(5), table(6), row(7)]
    assert [due for due, _ in tg.paced(batches, rate=100)] == [0.0, 0.03, 0.03, 0.04]
    assert [due for due, _ in tg.paced(batches, every="10 ms")] == [0.0, 0.01, 0.02, 0.03]
    assert list(tg.paced([(0.5, batches[0])])) == [(0.5, batches[0])]
    with pytest.raises(QueryError, match=r"rate=\.\.\. or every=\.\.\., not both"):
        tg.paced([], rate=1, every="1 ms")
    with pytest.raises(QueryError, match="above 0; got 0"):
        tg.paced([], rate=0)


def test_paced_items_keep_their_due_times() -> None:
    began = iter([100.0, 100.0, 100.0, 100.0])
    reading = ReadOptions(10, Rejects("calls"), clock=lambda: next(began, 101.0))
    origin = tg.paced([table(1), row(2), tg.heartbeat(3)], every="1 ms")
    found: list[Arrival] = list(arrivals_of(source("calls", SCHEMA, time="ts", origin=origin), reading))
    assert [each.due for each in found] == pytest.approx([100.0, 100.001, 100.002])
    assert tg.start(counts(origin, schema=SCHEMA), to=lambda _: None).wait(30)


# Dead letters, and the columns that are read.


def test_malformed_records_are_in_progress(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("ts,k\n2024-01-01T00:00:00Z,a\nnoon,a\n,\n")
    query = counts(str(tmp_path / "in.csv"), schema=SCHEMA, dead_letters=tmp_path / "dead.jsonl")
    seen: list[tg.Progress] = []
    result = tg.run(query, on="local", to=tmp_path / "out", progress=seen.append)
    assert (seen[-1].malformed_total, result.malformed) == (2, 2)
    assert "· 2 malformed ·" in str(seen[-1])


def test_dead_letters_must_be_possible(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("ts,k\n2024-01-01T00:00:00Z,a\n")
    pq.write_table(table(1), tmp_path / "in.parquet")
    with pytest.raises(QueryError, match="a parquet has none that could be told apart"):
        tg.stream(tmp_path / "in.parquet", time="ts", dead_letters=tmp_path / "dead.jsonl")
    with pytest.raises(QueryError, match="a Table has none"):
        tg.stream(table(1), time="ts", dead_letters=tmp_path / "dead.jsonl")
    with pytest.raises(QueryError, match="must be a file in a folder that exists"):
        tg.stream(tmp_path / "in.csv", time="ts", dead_letters=tmp_path / "nowhere" / "dead.jsonl")
    for origin in (tmp_path, tmp_path / "*.csv", tmp_path / "in.csv"):
        (tmp_path / "in.parquet").unlink(missing_ok=True)
        name = "in.csv" if origin.name == "in.csv" else "dead.csv"
        with pytest.raises(QueryError, match="would be read as input next time"):
            tg.stream(origin, time="ts", dead_letters=tmp_path / name)


def test_only_the_columns_that_are_used_are_read_from_parquet(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(table(1, 2, 13).append_column("unread", pa.array(["x" * 5_000] * 3)), path, use_dictionary=False)
    query = counts(str(path))
    # Whoever reads the column now gets an error.
    spoilt = path.read_bytes().replace(b"x" * 5_000, b"\xff" * 5_000)
    where = pq.ParquetFile(path).metadata.row_group(0).column(2).data_page_offset
    path.write_bytes(spoilt[:where] + b"\xff" * 16 + spoilt[where + 16 :])
    assert [n for made in tg.start(query) for n in made.column("n").to_pylist()] == [2, 1]
    job = tg.start(tg.stream(str(path), time="ts"), to=lambda _: None)
    with pytest.raises(DataError, match=r"in\.parquet does not hold rows"):
        job.wait(30)
