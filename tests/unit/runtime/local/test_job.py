"""A job in this process: where tuples come from, where results go, how it ends, and what it says when it cannot."""

from __future__ import annotations

import gc
import json
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.kit.gates import until
from tidegate.errors import CheckpointError, DataError, QueryError, UnsupportedError, UserError
from tidegate.progress import Progress
from tidegate.sources.in_memory import Paced
from tidegate.testing import answer, difference

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = {"ts": TIME, "k": pa.string()}


def calls(times: list[int], key: str = "a") -> pa.Table:
    return pa.table({"ts": pa.array(times, pa.int64()).cast(TIME), "k": [key] * len(times)})


def counts(stream: tg.Stream) -> tg.Stream:
    return stream.key_by("k").window("10us").aggregate(n=tg.count())


def total(tables: Iterator[pa.Table] | list[pa.Table]) -> int:
    return sum(value for table in tables for value in table.column("n").to_pylist())


class Gated:
    """An origin that delivers one table, then waits to be let go."""

    def __init__(self, *tables: pa.Table) -> None:
        self.tables = tables
        self.go = threading.Event()

    def __iter__(self) -> Iterator[pa.Table]:
        yield self.tables[0]
        assert self.go.wait(30)
        yield from self.tables[1:]


def test_an_iterable_may_give_batches_tables_and_rows() -> None:
    table = calls([0, 1])
    items = [table.to_batches()[0], calls([2, 3]), {"ts": pa.scalar(4, pa.int64()).cast(TIME).as_py(), "k": "a"}]
    job = tg.start(counts(tg.stream(items, time="ts", schema=SCHEMA)))
    assert total(job) == 5


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number in range(5):
        pq.write_table(calls([number * 7, number * 7 + 3]), tmp_path / f"{number}.parquet")
    result = tg.run(counts(tg.stream(str(tmp_path), time="ts")), on="local", to=tmp_path / "out", progress=False)
    assert (result.rows, result.late, result.finished) == (10, 0, True)
    assert sum(result.read().column("n").to_pylist()) == 10


