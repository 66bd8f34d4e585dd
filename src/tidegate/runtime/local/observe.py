"""Observations of a job in this process: differences between two readings of its figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.compile.draw import RESULTS, source_box
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.controller import ChangeOutcome, MoveCost
from tidegate.control.controllers.steady import Steady
from tidegate.control.events import Flowed, Poll
from tidegate.control.observation import DataflowEdge, Observation, WindowInput, with_demand
from tidegate.control.protocols.epoch_switch import EpochSwitch
from tidegate.control.protocols.move import ShardMove
from tidegate.control.protocols.planner import MovePlanner
from tidegate.errors import UserError
from tidegate.gate.flow import congestion_index
from tidegate.operators.columns import Array
from tidegate.runtime.local.figures import JobFigures, SourceFigures, SubqueryFigures, latencies_between
from tidegate.runtime.local.lifecycle import RunningQuery

MOST_BLOCKED = 0.98
"""A source that is let in for less than this leaves of its time says little about how fast it could be."""

RECOMMENDED_HERE = Steady(target_seconds=0.3, drain_seconds=1.0, patience_seconds=1.0, horizon_seconds=1.0)
"""What drives a job in this process unless something else is asked for: changes take milliseconds, so it need not wait."""

BALANCER_HERE = MinimalMovement()
"""What moves shards between instances here unless something else is asked for: nothing is copied, so moves cost little."""

PLANNER_HERE = MovePlanner((EpochSwitch(),), ShardMove(0, shared_memory=True))
"""How shards change owners here: instances share their state, so nothing has to be sent."""

FLOW_SECONDS = 1.0
"""How often it is said what flowed between subqueries."""

SWITCH_SECONDS = 30.0
"""How long a reconfiguration may take before it is reported as not done; it may still come."""


@dataclass(slots=True, eq=False)
class LocalObserver:
    """Looks at a job now and then; each look is a period from the last one.

    ``shards`` says whether the loads of shards are measured, which takes up to a hundredth of the work.

    Nothing is shown until each subquery that got tuples has completed some of them before the period: the first ones take
    as long as compiling the loops does, and say nothing about the rest.
    """

    job: RunningQuery
    clock: Callable[[], float] = time.monotonic
    shards: bool = True
    _began: float | None = None
    _last: JobFigures | None = None
    _warm: bool = False
    _flowed: tuple[JobFigures, Array] | None = None

    def __post_init__(self) -> None:
        if self.shards:
            self.job.graph.measure_shards()

    def poll(self) -> Poll:
        """What happened since the last look; the first one only begins to look."""
        if self.job.ended:
            return Poll(ended="the job has ended")
        now = self.job.figures(self.clock())
        before, self._last = self._last, now
        if before is None or self._began is None:
            self._began = now.at_seconds
            return Poll()
        if not self._warm:
            self._warm = all(
                subquery.traffic.passed_rows or not subquery.traffic.admitted_rows for subquery in before.subqueries
            ) and any(subquery.traffic.passed_rows for subquery in before.subqueries)
            if not self._warm:
                return Poll()
        return Poll(observed(before, now, self._began), flow=self._flow(now, self._began))

    def _flow(self, now: JobFigures, began: float) -> Flowed | None:
        """What flowed since the last time, once a second."""
        if self._flowed is not None and now.at_seconds - self._flowed[0].at_seconds < FLOW_SECONDS:
            return None
        counts = self.job.collector.latencies.counts()
        last, self._flowed = self._flowed, (now, counts)
        if last is None:
            return None
        return Flowed("", -1, now.at_seconds - began, _rates(last[0], now), latencies_between(last[1], counts))


@dataclass(frozen=True, slots=True)
class LocalActuator:
    """Gives the subqueries of a job more or fewer instances; returns when they have switched."""

    job: RunningQuery

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        try:
            done = self.job.reconfigure(instances, mapping, subquery, SWITCH_SECONDS)
        except UserError as error:
            return ChangeOutcome(False, str(error))
        measured = MoveCost(done.stood_still_seconds, done.seconds)
        return ChangeOutcome(True, "", done.seconds, done.state_bytes_moved, measured)


def observed(before: JobFigures, now: JobFigures, began: float) -> tuple[Observation, ...]:
    """The observations of all subqueries over the time between two readings, with the demand on each of them."""
    subqueries = {subquery.name: subquery for subquery in before.subqueries}
    fed = _fed(now.subqueries) - _fed(before.subqueries)
    timed = now.timed_results - before.timed_results
    latency = (now.latency_seconds - before.latency_seconds) / timed if timed else None
    seen = [
        _observation(subqueries[subquery.name], subquery, before, now, began, latency, fed[subquery.name])
        for subquery in now.subqueries
        if subquery.name in subqueries
    ]
    by_name = {subquery.name: subquery for subquery in now.subqueries}
    feeds = [
        DataflowEdge(upstream, subquery.name, _selectivity(by_name[upstream], subquery))
        for subquery in now.subqueries
        for upstream in subquery.upstream
    ]
    feeds += [DataflowEdge(None, subquery.name) for subquery in now.subqueries if subquery.sources]
    return with_demand(seen, feeds)


def _observation(
    before: SubqueryFigures,
    now: SubqueryFigures,
    start: JobFigures,
    end: JobFigures,
    began: float,
    latency: float | None,
    fed_rows: int,
) -> Observation:
    """One subquery between two readings; ``fed_rows`` is what it got of other subqueries."""
    period = end.at_seconds - start.at_seconds
    admitted = (now.traffic.admitted_rows - before.traffic.admitted_rows) / period
    congestion = congestion_index(before.blocked, now.blocked) if now.blocked.blocked_seconds else None
    offered, held_back = None, 0.0
    if now.sources:
        held = bool(congestion)
        scheduled = [_scheduled(start.sources[name], end.sources[name], end.at_seconds, held) for name in now.sources]
        due = [each for each in scheduled if each is not None]
        if len(due) == len(scheduled):
            offered, held_back = sum(rate for rate, _ in due), sum(rows for _, rows in due)
        elif congestion is not None:
            # What a source delivers while nothing holds it back; under the cap, a lower bound.
            offered = max(admitted - fed_rows / period, 0.0) / (1 - min(congestion, MOST_BLOCKED))
        else:
            offered = max(admitted - fed_rows / period, 0.0)
    lag = None
    if now.watermark is not None and end.newest is not None:
        lag = max(end.newest - now.watermark, 0) / 1e6
    pace = None
    if now.watermark is not None and before.watermark is not None:
        pace = max(now.watermark - before.watermark, 0) / 1e6 / period
    comparisons = None
    if now.join is not None and before.join is not None:
        comparisons = (now.join.tried - before.join.tried) / period
    shards = now.shards
    return Observation(
        subquery=now.name,
        time_seconds=end.at_seconds - began,
        period_seconds=period,
        instances=len(now.instances),
        mapping=now.mapping,
        offered=offered,
        admitted=admitted,
        processed=(now.traffic.passed_rows - before.traffic.passed_rows) / period,
        backlog=now.traffic.waiting_rows + held_back,
        queued=now.traffic.waiting_rows,
        congestion=congestion,
        busy=_busy(before, now, period),
        shard_loads=_shard_loads(before, now, period),
        shard_state_bytes=None if shards.state_bytes is None else tuple(shards.state_bytes.astype(np.int64).tolist()),
        pooled=shards.pooled,
        hot_key=shards.hot_key,
        window_inputs=_window_inputs(before, now, period, pace),
        comparisons=comparisons,
        watermark_lag_seconds=lag,
        latency_seconds=latency,
    )


def _shard_loads(before: SubqueryFigures, now: SubqueryFigures, period: float) -> tuple[float, ...] | None:
    """Tuples per second of each shard; None while nothing is known of them."""
    if now.shards.tuples is None or before.shards.tuples is None:
        return None
    return tuple((np.maximum(now.shards.tuples - before.shards.tuples, 0.0) / period).tolist())


def _window_inputs(
    before: SubqueryFigures, now: SubqueryFigures, period: float, pace: float | None
) -> tuple[WindowInput, ...] | None:
    """Both inputs of a join: how fast they come, and what is held of them for how long.

    Tuples are held for a stretch of event time, which passes ``pace`` times as fast as the clock: a replay's windows fill
    sooner. Without a pace the two are taken to be the same.
    """
    if now.join is None or before.join is None:
        return None
    rates = [(after - earlier) / period for earlier, after in zip(before.join.arrived, now.join.arrived, strict=True)]
    seconds = now.join.span_seconds / pace if pace else now.join.span_seconds
    return tuple(WindowInput(rate, held, seconds) for rate, held in zip(rates, now.join.held, strict=True))


def _busy(before: SubqueryFigures, now: SubqueryFigures, period: float) -> tuple[float, ...] | None:
    """The share of the period that each instance worked; those that came in it count from when they came."""
    if any(instance not in now.busy_seconds for instance in now.instances):
        return None
    worked = (now.busy_seconds[each] - before.busy_seconds.get(each, 0.0) for each in now.instances)
    return tuple(min(max(seconds / period, 0.0), 1.0) for seconds in worked)


def _scheduled(
    before: SourceFigures, now: SourceFigures, at_seconds: float, held_back: bool
) -> tuple[float, float] | None:
    """What a source with a schedule was due to deliver per second, and how many rows it is behind; None without one."""
    if now.ended:
        return 0.0, 0.0
    if now.due is None or before.due is None:
        return None
    advanced = now.due - before.due
    if advanced > 0:
        rate = (now.rows - before.rows) / advanced
        return rate, rate * max(at_seconds - now.due, 0.0) if held_back else 0.0
    # Nothing was delivered: nothing was due, or what was due is not known.
    return None if held_back else (0.0, 0.0)


def _rates(before: JobFigures, now: JobFigures) -> tuple[tuple[str, str, float], ...]:
    """Tuples per second between the boxes of the plan's picture."""
    period, earlier = now.at_seconds - before.at_seconds, {each.name: each for each in before.subqueries}
    rates = [
        (source_box(source), subquery.name, now.sources[source].rows - before.sources[source].rows)
        for subquery in now.subqueries
        for source in subquery.sources
    ]
    for subquery in now.subqueries:
        last = earlier[subquery.name]
        emitted = {name: rows - last.emitted.get(name, 0) for name, rows in subquery.emitted.items()}
        rates += [(subquery.name, name, rows) for name, rows in emitted.items()]
        rates.append((subquery.name, RESULTS, subquery.results - last.results))
    return tuple((origin, target, rows / period) for origin, target, rows in rates)


def _selectivity(upstream: SubqueryFigures, downstream: SubqueryFigures) -> float | None:
    """Rows that one row upstream becomes here, on average since the start; not known before the first."""
    if not upstream.traffic.passed_rows:
        return None
    return upstream.emitted.get(downstream.name, 0) / upstream.traffic.passed_rows


def _fed(subqueries: Sequence[SubqueryFigures]) -> Counter[str]:
    """The rows that each subquery has got of others."""
    fed: Counter[str] = Counter()
    for subquery in subqueries:
        fed.update(subquery.emitted)
    return fed
