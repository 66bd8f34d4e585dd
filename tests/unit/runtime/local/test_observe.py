"""A job in this process that follows its load: what is observed of it, and that nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.cli.main import main
from tidegate.control.rules import Rule, Rules
from tidegate.errors import UserError
from tidegate.gate.flow import BlockedTimes
from tidegate.gate.gate import Traffic
from tidegate.runtime.local.figures import JobFigures, SourceFigures, SubqueryFigures
from tidegate.runtime.local.observe import LocalObserver, observed
from tidegate.sources.in_memory import Paced
from tidegate.telemetry.read import decisions, notices
from tidegate.testing import answer, difference

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = {"ts": TIME, "k": pa.int64()}
BATCH_SECONDS = 0.02
MANY_BATCHES, PATIENT_BATCHES = 30, 1000


def steps(rates: list[int], step_seconds: float, first: int = 0) -> Iterator[tuple[float, pa.RecordBatch]]:
    """Batches on a schedule, from a number of batches on: each rate, in tuples per second, for so long."""
    per_step = round(step_seconds / BATCH_SECONDS)
    for number, rate in enumerate(np.repeat(rates, per_step), first):
        rows = int(rate * BATCH_SECONDS)
        times = number * 20_000 + np.arange(rows) * 20_000 // rows
        yield (
            (number + 1) * BATCH_SECONDS,
            pa.record_batch([pa.array(times).cast(TIME), pa.array(times % 97)], ["ts", "k"]),
        )


def waiting(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Work of 1 ms a tuple that needs no core, as a call to a service would."""
    time.sleep(batch.num_rows * 0.001)
    return batch


def counts(stream: tg.Stream) -> tg.Stream:
    return stream.key_by("k").window("1 second").aggregate(n=tg.count())


def test_the_command_line_takes_rules_and_a_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"ts": pa.array(range(1000), pa.int64()).cast(TIME), "k": [1] * 1000})
    pq.write_table(rows, tmp_path / "in.parquet")
    file, rules, path = tmp_path / "job.py", tmp_path / "rules.toml", tmp_path / "run.ledger"
    stream = f"tg.stream({str(tmp_path / 'in.parquet')!r}, time='ts')"
    file.write_text(f"import tidegate as tg\nquery = {stream}.key_by('k').window('10us').aggregate(n=tg.count())")
    rules.write_text('[default]\ncontroller = "saso"\nmost = 3\n')
    common = ["run", str(file), "--on", "local", "--to", str(tmp_path / "out"), "--quiet"]
    assert main([*common, "--elastic", str(rules), "--ledger", str(path)]) == 0
    assert [each["kind"] for each in notices(path)] == ["query ended"]
    assert main([*common, "--ledger", str(path)]) == 2
    assert "go with --elastic" in capsys.readouterr().err


class Steps:
    """A load that steps ten times up when one instance is left, and down when there are more, so many times.

    It follows what has happened and not the clock, so a slow machine makes it longer, not another.
    """

    def __init__(self, ups: int) -> None:
        self.ups, self.job, self.sent = ups, None, list[pa.RecordBatch]()
        self.reached: list[int] = []

    def instances(self) -> int:
        job: Any = self.job
        return next(iter(job.instances.values())) if job is not None else 1

    def __iter__(self) -> Iterator[tuple[float, pa.RecordBatch]]:
        number, held, up = 0, 0, False
        while len(self.reached) < 2 * self.ups and held < PATIENT_BATCHES:
            number, held = number + 1, held + 1
            now = self.instances()
            if held > MANY_BATCHES and (now > 1) == up:
                self.reached.append(now)
                up, held = not up, 0
            due, batch = next(steps([2_000 if up else 200], BATCH_SECONDS, number))
            self.sent.append(batch)
            yield due, batch


def test_instances_follow_stepped_loads_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    load = Steps(ups=2)
    query = counts(tg.stream(Paced(load), time="ts", schema=SCHEMA, name="load").map_batches(waiting))
    answers: list[pa.Table] = []
    path = tmp_path / "run.ledger"
    job = tg.start(query, to=answers.append, instances=(1, 4), segment_rows=40, elastic=tg.Elastic(ledger=path))
    load.job = job
    job.wait()

    expected = answer(counts(tg.stream(pa.Table.from_batches(load.sent), time="ts"))).rows
    told = difference(expected, pa.concat_tables(answers))
    assert told is None, told

    assert [count > 1 for count in load.reached] == [False, True, False, True], "2,000/s need more than one of 1,000/s"
    assert job.scaling is not None
    assert job.scaling.failure is None
    written = decisions(path, changes_only=True, shadows=False)
    assert written.num_rows == len(job.scaling.changes)
    assert all("due" in why for why in written["why"].to_pylist())


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    source = tg.stream(Paced(steps([200, 4_000], 0.8)), time="ts", schema=SCHEMA)
    query = source.map_batches(waiting).key_by("k").window("1 second").aggregate(n=tg.count())
    path = tmp_path / "run.ledger"
    job = tg.start(
        query,
        to=lambda _: None,
        instances=(1, 4),
        segment_rows=40,
        elastic=tg.Elastic(dry_run=True, shadows=("ds2",), ledger=path),
    )
    job.wait()
    results = set(decisions(path, changes_only=True, shadows=False)["result"].to_pylist())
    assert results <= {"advised"}
    assert set(job.instances.values()) == {1}