def test_json_lines_go_in_and_come_out(tmp_path: Path) -> None:
    lines = [json.dumps({"ts": f"2024-01-01T00:00:0{second}Z", "k": "a"}) for second in range(3)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    query = tg.stream(str(tmp_path / "in.jsonl"), time="ts").key_by("k").window("1 second").aggregate(n=tg.count())
    result = tg.run(query, on="local", to=tmp_path / "out.jsonl", progress=False)
    assert result.read().column("n").to_pylist() == [1, 1, 1]


def test_a_malformed_line_stops_the_run_with_file_and_line(tmp_path: Path) -> None:
    good = json.dumps({"ts": "2024-01-01T00:00:00Z", "k": "a"})
    path = tmp_path / "in.jsonl"
    path.write_text(f"{good}\n{good}\n")
    query = counts(tg.stream(str(path), time="ts"))
    path.write_text(f"{good}\n{{\n")
    with pytest.raises(DataError, match=r"in\.jsonl, line 2: not JSON"):
        tg.run(query, on="local", to=tmp_path / "out", progress=False)


def test_an_unsorted_source_is_an_error_that_names_the_row() -> None:
    job = tg.start(counts(tg.stream(calls([5, 9, 7]), time="ts", name="calls")))
    with pytest.raises(
        DataError, match=r"'calls' is declared sorted by 'ts', but row 2 has .*000007 after .*000009; sort it"
    ):
        job.wait()


def test_a_source_that_declares_disorder_may_be_unsorted() -> None:
    job = tg.start(counts(tg.stream(calls([5, 19, 7, 60, 1]), time="ts", disorder="20us")))
    assert total(job) == 5
    assert job.late == 0


def test_an_instance_that_raises_ends_the_run_with_its_error() -> None:
    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            raise ZeroDivisionError("the user's own mistake")
        return batch

    job = tg.start(
        counts(tg.stream(calls(list(range(500))), time="ts").map_batches(fails)), segment_rows=10, instances=3
    )
    with pytest.raises(ZeroDivisionError, match="own mistake"):
        job.wait(30)


def test_a_source_waits_when_as_many_tuples_do_as_are_allowed() -> None:
    begun, go, given = threading.Event(), threading.Event(), [0]

    def held(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            begun.set()
            assert go.wait(30)
        return batch

    def origin() -> Iterator[pa.RecordBatch]:
        for start in range(0, 5_000, 10):
            given[0] += 10
            yield from calls(list(range(start, start + 10))).to_batches()

    stream = tg.stream(origin(), time="ts", schema=SCHEMA).map_batches(held)
    job = tg.start(counts(stream), instances=1, segment_rows=10, linger_seconds=0, waiting_rows=100)
    assert begun.wait(30)
    before = -1
    while given[0] != before:
        before = given[0]
        time.sleep(0.2)
    assert before < 500, "a source may be ahead by what waits, and by a batch or two"
    go.set()
    assert total(job) == 5_000
    with pytest.raises(QueryError, match="waiting_rows is at least 1; got 0"):
        tg.start(counts(tg.stream(calls([1]), time="ts")), waiting_rows=0)


def test_an_output_that_raises_ends_the_run_with_its_error() -> None:
    def full(table: pa.Table) -> None:
        raise OSError("no space left on device")

    job = tg.start(counts(tg.stream(calls(list(range(500))), time="ts")), to=full)
    with pytest.raises(OSError, match="no space left"):
        job.wait(30)


def test_a_reconfiguration_returns_when_it_is_done_and_moves_nothing() -> None:
    #  0 … 99 | 1 → 4 instances | 4 → 2 | 100 … 199
    origin = Gated(calls(list(range(100))), calls(list(range(100, 200)), "b"))
    job = tg.start(counts(tg.stream(origin, time="ts", schema=SCHEMA)), instances=(1, 4))
    wider = job.reconfigure(instances=4)
    assert (wider.epoch, wider.instances, wider.state_bytes_moved) == (1, 4, 0)
    assert 0 <= wider.stood_still_seconds <= wider.seconds
    assert list(job.instances.values()) == [4]
    narrower = job.reconfigure(instances=2, mapping=[shard % 2 for shard in range(256)])
    assert (narrower.epoch, narrower.instances) == (2, 2)
    origin.go.set()
    assert total(job) == 200


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"instances": 5}, "1 to 4"),
        ({"instances": 0}, "1 to 4"),
        ({"mapping": [0] * 255}, "each of the 256 shards"),
        ({"mapping": [0] * 255 + [1]}, "0 to 0; got 0 to 1"),
        ({"instances": 2, "subquery": "nosuch"}, "choose one of 'aggregate_1'"),
    ],
)
def test_a_reconfiguration_that_cannot_be_is_refused(asked: dict[str, object], message: str) -> None:
    origin = Gated(calls([0]), calls([1]))
    job = tg.start(counts(tg.stream(origin, time="ts", schema=SCHEMA)), instances=(1, 4))
    with pytest.raises(QueryError, match=message):
        job.reconfigure(**asked)  # type: ignore[arg-type]
    origin.go.set()
    assert total(job) == 2


def test_after_the_end_of_input_nothing_is_reconfigured() -> None:
    job = tg.start(counts(tg.stream(calls([0]), time="ts")), instances=(1, 4), to=lambda table: None)
    job.wait()
    with pytest.raises(UserError, match="end of the input"):
        job.reconfigure(instances=2)


def test_stop_ends_the_input_and_hands_out_every_window() -> None:
    origin = Gated(calls([0, 1, 2]), calls([50]))
    job = tg.start(counts(tg.stream(origin, time="ts", schema=SCHEMA)))
    until(lambda: job.rows == 3)
    job.stop()
    origin.go.set()
    assert total(job) == 3


def test_cancel_ends_the_run_at_once() -> None:
    origin = Gated(calls([0, 1, 2]), calls([50]))
    made: list[pa.Table] = []
    job = tg.start(counts(tg.stream(origin, time="ts", schema=SCHEMA)), to=made.append)
    origin.go.set()
    job.cancel()
    assert job.wait(30)


def test_cancel_does_not_wait_for_results_to_be_taken() -> None:
    query = tg.stream(calls(list(range(5_000))), time="ts").key_by("k").window("1us").aggregate(n=tg.count())
    job = tg.start(query, segment_rows=10)
    next(iter(job))
    job.cancel()
    assert job.wait(30)


