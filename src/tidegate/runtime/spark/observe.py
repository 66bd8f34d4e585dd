"""Observes any Structured Streaming query, tidegate's or not, from Spark's reports on its batches and executors.

A task of a small batch is mostly its own start, so at a low load a row seems many times as dear as it will be under load.
Batches of different sizes show the difference: seconds in tasks = fixed + rows x each.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.control.events import Notice, Poll
from tidegate.control.observation import Observation
from tidegate.runtime.spark.codec import reported
from tidegate.runtime.spark.executors import Executor, Executors, TriggerSettings, trigger_of
from tidegate.watermark import is_finite

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PERIOD_SECONDS = 5.0
POLL_SECONDS = 0.5

NEW_WEIGHT = 0.3
"""The weight of a new measurement among those of batches of about its size."""

SIZES_APART = 2.0
"""How many times the rows of the smallest batches the largest must have before costs are estimated."""

LONGEST_SECONDS = 3.0
"""How long batches may get under load before their rows are late; a batch's fixed cost is paid at least that often."""


def new_reports(query: StreamingQuery, after: int | None) -> list[StreamingQueryProgress]:
    """The reports of the batches that ran since batch ``after``; those older than Spark keeps are lost."""
    latest = query.lastProgress
    if latest is None or (after is not None and latest.batchId <= after):
        return []
    follows = after is not None and latest.batchId == after + 1
    reports = [latest] if follows else query.recentProgress
    return [report for report in reports if ran(report) and (after is None or report.batchId > after)]


def ran(report: StreamingQueryProgress) -> bool:
    """Whether a report is of a batch; Spark also reports that it found no data, under the number of the batch to come."""
    return "addBatch" in report.durationMs


@dataclass(frozen=True, slots=True)
class CellReport:
    """The instances of a cell in a batch, and how long they worked, added up.

    ``loads`` are the rows of each of its shards that got any. ``adopted`` is what it took over from others in this batch,
    ``hands_over`` whether windows are being recreated.
    """

    instances: int
    busy_seconds: float
    step: str = ""
    cell: int = 0
    shards: int = 0
    rows: int = 0
    state_bytes: int = 0
    loads: Mapping[int, int] = field(default_factory=dict)
    adopted: Mapping[str, int] | None = None
    hands_over: bool = False

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> CellReport:
        """What a cell tells of a batch."""
        loads = {int(shard): int(rows) for shard, rows in told.get("loads", {}).items()}
        return cls(
            told["instances"],
            told["busy_ms"] / 1000,
            told["step"],
            told.get("cell", 0),
            told.get("shards", 0),
            told.get("rows", 0),
            told.get("state_bytes", 0),
            loads,
            told.get("adopted"),
            "handover_us" in told,
        )


def by_step(reports: Iterable[CellReport]) -> dict[str, list[CellReport]]:
    """Reports by their steps."""
    found: dict[str, list[CellReport]] = {}
    for report in reports:
        found.setdefault(report.step, []).append(report)
    return found


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch that ran: when, by the driver's clock, for how long, and what it took.

    ``left`` is how many rows its sources had left when it began, None where one of them does not report that.
    ``lag_seconds`` is event time from the watermark to the newest row. ``cells`` are the reports of the cells of tidegate's
    stateful steps, if there are any.
    """

    number: int
    began_at: float
    seconds: float
    rows: int
    left: float | None
    lag_seconds: float | None
    cells: tuple[CellReport, ...] = ()

    @property
    def ended_at(self) -> float:
        return self.began_at + self.seconds


def batch_of(report: StreamingQueryProgress) -> Batch:
    """Reads a report; where workers read files, Spark counts those, and rows are what the workers report."""
    left = [rows_left(source) for source in report.sources]
    told = reported(report.observedMetrics)
    cells = [each for each in told if "step" in each]
    newest = max((each["newest_us"] for each in cells if each["newest_us"] is not None), default=None)
    watermark = min((each["watermark_us"] for each in cells), default=None)
    return Batch(
        report.batchId,
        datetime.fromisoformat(report.timestamp).timestamp(),
        report.durationMs.get("triggerExecution", 0) / 1000,
        sum(each["rows"] for each in told if "source" in each) if told else report.numInputRows,
        sum(each for each in left if each is not None) if left and None not in left else None,
        lag_seconds(newest, watermark) if told else _lag_of_spark(report),
        tuple(map(CellReport.of, cells)),
    )


def _lag_of_spark(report: StreamingQueryProgress) -> float | None:
    """The lag of a query with a watermark of Spark's own, which begins at 1970."""
    newest, watermark = (report.eventTime.get(name) for name in ("max", "watermark"))
    if newest is None or watermark is None or datetime.fromisoformat(watermark) == EPOCH:
        return None
    return max((datetime.fromisoformat(newest) - datetime.fromisoformat(watermark)).total_seconds(), 0.0)


