"""Times of arrival: set when tuples are read, never going back, the same when a batch is run again, and replayable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.kit.check_durable import Attempt, Batches, run_once
from tests.kit.local_runs import run_freely
from tests.kit.spark_driver import FIRST_CLOCK_US, Batch, Driver
from tidegate.errors import QueryError
from tidegate.query.nodes import Source
from tidegate.query.outputs import untagged
from tidegate.query.schema import TIME
from tidegate.reference import Advance, Rows, interpret
from tidegate.results import read_results
from tidegate.runtime.local.settings import Settings
from tidegate.runtime.spark.codec import Header
from tidegate.runtime.spark.inputs import NamedFiles
from tidegate.sources.files import Files
from tidegate.stream import one_query
from tidegate.testing import answer, difference
from tidegate.watermark import END

COLUMNS = pa.schema({"k": pa.string(), "n": pa.int64()})
SECOND = 1_000_000


def stream(name: str = "s") -> tg.Stream:
    return tg.stream(COLUMNS, time=tg.arrival(), name=name)


def per_second(tuples: tg.Stream) -> tg.Stream:
    return tuples.key_by("k").window("1 second").aggregate(n=tg.sum("n"), name="seconds")


def table(*numbers: int) -> pa.Table:
    return pa.table({"k": ["a"] * len(numbers), "n": list(numbers)}, schema=COLUMNS)


def ticking(*moments: int) -> Callable[[], int]:
    """A clock that shows one time after the other, and then the last."""
    shown = iter(moments)
    return lambda: next(shown, moments[-1])


def numbers(rows: pa.Table) -> list[tuple[int, int]]:
    return sorted((row["window_start"].timestamp() // 1, row["n"]) for row in rows.to_pylist())


def test_the_law_sets_them_from_the_clock_and_takes_those_that_were_recorded() -> None:
    """The clock goes back from 2 s to 1 s: the tuples read then arrive at 2 s too."""
    query = per_second(stream())
    arrivals = [(table(1, 2), 0), (table(4), 2 * SECOND), (table(8), 1 * SECOND), (table(16), 3 * SECOND)]
    law = interpret(query.node, [*(Rows("s", part, clock) for part, clock in arrivals), Advance(END)])
    assert numbers(law.rows) == [(0, 3), (2, 12), (3, 16)]
    recorded = table(1, 4).append_column("arrived", pa.array([5 * SECOND, 7 * SECOND], TIME))
    assert numbers(answer(query, {"s": recorded}).rows) == [(5, 1), (7, 4)]
    with pytest.raises(QueryError, match=r"times of arrival; say when tuples are read"):
        interpret(query.node, [Rows("s", table(1))])


def test_in_process_they_come_from_the_clock_at_the_read_and_what_was_assigned_replays() -> None:
    tuples = stream()
    query = one_query("test", {"seconds": per_second(tuples), "seen": tuples})
    clock = ticking(0, 0, 2 * SECOND, 2 * SECOND, 1 * SECOND, 1 * SECOND, 3 * SECOND)
    parts = [table(number) for number in (1, 4, 8, 16)]
    run = run_freely(query.node, {"s": parts}, Settings(2, segment_rows=1, clock_us=clock))
    made = pa.concat_tables(run.tables)
    seen = untagged(made, "seen")
    times = seen.sort_by("n").column("arrived").cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert set(times) <= {0, 2 * SECOND, 3 * SECOND}
    law = answer(per_second(tuples), {"s": seen})
    assert difference(untagged(made, "seconds"), law.rows) is None
    assert run.job.late == law.late == 0


def test_a_stream_of_which_nothing_but_its_time_is_read() -> None:
    query = stream().window("1 second").aggregate(tuples=tg.count()).select("arrived", "tuples")
    run = run_freely(query.node, {"s": [table(1, 2), table(3)]}, Settings(1, clock_us=lambda: 0))
    assert [row["tuples"] for each in run.tables for row in each.to_pylist()] == [3]
    assert answer(query, {"s": table(1, 2)}).rows.column("tuples").to_pylist() == [2]


@pytest.mark.parametrize("cells", [1, 3])
def test_on_spark_they_are_the_timestamp_of_the_batch_however_often_it_is_run(cells: int) -> None:
    tuples = stream().filter(nw.col("arrived") >= nw.lit(0, nw.Int64).cast(nw.Datetime("us", "UTC")))
    query = one_query("test", {"seconds": per_second(tuples), "seen": tuples})
    batches = [
        Batch({"s": [table(1, 2), table(3)]}, attempts=2),
        Batch({"s": [table(4)]}, restart=True, cold=True),
        Batch({"s": [table(5)]}, zombie=True, attempts=3),
    ]
    outcome = Driver(query.node, cells).run(batches)
    law = interpret(query.node, outcome.events)
    made = pa.concat_tables(outcome.tables)
    for name in ("seconds", "seen"):
        assert difference(untagged(made, name), law[name]) is None
    assert numbers(untagged(made, "seconds")) == [
        (FIRST_CLOCK_US // SECOND + second, n) for second, n in enumerate((6, 4, 5))
    ]
    assert outcome.late == 0


def test_records_of_files_get_the_timestamp_of_the_batch_in_which_their_names_come(tmp_path: Path) -> None:
    pq.write_table(table(1, 2), tmp_path / "part.parquet")
    node = tg.stream(str(tmp_path / "*.parquet"), time=tg.arrival("came")).node
    assert isinstance(node, Source)
    assert isinstance(node.origin, Files)
    files = NamedFiles(replace(node, origin=None), node.origin, (), False)
    ((read, _),) = files.tables([str(tmp_path / "part.parquet")], pa.table({}), Header(clock_us=7))
    assert read.schema == node.schema
    assert read.column("came").cast(pa.int64()).to_pylist() == [7, 7]


def test_what_a_snapshot_holds_keeps_its_time_and_what_is_read_again_does_not_go_back(tmp_path: Path) -> None:
    """The clock of each run begins at 0 again: times of arrival go on from where the snapshot was."""
    tuples = stream()
    batches = [{"s": [table(number)]} for number in range(12)]

    def items(_: Batches, source: Source) -> list[Any]:
        return [table(number) for number in range(12)]

    for last in (5, 11, 17):
        folder = tmp_path / str(last)
        folder.mkdir()
        ticks = count()
        attempt = Attempt(Settings(2, segment_rows=1, clock_us=lambda: next(ticks)), last, 0.9, last, last % 2 == 0)  # noqa: B023
        for again in (attempt, replace(attempt, seed=1), replace(attempt, last=None)):
            ticks = count()
            run_once(tuples, batches, again, folder, items)
        made = read_results(folder / "out", "parquet", tuples.schema).sort_by("n")
        assert made.column("n").to_pylist() == list(range(12))
        times = made.column("arrived").cast(pa.int64()).to_pylist()
        assert times == sorted(times)


def test_explain_says_so() -> None:
    assert "time arrived, set as it arrives" in stream().explain("local")


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: tg.stream(COLUMNS, time=tg.arrival("K")), r"has a column 'K' already.*choose another"),
        (lambda: tg.stream(COLUMNS, time=tg.arrival(), disorder="1 second"), r"disorder=, ahead= .* leave them out"),
        (lambda: tg.stream(COLUMNS, time=tg.arrival(), ahead=None), r"leave them out"),
        (lambda: tg.stream(pa.schema([]), time=tg.arrival()), r"it has no columns"),
        (lambda: tg.arrival(name=3), r"arrival: name is what the column is called; got 3"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(build: Callable[[], object], told: str) -> None:
    with pytest.raises(QueryError, match=told):
        build()