def test_a_run_that_fails_leaves_no_half_part(tmp_path: Path) -> None:
    def breaks(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows and batch.column("ts")[0].value >= 400:
            raise ValueError("far into the input")
        return batch

    query = counts(tg.stream(calls(list(range(500))), time="ts")).map_batches(breaks)
    job = tg.start(query, to=tmp_path / "out", segment_rows=10)
    with pytest.raises(ValueError, match="far into"):
        job.wait(30)
    assert list((tmp_path / "out").glob("*")) == []


def test_latency_is_measured_from_when_the_releasing_tuple_was_due() -> None:
    # The window [0, 10) is released by the tuple at 12, due 50 ms after the start.
    batches = [(0.0, calls([0, 5])), (0.05, calls([12])), (0.06, calls([40]))]
    paced = Paced([(due, table.to_batches()[0]) for due, table in batches])
    told: list[Progress] = []
    job = tg.start(counts(tg.stream(paced, time="ts", schema=SCHEMA)), instances=1, progress=told.append)
    assert total(job) == 4
    latency = job.latencies.quantile(0.0)
    assert latency is not None and 0 <= latency < 10
    assert [each.ended for each in told] == [True]
    assert told[0].latency_p50_seconds is not None and "latency" in str(told[0])


def test_results_are_not_mixed_with_those_of_another_run(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"")
    with pytest.raises(CheckpointError, match="not empty"):
        tg.run(counts(tg.stream(calls([0]), time="ts")), on="local", to=tmp_path)


def test_a_stream_without_anything_to_read_is_refused() -> None:
    job = tg.start(counts(tg.stream(SCHEMA, time="ts", name="calls")), to=lambda table: None)
    with pytest.raises(UnsupportedError, match="'calls' has a schema and nothing to read"):
        job.wait(30)


def test_instances_are_for_this_process_alone() -> None:
    with pytest.raises(QueryError, match="instances=2 is for on='local'"):
        tg.run(counts(tg.stream(calls([0]), time="ts")), on="reference", instances=2)


def test_event_time_may_have_any_zone() -> None:
    table = calls([0, 1, 12])
    zoned = table.set_column(0, "ts", table.column("ts").cast(pa.timestamp("us", tz="Europe/Stockholm")))
    assert total(tg.start(counts(tg.stream(zoned, time="ts")))) == 3


def test_an_empty_input_gives_no_results() -> None:
    job = tg.start(counts(tg.stream(calls([0]).slice(1), time="ts").filter(nw.col("k") == "a")))
    assert list(job) == []


def test_a_job_that_has_ended_lets_go_of_everything_with_its_last_reference() -> None:
    class Taken(list[pa.Table]):
        """A list that can be watched."""

    rows = pa.table({"ts": pa.array(range(100), pa.timestamp("us")), "k": [1] * 100})
    taken = Taken()
    watched = weakref.ref(taken)
    query = tg.stream(rows, time="ts").key_by("k").window("10 us").aggregate(n=tg.count())
    gc.disable()
    try:
        tg.start(query, to=taken.append).wait()
        assert sum(table.num_rows for table in taken) == 10
        del taken
        assert watched() is None, "nothing may wait for a garbage collection"
    finally:
        gc.enable()


def test_columns_that_nothing_reads_leave_no_trace_where_results_and_a_source_meet() -> None:
    """A filter keeps all columns of what it gets, and the join behind the union was promised those that it reads."""
    calls = pa.table(
        {"ts": pa.array([0, 1, 2, 2_000], pa.timestamp("us", tz="UTC")), "k": [*"abaa"], "n": [1, 2, 3, 4]}
    )
    stream = tg.stream(calls, time="ts", name="calls")
    sums = stream.key_by("k").window("1000 us").aggregate(n=tg.sum("n")).select("ts", "k", "n")
    both = stream.union(sums.filter(nw.col("n") > 0))
    query = both.join(stream, on="k", within="700 us").select("ts", "k")
    made: list[pa.Table] = []
    tg.run(query, on="local", to=made.append, progress=False)
    told = difference(pa.concat_tables(made), answer(query).rows)
    assert told is None, told