def rows_left(source: SourceProgress) -> float | None:
    """The rows that a source had and the batch did not take; None if it does not report how far it could have gone.

    Offsets may count something else than rows, such as seconds: the batch itself says how many rows one of them is.
    """
    start, end, latest = (_figures(each) for each in (source.startOffset, source.endOffset, source.latestOffset))
    if end is None or latest is None or set(end) != set(latest):
        return None
    left = sum(max(latest[place] - end[place], 0.0) for place in end)
    if left == 0:
        return 0.0
    taken = sum(end[place] - (start or {}).get(place, 0.0) for place in end)
    return left * source.numInputRows / taken if taken > 0 and source.numInputRows else None


def moment_of(time_us: int) -> datetime:
    """An event time as a moment."""
    return EPOCH + timedelta(microseconds=time_us)


def lag_seconds(newest: int | None, watermark: int | None) -> float | None:
    """Event time from the watermark to the newest row, both in microseconds; None where one is not known."""
    if newest is None or watermark is None or not (is_finite(newest) and is_finite(watermark)):
        return None
    return max((newest - watermark) / 1e6, 0.0)


def _figures(offset: Any) -> dict[str, float] | None:
    """The numbers in an offset by their place in it; None if it is none, or holds something else."""
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    found = dict(_leaves(value, ""))
    return found if found and all(isinstance(each, int | float) for each in found.values()) else None


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{place}/{name}")
    elif value is not None:
        yield place, value


@dataclass(frozen=True, slots=True)
class BatchCost:
    """Seconds in tasks that any batch takes, and that each of its rows takes."""

    batch_seconds: float
    row_seconds: float

    def work_seconds(self, rows: float, seconds: float) -> float:
        """The work of so many rows in so long a time, in batches as long as they may get."""
        return rows * self.row_seconds + self.batch_seconds * seconds / LONGEST_SECONDS


@dataclass(slots=True)
class CostModel:
    """Fits the cost of batches from their task seconds by size; sizes that were seen once are not forgotten.

    >>> model = CostModel()
    >>> model.add(batches=1, rows=100, task_seconds=0.6)
    >>> model.fit() is None
    True
    >>> model.add(batches=2, rows=2000, task_seconds=4.8)
    >>> round(model.fit().batch_seconds, 6), round(model.fit().row_seconds, 6)
    (0.4, 0.002)
    """

    _by_size: dict[int, tuple[float, float]] = field(default_factory=dict)

    def add(self, batches: int, rows: float, task_seconds: float) -> None:
        """Adds the batches of one period; without rows or tasks they say nothing."""
        if batches < 1 or rows <= 0 or task_seconds <= 0:
            return
        size, seconds = rows / batches, task_seconds / batches
        known = self._by_size.get(place := math.frexp(size)[1])
        if known is not None:
            size, seconds = (old + NEW_WEIGHT * (new - old) for old, new in zip(known, (size, seconds), strict=True))
        self._by_size[place] = size, seconds

    def fit(self) -> BatchCost | None:
        """Estimates what batches and rows take; None as long as their costs cannot be separated.

        A straight line by least squares, of relative errors: small batches count as much as large ones.
        """
        if not self._by_size or max(self._by_size.values())[0] < SIZES_APART * min(self._by_size.values())[0]:
            return None
        sizes, seconds = np.array(list(self._by_size.values())).T
        row_seconds, batch_seconds = np.polyfit(sizes, seconds, 1, w=1 / seconds).tolist()
        # A batch without rows cannot take less than no time, nor can more rows take less.
        return BatchCost(batch_seconds, row_seconds) if row_seconds > 0 and batch_seconds >= 0 else None


@dataclass(frozen=True, slots=True)
class ExecutorSample:
    """The executors at one time of the driver's clock."""

    at: float
    executors: tuple[Executor, ...]


