"""Observes any Structured Streaming query, tidegate's or not, from Spark's reports on its batches and executors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql.streaming.query import StreamingQuery

from tidegate.control.events import Notice, Poll
from tidegate.control.observation import Observation
from tidegate.runtime.spark.batch_cost import BatchCost, CostModel
from tidegate.runtime.spark.batch_reports import Batch, CellReport, batch_of, new_reports
from tidegate.runtime.spark.executors import Executor, Executors, TriggerSettings, trigger_of

PERIOD_SECONDS = 5.0
POLL_SECONDS = 0.5


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