def test_a_misspelt_subquery_and_a_bad_ledger_are_refused_before_anything_runs(tmp_path: Path) -> None:
    query = tg.stream(pa.table({"ts": pa.array([0], TIME), "k": [1]}), time="ts").key_by("k").window("10us")
    counts = query.aggregate(n=tg.count())
    with pytest.raises(UserError, match="no subquery 'sped'; the query has"):
        tg.start(counts, elastic=Rules(Rule(), (("sped", Rule()),)))
    with pytest.raises(UserError, match="there is no folder"):
        tg.start(counts, elastic=tg.Elastic(ledger=tmp_path / "missing" / "l"))
    with pytest.raises(UserError, match="the reference runs a query alone"):
        tg.run(counts, on="reference", elastic=True)


def region(
    admitted: int, passed: int, busy: dict[int, float], blocked: float, at: float, ended: bool = False
) -> SubqueryFigures:
    sources = {} if ended else {"s": blocked}
    traffic = Traffic(admitted, admitted, passed)
    return SubqueryFigures("q", tuple(busy), (0, 1), busy, traffic, BlockedTimes(at, sources), (), ("s",), 1_000_000)


def figures(
    at: float, of: SubqueryFigures, rows: int, due: float | None = None, timed: tuple[int, float] = (0, 0.0)
) -> JobFigures:
    return JobFigures(at, (of,), {"s": SourceFigures(rows, due, False)}, 3_000_000, *timed)


def test_an_observation_is_the_difference_of_two_readings() -> None:
    before = figures(10.0, region(1_000, 900, {0: 1.0}, 0.5, 10.0), 1_000, timed=(4, 100.0))
    after = figures(12.0, region(3_000, 2_500, {0: 2.5, 3: 0.5}, 1.5, 12.0), 3_000, timed=(8, 101.0))
    (made,) = observed(before, after, 8.0)
    assert (made.time_seconds, made.period_seconds, made.instances) == (4.0, 2.0, 2)
    assert (made.admitted, made.processed, made.backlog) == (1_000.0, 800.0, 500)
    assert made.congestion == 0.5
    assert made.offered == 2_000.0, "a source that is blocked half of the time would deliver twice as much"
    assert made.demand == made.offered
    assert made.busy == (0.75, 0.25)
    assert (made.watermark_lag_seconds, made.latency_seconds) == (2.0, 0.25)


def test_a_schedule_says_what_is_offered_and_what_waits_in_the_source() -> None:
    before = figures(10.0, region(1_000, 900, {0: 1.0}, 0.0, 10.0), 1_000, due=10.0)
    after = figures(12.0, region(2_000, 1_900, {0: 2.0}, 1.0, 12.0), 2_000, due=10.5)
    (made,) = observed(before, after, 8.0)
    assert made.offered == 2_000.0, "1,000 rows were due in half a second"
    assert made.backlog == 100 + 3_000, "and the source is one and a half seconds behind"


def test_what_is_not_known_is_absent() -> None:
    before = figures(10.0, region(1_000, 900, {}, 0.0, 10.0), 1_000)
    unknown = SubqueryFigures(
        "q", (0,), (0, 0), {}, Traffic(1_000, 1_000, 900), BlockedTimes(12.0, {}), (), ("s",), None
    )
    (made,) = observed(before, figures(12.0, unknown, 1_000), 8.0)
    assert (made.busy, made.congestion, made.watermark_lag_seconds, made.latency_seconds) == (None, None, None, None)


def meeting(first: Iterator[tuple[float, pa.RecordBatch]], second: Iterator[tuple[float, pa.RecordBatch]]) -> tg.Stream:
    """Two aggregates and a source of its own meet in a third aggregate."""
    one, other = (
        tg.stream(Paced(load), time="ts", schema=SCHEMA, name=name)
        for load, name in ((first, "one"), (second, "other"))
    )
    counted = [
        stream.key_by("k").window(size, name=f"by {size}").aggregate(n=tg.count()).select("ts", "k")
        for stream, size in ((one, "100ms"), (one, "200ms"))
    ]
    merged = counted[0].union(counted[1]).union(other)
    return merged.key_by("k").window("100ms", name="met").aggregate(n=tg.count())


def test_the_demand_on_a_subquery_that_several_lead_to_is_known() -> None:
    """97 keys a window: 970/s of the first, 485/s of the second, and 500/s of its own source."""
    job = tg.start(meeting(steps([2_000], 2.0), steps([500], 2.0)), to=lambda _: None)
    observer, seen = LocalObserver(job.running), list[Any]()
    while not job.wait(0.2):
        seen += [each for each in observer.poll().observations if each.subquery == job.subqueries[-1]]
    known = [each for each in seen if each.network and each.processed]
    assert known, "every subquery is a station of the network"
    assert {station.subquery for station in known[-1].network} == set(job.subqueries)
    got = sum(each.processed * each.period_seconds for each in known)
    due = sum(each.demand * each.period_seconds for each in known)
    assert due == pytest.approx(got, rel=0.4)


def test_the_queueing_model_decides_for_each_subquery(tmp_path: Path) -> None:
    """The first has 1 ms of work for each of 2,000 tuples a second, the second next to none."""
    source = tg.stream(Paced(steps([2_000], 3.0)), time="ts", schema=SCHEMA, name="load").map_batches(waiting)
    first = source.key_by("k").window("100ms").aggregate(n=tg.count())
    query = first.key_by("k").window("1 second").aggregate(total=tg.sum("n"))
    path = tmp_path / "run.ledger"
    job = tg.start(
        query, to=lambda _: None, instances=(1, 4), segment_rows=40, elastic=tg.Elastic("queueing", ledger=path)
    )
    job.wait()
    made = decisions(path, changes_only=True, shadows=False).to_pylist()
    heavy, light = job.subqueries
    assert {each["subquery"] for each in made} == {heavy}
    assert max(each["instances"] for each in made) >= 3, "2 instances would be busy all the time"
    assert all("mean time" in each["why"] for each in made)
    assert job.instances[light] == 1