@dataclass(slots=True, eq=False)
class SparkObserver:
    """Polls a query; reports a period when it is long enough and ends with a batch, or in quiet.

    It is long enough sooner where batches run over their trigger interval: then something waits for an answer.
    ``backlog`` is for sources that do not report theirs: a function that returns how many rows wait. ``cell_reports`` are
    those of the last batch that had some, ``period_batches`` the batches of the last period that was observed.
    """

    query: StreamingQuery
    executors: Executors
    name: str
    period_seconds: float = PERIOD_SECONDS
    backlog: Callable[[], float | None] | None = None
    clock: Callable[[], float] = time.time
    cell_reports: tuple[CellReport, ...] = ()
    period_batches: tuple[Batch, ...] = ()
    _batch: int | None = None
    _trigger: TriggerSettings | None = None
    _began: float = 0.0
    _start: ExecutorSample | None = None
    _last: ExecutorSample | None = None
    _end: float = 0.0
    _since: float | None = None
    _left: float | None = None
    _gathered: list[Batch] = field(default_factory=list)
    _costs: CostModel = field(default_factory=CostModel)

    def poll(self) -> Poll:
        """Observes what happened since the last period, if a period is over."""
        if not self.query.isActive:
            error = self.query.exception()
            return Poll(ended=f"the query failed: {error}" if error else "the query was stopped", failed=bool(error))
        now = ExecutorSample(self.clock(), self.executors.seen())
        gone = tuple(
            (Notice.INSTANCES_LOST, f"executor {each} is gone without being released") for each in self.executors.lost()
        )
        return Poll(self._observe(now), noticed=gone)

    def _observe(self, now: ExecutorSample) -> tuple[Observation, ...]:
        new = [batch_of(report) for report in new_reports(self.query, self._batch)]
        self._batch = new[-1].number if new else self._batch
        self.cell_reports = next((batch.cells for batch in reversed(new) if batch.cells), self.cell_reports)
        quiet = not self.query.status["isTriggerActive"]
        if self._start is None or self._trigger is None:
            self._begin(now, new, quiet)
            return ()
        self._gathered += new
        if new:
            self._last = ExecutorSample(min(new[-1].ended_at, now.at), now.executors)
        end = period_end(self._gathered, bool(new), quiet, self._trigger, self._end, now.at)
        if end is None or end - self._end < self._long_enough(self._trigger):
            return ()
        # What tasks of a batch took is read when it was seen to end: by the end of its interval the next one may run.
        until = self._last if self._last is not None and end < now.at else now
        left = self.backlog() if self.backlog is not None else None
        span = (self._end, end)
        self._learn(self._start, until)
        cost = self._costs.fit()
        seen = observed(self._gathered, self._since, self._trigger, self._start, until, span, left, self._left, cost)
        self._since = self._gathered[-1].began_at if self._gathered else end
        self.period_batches = tuple(self._gathered)
        self._start, self._end, self._gathered, self._left = until, end, [], seen.backlog
        self._last = None
        return (replace(seen, subquery=self.name, time_seconds=end - self._began),)

    def _begin(self, now: ExecutorSample, new: list[Batch], quiet: bool) -> None:
        """The first batch takes as long as starting everything does: measuring begins behind it."""
        if new:
            self._trigger = trigger_of(self.query)
            self._began = self._end = now.at if quiet else new[-1].ended_at
            self._start = ExecutorSample(self._began, now.executors)
            self._since = new[-1].began_at

    def _long_enough(self, trigger: TriggerSettings) -> float:
        interval = trigger.interval_seconds
        if interval is None or not any(batch.seconds > interval for batch in self._gathered):
            return self.period_seconds
        return min(self.period_seconds, interval)

    def _learn(self, start: ExecutorSample, end: ExecutorSample) -> None:
        """Adds what batches took to the costs; not where executors came or went, as their first tasks start processes."""
        before = {each.name: each.task_seconds for each in start.executors}
        if set(before) == {each.name for each in end.executors}:
            took = sum(each.task_seconds - before[each.name] for each in end.executors) + beside_tasks(self._gathered)
            self._costs.add(len(self._gathered), sum(batch.rows for batch in self._gathered), took)


def period_end(
    batches: Sequence[Batch], new: bool, quiet: bool, trigger: TriggerSettings, start: float, now: float
) -> float | None:
    """Where a period may end: behind a batch and its trigger interval, or in quiet; None if that is not now.

    ``new`` says that a batch was seen to end just now, ``quiet`` that none is running.
    """
    interval = trigger.interval_seconds or 0.0
    # The triggers of so long a time have found nothing to do.
    idle = max(2 * interval, 1.0)
    if not batches:
        return now if quiet and now - start >= idle else None
    end = max(batches[-1].ended_at, batches[-1].began_at + interval)
    if quiet and now - end >= idle:
        return now
    # With an interval the next batch begins where this one's ends, and is running by the time that is seen.
    return end if end <= now and (new or quiet or trigger.interval_seconds is not None) else None


