"""What is made of Spark's reports: batches, observations, congestion; and when executors cannot be scaled with use."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.kit.observed import present
from tidegate.errors import UnsupportedError
from tidegate.runtime.spark import observe
from tidegate.runtime.spark.batch_cost import BatchCost, CostModel
from tidegate.runtime.spark.batch_reports import Batch, CellReport, batch_of, ran
from tidegate.runtime.spark.codec import OBSERVED
from tidegate.runtime.spark.executors import Executor, TriggerSettings, context_of, refusal
from tidegate.runtime.spark.observe import (
    ExecutorSample,
    SparkObserver,
    busy,
    congestion,
    latency_seconds,
    observed,
    period_end,
)
from tidegate.runtime.spark.observed import OBSERVED as OBSERVED_FIELDS
from tidegate.watermark import END, START

GOOD = {"spark.locality.wait": "0"}


def report(**changes: Any) -> StreamingQueryProgress:
    source = {
        "description": "KafkaV2[Subscribe[calls]]",
        "startOffset": {"calls": {"0": 100, "1": 200}},
        "endOffset": {"calls": {"0": 150, "1": 250}},
        "latestOffset": {"calls": {"0": 180, "1": 250}},
        "numInputRows": 100,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    } | changes.pop("source", {})
    told = {
        "id": "00000000-0000-0000-0000-000000000001",
        "runId": "00000000-0000-0000-0000-000000000002",
        "name": None,
        "timestamp": "2026-01-01T00:00:10.500Z",
        "batchId": 7,
        "batchDuration": 900,
        "numInputRows": source["numInputRows"],
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "durationMs": {"addBatch": 700, "triggerExecution": 900},
        "eventTime": {"max": "2026-01-01T00:00:10.000Z", "watermark": "2026-01-01T00:00:04.000Z"},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "noop", "numOutputRows": -1},
        "observedMetrics": {},
    }
    return StreamingQueryProgress.fromJson(told | changes)


def test_a_report_becomes_a_batch() -> None:
    batch = batch_of(report())
    assert (batch.number, batch.seconds, batch.rows, batch.left) == (7, 0.9, 100, 30.0)
    assert batch.ended_at - batch.began_at == pytest.approx(0.9)
    assert batch.lag_seconds == 6.0


def test_what_workers_report_comes_before_what_spark_counts() -> None:
    """Spark counts the names of files; its watermark is none of ours."""
    known = {"instances": 2, "busy_ms": 500, "late": 0}
    told = [
        {"step": "1:s", "cell": 0, "watermark_us": 3_000_000, "newest_us": 9_000_000, **known},
        {"step": "1:s", "cell": 1, "watermark_us": 4_000_000, "newest_us": None, **known},
        {"source": "calls", "rows": 70, "ahead": 0, "malformed": 0},
        {"source": "answers", "rows": 7, "ahead": 0, "malformed": 0},
    ]
    made = batch_of(report(observedMetrics={OBSERVED: {"cells": [json.dumps(told[:1]), json.dumps(told[1:])]}}))
    assert (made.rows, made.lag_seconds) == (77, 6.0), "of the cell that is behind"
    assert made.cells == (CellReport(2, 0.5, "1:s", 0), CellReport(2, 0.5, "1:s", 1))
    for ends in ({"watermark_us": START}, {"watermark_us": END}, {"newest_us": None, "watermark_us": 5}):
        only = json.dumps([{**told[0], **ends}])
        assert batch_of(report(observedMetrics={OBSERVED: {"cells": [only]}})).lag_seconds is None


def test_before_spark_knows_a_watermark_there_is_no_lag() -> None:
    unknown = {"max": "2026-01-01T00:00:10.000Z", "watermark": "1970-01-01T00:00:00.000Z"}
    assert batch_of(report(eventTime=unknown)).lag_seconds is None
    assert batch_of(report(eventTime={})).lag_seconds is None


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ({"latestOffset": {"calls": {"0": 150, "1": 250}}}, 0.0),
        # Seconds of a rate source: 2 of them gave 100 rows, 1 is left.
        ({"startOffset": 3, "endOffset": 5, "latestOffset": 6}, 50.0),
        # A file source does not say how far it could go.
        ({"startOffset": {"logOffset": 1}, "endOffset": {"logOffset": 2}, "latestOffset": None}, None),
        # New partitions since: unknown rather than wrong.
        ({"latestOffset": {"calls": {"0": 180, "1": 250, "2": 9}}}, None),
        ({"endOffset": "a text", "latestOffset": "another"}, None),
    ],
)
def test_what_a_source_has_left(source: dict[str, Any], left: float | None) -> None:
    said = {name: json.dumps(value) if value is not None else None for name, value in source.items()}
    assert batch_of(report(source=said)).left == left


def test_a_look_for_data_is_no_batch() -> None:
    assert ran(report())
    assert not ran(report(durationMs={"latestOffset": 3, "triggerExecution": 3}))


def batch(number: int, began: float, seconds: float, rows: int = 100, left: float | None = 0.0) -> Batch:
    return Batch(number, began, seconds, rows, left, None)


ALL, EVERY_SECOND, LIMITED = TriggerSettings(None, True), TriggerSettings(1.0, True), TriggerSettings(None, False)


def test_congestion_is_time_over_the_trigger_interval() -> None:
    #  interval 1 s: |0.5 ·|1.5  ·|2.0    |
    batches = [batch(1, 0.0, 0.5), batch(2, 1.0, 1.5), batch(3, 2.5, 2.0)]
    assert congestion(batches, EVERY_SECOND, 5.0) == pytest.approx((0.5 + 1.0) / 5)


def test_congestion_without_an_interval_is_the_share_of_batches_that_left_something() -> None:
    batches = [batch(1, 0, 1, left=0.0), batch(2, 1, 1, left=40.0), batch(3, 2, 1, left=70.0), batch(4, 3, 1, left=0.0)]
    assert congestion(batches, LIMITED, 4.0) == 0.5
    assert congestion([*batches, batch(5, 4, 1, left=None)], LIMITED, 5.0) is None
    assert congestion(batches, ALL, 4.0) == 0.0
    assert congestion([], LIMITED, 4.0) == 0.0


def readings(*busy: tuple[str, float, float]) -> tuple[ExecutorSample, ExecutorSample]:
    """Ten seconds in which executors of two cores had tasks for so long."""
    start = ExecutorSample(0.0, tuple(Executor(name, 2, before) for name, before, _ in busy if before >= 0))
    return start, ExecutorSample(10.0, tuple(Executor(name, 2, after) for name, _, after in busy))


def test_an_observation_where_batches_take_all_there_is() -> None:
    batches = [batch(1, 1.0, 1.0, 300), batch(2, 3.0, 1.0, 500)]
    start, end = readings(("0", 5.0, 15.0), ("1", -1.0, 5.0))
    made = observed(batches, -1.0, ALL, start, end, (0.0, 5.0))
    assert (made.processed, made.offered, made.demand) == (160.0, 200.0, 200.0), "800 rows came from -1 s to 3 s"
    assert made.busy == (0.5, 0.25)
    assert made.instances == 2
    assert made.latency_seconds == pytest.approx((300 * (1.0 + 1.0) + 500 * (1.0 + 1.0)) / 800)


def test_an_observation_has_the_fields_that_are_declared_and_no_others() -> None:
    start, end = (ExecutorSample(at, (Executor("1", 1, at),)) for at in (0.0, 4.0))
    taking_all = observed(
        [replace(batch(1, 0.0, 2.0, 400), lag_seconds=1.0)], -1.0, ALL, start, end, (0.0, 4.0), None, 0.0
    )
    limited = observed([batch(1, 0.0, 2.0, 400, left=300.0)], 0.0, LIMITED, start, end, (0.0, 4.0), None, 100.0)
    of_steps = {"mapping", "shard_loads", "shard_state_bytes", "network", "network_arrival_rate", "cores"}
    assert present(taking_all) | present(limited) | of_steps == set(OBSERVED_FIELDS)


def test_an_observation_where_sources_report_what_they_have_left() -> None:
    start, end = readings(("0", 0.0, 10.0))
    made = observed([batch(1, 0.0, 2.0, 400, left=300.0)], 0.0, LIMITED, start, end, (0.0, 4.0), None, 100.0)
    assert (made.backlog, made.offered, made.congestion) == (300.0, 150.0, 1.0)
    assert made.latency_seconds is None


def test_what_nobody_says_is_absent() -> None:
    start, end = readings(("0", 0.0, 10.0))
    made = observed([batch(1, 0.0, 2.0, 400, left=None)], 0.0, LIMITED, start, end, (0.0, 4.0))
    assert (made.offered, made.demand, made.backlog, made.congestion) == (None, None, None, None)
    told = observed([batch(1, 0.0, 2.0, 400, left=None)], 0.0, LIMITED, start, end, (0.0, 4.0), 80.0, 0.0)
    assert (told.offered, told.backlog) == (120.0, 80.0), "unless the user does"
    local = ExecutorSample(10.0, (Executor("driver", 2, 99.0),))
    assert observed([], None, ALL, ExecutorSample(0.0, ()), local, (0.0, 4.0)).busy is None


def test_a_quiet_period_offers_nothing() -> None:
    start, end = readings(("0", 5.0, 5.0))
    made = observed([], 0.0, ALL, start, end, (0.0, 5.0))
    assert (made.offered, made.processed, made.congestion, made.busy, made.backlog) == (0.0, 0.0, 0.0, (0.0,), 0.0)
    assert latency_seconds([], 0.0, ALL) is None


@pytest.mark.parametrize(
    ("batches", "new", "quiet", "trigger", "now", "end"),
    [
        ([batch(1, 0.0, 3.0)], True, False, ALL, 3.2, 3.0),  # a batch has ended
        ([batch(1, 0.0, 3.0)], False, False, ALL, 4.0, None),  # and the next one runs: wait for its end
        ([batch(1, 0.0, 3.0)], False, True, ALL, 3.5, 3.0),
        ([batch(1, 0.0, 3.0)], False, True, ALL, 9.0, 9.0),  # nothing came after it
        ([batch(1, 0.0, 0.3)], True, True, EVERY_SECOND, 0.5, None),  # its interval is not over
        ([batch(1, 0.0, 0.3)], False, True, EVERY_SECOND, 1.1, 1.0),
        ([batch(1, 0.0, 0.3)], False, False, EVERY_SECOND, 1.1, 1.0),  # it is, and the next batch has begun
        ([], False, False, ALL, 9.0, None),  # a long batch runs
        ([], False, True, TriggerSettings(10.0, True), 9.0, None),  # the trigger has not come yet
        ([], False, True, ALL, 9.0, 9.0),
    ],
)
def test_where_a_period_may_end(
    batches: list[Batch], new: bool, quiet: bool, trigger: TriggerSettings, now: float, end: float | None
) -> None:
    assert period_end(batches, new, quiet, trigger, 0.0, now) == end


def test_the_price_of_a_batch_does_not_count_as_work() -> None:
    start, end = readings(("0", 0.0, 10.0), ("1", 0.0, 5.0))
    assert busy(start, end, 12.0) == pytest.approx((0.4, 0.2)), "12 of 15 s, of each in proportion"
    assert busy(start, end, 99.0) == (0.5, 0.25)


def test_what_batches_cost_is_told_apart_by_their_sizes() -> None:
    model = CostModel()
    for _ in range(3):
        model.add(4, 4 * 60, 4 * (0.5 + 60 / 400))
    assert model.fit() is None, "batches of one size do not tell"
    for _ in range(1000):
        model.add(1, 560, 0.5 + 560 / 400)
        cost = model.fit()
        assert cost is not None, "small ones are remembered however long there are none"
        assert (cost.batch_seconds, cost.row_seconds) == pytest.approx((0.5, 1 / 400))


@pytest.mark.parametrize("seen", [((100, 0.1), (1_000, 9.0)), ((100, 0.9), (1_000, 0.4))])
def test_batches_that_make_no_sense_tell_nothing(seen: tuple[tuple[int, float], ...]) -> None:
    model = CostModel()
    for rows, seconds in seen:
        model.add(1, rows, seconds)
    assert model.fit() is None


def test_larger_batches_make_their_price_rarer_and_not_free() -> None:
    cost = BatchCost(batch_seconds=1.2, row_seconds=1 / 500)
    assert cost.work_seconds(0, 3.0) == pytest.approx(1.2), "one batch of the longest"
    assert cost.work_seconds(480, 1.0) == pytest.approx(0.96 + 0.4), (
        "more than one executor, though rows alone are less"
    )


class Told:
    """A query that reports one batch after another, and executors that had a second of tasks in each."""

    isActive = True

    def __init__(self) -> None:
        self.lastProgress: StreamingQueryProgress | None = None
        self.status = {"isTriggerActive": True}
        self.recentProgress: list[StreamingQueryProgress] = []
        self.now = 0.0

    def ran(self, number: int, began: float, seconds: float, rows: int) -> None:
        self.lastProgress = report(
            batchId=number,
            timestamp=f"1970-01-01T00:00:{began:06.3f}Z",
            durationMs={"addBatch": 1, "triggerExecution": round(1000 * seconds)},
            source={"numInputRows": rows},
        )
        self.recentProgress.append(self.lastProgress)
        self.now = began + seconds + 0.2

    def seen(self) -> tuple[Executor, ...]:
        return (Executor("0", 1, float(len(self.recentProgress))),)

    def lost(self) -> list[str]:
        return []


def test_a_period_ends_sooner_where_batches_run_over_their_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "trigger_of", lambda query: TriggerSettings(1.0, True))
    told: Any = Told()
    observer = SparkObserver(told, told, "q", 5.0, clock=lambda: told.now)
    shown = []
    # begins with the first; then 4 within their intervals and a bit more; then one that takes 1.5 s
    for number, seconds in enumerate([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.5]):
        told.ran(number, float(number), seconds, 10)
        shown += observer.poll().observations
        told.now = number + max(seconds, 1.0) + 0.1
        shown += observer.poll().observations
    assert [(each.time_seconds, each.period_seconds) for each in shown] == [(5.5, 5.5), (7.0, 1.5)]
    assert shown[0].busy == (1.0,), "five batches, of a second of tasks each, in as many seconds"


@pytest.mark.parametrize(
    ("master", "conf", "most", "partitions", "told"),
    [
        ("local[4]", GOOD, 2, 2, "driver is the only executor"),
        ("local", GOOD, 2, 2, "driver is the only executor"),
        ("spark://host:7077", {}, 2, 2, "spark.locality.wait is 3s"),
        ("spark://host:7077", {"spark.locality.wait": "500ms"}, 2, 2, "spark.locality.wait is 500ms"),
        ("yarn", GOOD | {"spark.locality.wait.node": "3s"}, 2, 2, "spark.locality.wait.node is 3s"),
        ("yarn", GOOD | {"spark.dynamicAllocation.enabled": "true"}, 2, 2, "Spark would undo"),
        ("local-cluster[2,1,1024]", GOOD, 3, 2, "1 of them would never get a stateful task"),
    ],
)
def test_scaling_that_would_be_of_no_use_is_refused(
    master: str, conf: dict[str, str], most: int, partitions: int, told: str
) -> None:
    said = refusal(master, conf, most, partitions)
    assert said is not None
    assert told in said


@pytest.mark.parametrize("wait", ["0", "0s", "0ms"])
def test_scaling_that_is_of_use_is_not_refused(wait: str) -> None:
    assert refusal("local-cluster[2,1,1024]", {"spark.locality.wait": wait}, 2, 2) is None
    assert refusal("k8s://host", {"spark.locality.wait": wait}, 20, None) is None


def test_a_query_over_connect_is_refused_with_what_works_instead() -> None:
    class Remote:
        __module__ = "pyspark.sql.connect.streaming.query"

    with pytest.raises(UnsupportedError, match=r"over Spark Connect.*in the process of the driver"):
        context_of(Remote())
