"""Late tuples that a job in this process writes: which, where, with what, and whatever way the run ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.kit.gates import until
from tests.kit.late_files import check_late_files, late_files, late_rows
from tests.kit.local_runs import LocalRun, run_in_step
from tidegate.cli.main import main
from tidegate.errors import CheckpointError, EnvironmentFault, QueryError
from tidegate.late_tuples import LateFolder
from tidegate.reference import Advance, Rows, interpret
from tidegate.runtime.local import late_buffer
from tidegate.runtime.local.job import LocalJob
from tidegate.runtime.local.settings import Settings
from tidegate.watermark import END

TIME = pa.timestamp("us")
SCHEMA = {"ts": TIME, "k": pa.string(), "n": pa.int64()}
Stream = tg.Stream


def tuples(*times: int, n: int = 0) -> pa.Table:
    return pa.table(
        {"ts": pa.array(times, TIME), "k": [f"k{time % 2}" for time in times], "n": [n] * len(times)},
        schema=pa.schema(SCHEMA),
    )


def stream(name: str = "s", schema: dict[str, Any] = SCHEMA) -> Stream:
    return tg.stream(schema, time="ts", name=name)


def both(first: list[int], second: list[int]) -> list[dict[str, list[pa.Table]]]:
    """Two batches of one stream; the watermark between them is the last time of the first."""
    return [{"s": [tuples(*first)]}, {"s": [tuples(*second)]}]


@dataclass
class Changing:
    """Asks for other numbers of instances all the time."""

    numbers: Iterator[int] = field(default_factory=lambda: cycle([3, 1, 5, 2, 4, 1, 6]))

    def __call__(self, job: LocalJob, batch: int) -> None:
        for running in job.running.graph.subqueries:
            running.ask(next(self.numbers), None)


def run(query: Stream, batches: list[dict[str, list[pa.Table]]], folder: Path, **settings: Any) -> LocalRun:
    """Run in steps with instances that change; what is late must be what the law says."""
    how = Settings(3, split_panes=0, split_pairs=0, split_keys=0, late_to=LateFolder(folder), **settings)
    done = run_in_step(query.node, batches, how, Changing())
    events: list[Any] = []
    latest: dict[str, int] = {}
    names = {name for batch in batches for name in batch}
    for batch in batches:
        for name, tables in batch.items():
            events += [Rows(name, table) for table in tables]
            times = [time for table in tables for time in table.column("ts").cast(pa.int64()).to_pylist()]
            latest[name] = max([latest.get(name, -(2**63)), *times])
        events.append(Advance(min(latest.get(name, -(2**63)) for name in names)))
    check_late_files(done.job.late, done.job.running.plan, folder, interpret(query.node, [*events, Advance(END)]))
    return done


def test_a_tuple_too_late_for_its_window_is_written_with_the_watermark(tmp_path: Path) -> None:
    """
    ::

        windows    [0 10) [10 20) [20 30)
        watermark                  25
        then        3  9   15      22  31      3, 9 and 15 are late; the window of 22 is open
    """
    query = stream().key_by("k").window("10us").aggregate(n=tg.count(), name="counts")
    done = run(query, both([25], [3, 9, 15, 22, 31]), tmp_path)
    assert late_rows(tmp_path, "counts", 0, "ts", "missed_watermark") == [(3, 25), (9, 25), (15, 25)]
    assert done.job.late == 3
    assert pq.read_schema(tmp_path / "counts" / "0-00000.parquet").names == ["ts", "k", "n", "missed_watermark"]


@pytest.mark.parametrize(("size", "every", "first"), [(6, 2, 8), (5, 2, 10), (7, 7, 7), (1, 1, 13)])
def test_a_tuple_is_late_when_its_last_window_has_expired(tmp_path: Path, size: int, every: int, first: int) -> None:
    """The watermark is 13; ``first`` is the beginning of the first window that ends after it."""
    query = stream().key_by("k").window(f"{size}us", every=f"{every}us").aggregate(n=tg.count(), name="counts")
    run(query, both([13], list(range(20))), tmp_path)
    assert late_rows(tmp_path, "counts", 0, "ts") == [(time,) for time in range(first)]


def test_what_refines_a_window_is_not_late(tmp_path: Path) -> None:
    windows = stream().key_by("k").window("5us", every="2us", lateness="4us")
    run(windows.aggregate(n=tg.count(), name="counts"), both([13], list(range(20))), tmp_path)
    assert late_rows(tmp_path, "counts", 0, "ts", "missed_watermark") == [(time, 13) for time in range(6)]


def test_a_join_within_a_distance_writes_each_side_apart(tmp_path: Path) -> None:
    other = stream("other").select("ts", "n", other=nw.col("k"))
    query = stream().join(other, on="n", within="10us", name="pairs")
    batches = [
        {"s": [tuples(20)], "other": [tuples(22)]},
        {"s": [tuples(19, 20)], "other": [tuples(3, 21, 19)]},
    ]
    run(query, batches, tmp_path)
    assert late_rows(tmp_path, "pairs", 0) == [(19, "k1", 0, 20)]
    assert late_rows(tmp_path, "pairs", 1, "ts", "other") == [(3, "k1"), (19, "k1")]


def test_a_self_join_over_windows_writes_a_tuple_for_both_sides(tmp_path: Path) -> None:
    one = stream()
    query = one.join(one, window="10us", every="5us", where=lambda l, r: l.n <= r.n, name="pairs")
    done = run(query, both([17], [4, 9, 10]), tmp_path)
    assert late_rows(tmp_path, "pairs", 0, "ts") == late_rows(tmp_path, "pairs", 1, "ts") == [(4,), (9,)]
    assert done.job.late == 4


def test_an_apply_writes_what_was_not_settled_in_time(tmp_path: Path) -> None:
    clicks = stream("clicks", {"ts": TIME, "k": pa.string(), "page": pa.string()})
    query = (
        tg.gather(stream().key_by("k"), clicks.key_by("k"))
        .window("1 hour")
        .apply(
            update=lambda window, arriving: None,
            state={"seen": pa.int64()},
            returns={"seen": pa.int64()},
            output=lambda window: {"seen": 0},
            name="visits",
        )
    )
    pages = [
        tuples(*times).select(["ts", "k"]).append_column("page", pa.array(["p"] * 2)) for times in ((20, 21), (7, 30))
    ]
    run(query, [{"s": [tuples(25)], "clicks": [pages[0]]}, {"s": [tuples(20, 21, 22)], "clicks": [pages[1]]}], tmp_path)
    assert late_rows(tmp_path, "visits", 0, "ts", "n", "missed_watermark") == [(20, 0, 21)]
    assert late_rows(tmp_path, "visits", 1, "ts", "page", "missed_watermark") == [(7, "p", 21)]


def test_tuples_are_written_as_the_step_reads_them_with_columns_that_nothing_reads(tmp_path: Path) -> None:
    words = (
        stream().filter(nw.col("ts").is_null() | (nw.col("k") == "k1")).with_columns(words=nw.col("k").str.split("k"))
    )
    query = words.key_by(tg.each("words", name="word")).window("10us").aggregate(c=tg.count(), name="counts")
    run(query, both([25], [1, 2, 3]), tmp_path)
    assert late_rows(tmp_path, "counts") == [(1, "k1", 0, ["", "1"], 25), (3, "k1", 0, ["", "1"], 25)]


def test_feeds_of_a_union_have_files_of_their_own(tmp_path: Path) -> None:
    query = stream().union(stream("t")).key_by("k").window("10us").aggregate(c=tg.count(), name="counts")
    run(query, [{"s": [tuples(25)], "t": [tuples(25)]}, {"s": [tuples(1)], "t": [tuples(2, 3)]}], tmp_path)
    assert late_rows(tmp_path, "counts", 0, "ts") == [(1,)]
    assert late_rows(tmp_path, "counts", 1, "ts") == [(2,), (3,)]


def test_results_of_another_step_are_never_late(tmp_path: Path) -> None:
    """The join has a watermark of its own, which follows that of the counts at its own pace."""
    one = stream()
    counts = one.key_by("k").window("10us").aggregate(n=tg.count(), name="counts")
    query = counts.select("ts", "k", "n").join(one, on="k", within="10us", name="pairs")
    batches = [{"s": [tuples(*range(at, at + 40, 5), max(at - 60, 0))]} for at in range(0, 4_000, 40)]
    how = Settings(2, late_to=LateFolder(tmp_path))
    done = run_in_step(query.node, batches, how, Changing())
    late = {step: late_rows(tmp_path, step, position) for step, position in (("counts", 0), ("pairs", 1))}
    assert (len(late["counts"]), len(late["counts"]) + len(late["pairs"])) == (99, done.job.late)
    assert late_rows(tmp_path, "pairs", 0) == []


def test_nothing_is_written_where_nothing_is_late(tmp_path: Path) -> None:
    query = stream().key_by("k").window("10us").aggregate(n=tg.count())
    assert run(query, both([5], [5, 6]), tmp_path).job.late == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("segment_rows", [1, 7, 65_536])
def test_every_late_tuple_is_written_once_whatever_instances_do(
    tmp_path: Path, segment_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_buffer, "ROWS_PER_FILE", 10)
    query = stream().key_by("k").window("10us").aggregate(c=tg.count(), name="counts")
    batches = [{"s": [tuples(100 * at, *range(max(0, 100 * at - 300), 100 * at, 9), n=at)]} for at in range(20)]
    done = run(query, batches, tmp_path, segment_rows=segment_rows)
    assert done.job.late > 100
    assert len(late_files(tmp_path)["counts"]) > 2


# From here on as users see it.


def marked(*items: object) -> Stream:
    return tg.stream(tg.marked(list(items)), time="ts", schema=SCHEMA, name="s")


def counts(of: Stream) -> Stream:
    return of.key_by("k").window("10us").aggregate(c=tg.count(), name="counts")


LATE = (tuples(5, 25), tg.heartbeat(25), tuples(3, 26))


def test_a_run_to_its_end_writes_them(tmp_path: Path) -> None:
    out, late = tmp_path / "out", tmp_path / "deep" / "late"
    result = tg.run(counts(marked(*LATE)), on="local", to=out, late_to=late, progress=False)
    assert (result.late, sum(result.read().column("c").to_pylist())) == (1, 3)
    assert late_rows(late, "counts") == [(3, "k1", 0, 25)]


def test_they_are_there_soon_after_they_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.runtime.local.sinks.SECONDS_BETWEEN_REPORTS", 0.0)
    goes_on = threading.Event()

    def items() -> Iterator[object]:
        yield from LATE
        yield tg.heartbeat(60)
        assert goes_on.wait(30)

    query = counts(tg.stream(tg.marked(items()), time="ts", schema=SCHEMA))
    with tg.start(query, to=lambda _: None, late_to=str(tmp_path)) as job:
        until(lambda: late_rows(tmp_path, "counts") == [(3, "k1", 0, 25)])
        goes_on.set()
    assert job.late == 1


def waiting(goes_on: threading.Event, *after: object) -> Iterator[object]:
    yield from LATE
    yield tg.heartbeat(27)
    assert goes_on.wait(30)
    yield from after


@pytest.mark.parametrize("how", ["stopped", "cancelled", "failed"])
def test_nothing_is_lost_however_a_run_ends(tmp_path: Path, how: str) -> None:
    goes_on = threading.Event()
    origin = tg.marked(waiting(goes_on, {"ts": "no time"}))
    job = tg.start(
        counts(tg.stream(origin, time="ts", schema=SCHEMA)), to=lambda _: None, late_to=tmp_path, linger_seconds=0.0
    )
    until(lambda: job.late == 1)
    assert late_files(tmp_path) == {}
    if how == "failed":
        goes_on.set()
        with pytest.raises(Exception, match="no time"):
            job.wait(30)
    elif how == "stopped":
        job.stop()
        assert job.wait(30)
    else:
        job.cancel()
    goes_on.set()
    assert late_rows(tmp_path, "counts") == [(3, "k1", 0, 25)]


def test_what_is_found_late_after_the_end_of_a_failed_run_is_written_too(tmp_path: Path) -> None:
    buffer = late_buffer.LateBuffer(LateFolder(tmp_path))
    buffer.add("counts", 0, tuples(1))
    buffer.close()
    buffer.add("counts", 0, tuples(2))
    assert [file.name for file in late_files(tmp_path)["counts"]] == ["0-00000.parquet", "0-00001.parquet"]


def test_a_run_that_cannot_write_them_fails_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    job = tg.start(counts(marked(*LATE)), to=lambda _: monkeypatch.setattr(pq, "write_table", fails), late_to=tmp_path)
    with pytest.raises(EnvironmentFault, match=r"late tuples of step 'counts' cannot be written to .*No space left"):
        job.wait(30)


# What is refused, before anything runs.


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "counts").mkdir()
    with pytest.raises(CheckpointError, match=r"is not empty: the late tuples of two runs would be mixed"):
        tg.start(counts(marked(*LATE)), late_to=tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"late tuples cannot be written to .*choose another folder"):
        tg.start(counts(marked(*LATE)), late_to=tmp_path / "file" / "late")


@pytest.mark.parametrize(
    ("to", "late_to"), [("out", "out"), ("out", "out/late"), ("late/out", "late"), ("out", "x/../out")]
)
def test_late_tuples_and_results_lie_apart(tmp_path: Path, to: str, late_to: str) -> None:
    with pytest.raises(QueryError, match=r"late_to=.*beside"):
        tg.start(counts(marked(*LATE)), to=tmp_path / to, late_to=tmp_path / late_to)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_folder_is_refused() -> None:
    with pytest.raises(QueryError, match="late_to is a folder; got True"):
        tg.start(counts(marked(*LATE)), late_to=True)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="late_to 's3://bucket/late' is an address"):
        tg.start(counts(marked(*LATE)), late_to="s3://bucket/late")


def test_a_column_of_the_name_that_is_added_is_refused(tmp_path: Path) -> None:
    query = counts(marked(*LATE).with_columns(missed_watermark=nw.col("ts")))
    with pytest.raises(QueryError, match=r"late_to: .*column 'missed_watermark'.*rename"):
        tg.start(query, late_to=tmp_path)


def test_the_reference_writes_none(tmp_path: Path) -> None:
    query = counts(tg.stream(tuples(1, 2), time="ts"))
    with pytest.raises(QueryError, match=r"late_to=.* is for on='local' and on='spark'.*leave it out"):
        tg.run(query, on="reference", late_to=tmp_path)


def test_the_command_line_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "query.py").write_text(
        "import pyarrow as pa, tidegate as tg\n"
        "columns = {'ts': pa.timestamp('us'), 'k': pa.string()}\n"
        "items = [{'ts': 25, 'k': 'a'}, tg.heartbeat(25), {'ts': 3, 'k': 'b'}]\n"
        "query = tg.stream(tg.marked(items), time='ts', schema=columns).key_by('k').window('10us')"
        ".aggregate(n=tg.count(), name='counts')\n"
    )
    late = tmp_path / "late"
    assert main(["run", str(tmp_path / "query.py"), "--on", "local", "--late-to", str(late), "--quiet"]) == 0
    assert late_rows(late, "counts") == [(3, "b", 25)]
    assert main(["run", str(tmp_path / "query.py"), "--on", "local", "--late-to", str(late), "--quiet"]) == 2
    assert "is not empty" in capsys.readouterr().err