def observed(
    batches: Sequence[Batch],
    since: float | None,
    trigger: TriggerSettings,
    start: ExecutorSample,
    end: ExecutorSample,
    span: tuple[float, float],
    reported_left: float | None = None,
    left_before: float | None = None,
    cost: BatchCost | None = None,
) -> Observation:
    """The observation of one period, in which these batches ended; rates are over its span, busy shares between samples.

    Where each batch takes all there is, what they took had come since ``since``, when the one before them began. Elsewhere
    what was offered is known only with what is left: what the sources report, or ``reported_left``. Where it is known what
    batches and rows take, small batches count as work only as far as larger ones would not do away with them.
    """
    period = span[1] - span[0]
    rows = sum(batch.rows for batch in batches)
    left = reported_left if reported_left is not None else batches[-1].left if batches else 0.0
    offered: float | None = None
    if not batches:
        offered = 0.0  # Nothing was there to be taken.
    elif trigger.takes_all and reported_left is None:
        offered = rows / max(batches[-1].began_at - since, 1e-3) if since is not None else None
    elif left is not None and left_before is not None:
        offered = max(rows + left - left_before, 0.0) / period
    work_seconds = None if cost is None else cost.work_seconds(rows, end.at - start.at)
    return Observation(
        subquery="",
        time_seconds=span[1],
        period_seconds=period,
        instances=len(end.executors),
        offered=offered,
        admitted=rows / period,
        processed=rows / period,
        demand=offered,
        backlog=left,
        congestion=congestion(batches, trigger, period),
        busy=busy(start, end, work_seconds, beside_tasks(batches)),
        watermark_lag_seconds=batches[-1].lag_seconds if batches else None,
        latency_seconds=latency_seconds(batches, since, trigger),
    )


def congestion(batches: Sequence[Batch], trigger: TriggerSettings, period: float) -> float | None:
    """The share of a period in which data that was there waited for a batch to begin.

    With a trigger interval, the time that batches ran over it. Without one, the share of batches that began with more
    input than they took: none where each takes all there is, not known where a source does not report it.
    """
    if not batches:
        return 0.0
    if trigger.interval_seconds is not None:
        over = sum(max(batch.seconds - trigger.interval_seconds, 0.0) for batch in batches)
        return min(over / period, 1.0)
    if trigger.takes_all:
        return 0.0
    left = [batch.left for batch in batches]
    if any(each is None for each in left):
        return None
    return sum(1 for each in left if each) / len(left)


def beside_tasks(batches: Sequence[Batch]) -> float:
    """The time that instances of cells worked beside their tasks: those of a cell share the time of one task."""
    return sum(cell.busy_seconds * (1 - 1 / cell.instances) for batch in batches for cell in batch.cells)


def busy(
    start: ExecutorSample, end: ExecutorSample, work_seconds: float | None = None, beside_seconds: float = 0.0
) -> tuple[float, ...] | None:
    """The share of its cores' time that each executor of now had tasks; one that came meanwhile counts from 0.

    Instances in cells worked for ``beside_seconds`` more. Where only ``work_seconds`` of all that time went to rows, so much
    counts. Either is of each executor in proportion.
    """
    if any(each.name == "driver" for each in end.executors) or end.at <= start.at or not end.executors:
        # What Spark lists for the driver of a local master is its age, not its work.
        return None
    earlier = {each.name: each.task_seconds for each in start.executors}
    took = [max(each.task_seconds - earlier.get(each.name, 0.0), 0.0) for each in end.executors]
    counts = 1.0
    if sum(took) > 0:
        total = sum(took) + beside_seconds
        counts = (total if work_seconds is None else min(work_seconds, total)) / sum(took)
    shares = (
        counts * task_seconds / (max(each.cores, 1) * (end.at - start.at))
        for task_seconds, each in zip(took, end.executors, strict=True)
    )
    return tuple(min(share, 1.0) for share in shares)


def latency_seconds(batches: Sequence[Batch], since: float | None, trigger: TriggerSettings) -> float | None:
    """From the arrival of a row to the end of its batch, on average; known where batches take all there is.

    A row that came between the beginnings of two batches waited half of that time, then its batch.
    """
    if not trigger.takes_all or since is None:
        return None
    begun = [since, *(batch.began_at for batch in batches)]
    waited = [(batch.rows, (batch.began_at - begun[at]) / 2 + batch.seconds) for at, batch in enumerate(batches)]
    rows = sum(count for count, _ in waited)
    return sum(count * seconds for count, seconds in waited) / rows if rows else None
