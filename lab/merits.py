"""How well a run was controlled: settling, overshoot, oscillation, accuracy (SASO), cost, and missed targets.

All figures go by means over control periods, so that noise within a period is not taken for a change of load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lab.network import Run
from tidegate.control.controller import Limits
from tidegate.control.erlang import mean_sojourn
from tidegate.errors import UserError
from tidegate.simulate.fluid import SubqueryHistory
from tidegate.simulate.loads import Floats
from tidegate.simulate.model import SubqueryModel

TOLERANCE = 0.05
"""Relative difference of load from which on it has changed."""

QUIET_PERIODS = 3
"""Periods without a change after which instances have settled."""

MOST_EXACT = 2_000


@dataclass(frozen=True, slots=True)
class Merits:
    """The figures of one run; those of several subqueries are summed, or averaged where they are shares or times.

    settling_seconds
        from a change of load to the last change of instances before the next; averaged over all stretches of constant
        load of at least three periods. None if there is no such stretch. A stretch in whose last three periods
        instances still changed counts with its whole length, and in `unsettled`.
    overshoot
        in the worst stretch, how far instances went past the number kept at its end, on the far side from where they
        began, relative to that number.
    oscillations
        changes of instances in the opposite direction of the change before, without a change of the work in between:
        from the period before the first of the two was ordered to the second, it stayed within 5 %. Work is what comes
        in, times what a tuple costs, which rises as windows fill; at most what follows the subquery accepts. What waits
        is work too: coming down once tuples are done that were late before going up is no oscillation.
    reversals
        the same by the strictest count: all changes in the opposite direction of the change before, while what is
        offered stayed within 5 % from the period before the first of the two was in force.
    accuracy
        mean of |instances − needed|/needed, where `needed` is the least number of instances that keeps the subquery's
        mean latency within the target at the present load, were it evenly spread. 0 is perfect.
    instance_seconds
        what is paid: instances times seconds, from when they were ordered.
    late_time, late_tuples
        share of the time, and of the tuples completed, with a latency through the whole network above the target.
    refused
        share of the offered tuples that sources never made because they were slowed down.
    changes
        how often the number of instances changed.
    """

    settling_seconds: float | None
    unsettled: int
    overshoot: float
    oscillations: int
    reversals: int
    accuracy: float
    instance_seconds: float
    late_time: float
    late_tuples: float
    refused: float
    changes: int


def merits(run: Run, target_seconds: float, limits: Limits | None = None) -> Merits:
    """The figures of a run against a target for its mean latency. Needed numbers are sought within the limits."""
    if not target_seconds > 0:
        raise UserError(f"merits: the latency target ({target_seconds:g} s) must be more than 0")
    bounds = limits or Limits(1, 10_000)
    ticks = round(run.period_seconds / run.tick_seconds)
    stretches: list[Stretch] = []
    oscillating, reversing, changes, distances = 0, 0, 0, []
    for subquery in run.network.order:
        history = run[subquery.name]
        reached = passing(subquery, run)
        load, needed = (
            _by_period(reached.offered, ticks),
            needed_instances(subquery, reached, target_seconds, bounds, ticks),
        )
        work = _by_period(reached.offered / reached.service_rate, ticks)
        waits = _at_ends(history.backlog > target_seconds * history.offered, ticks)
        stretches += settle(load, history.instances, ticks)
        oscillating += oscillations(work, history.instances, ticks, waits, history.paid)
        reversing += oscillations(_by_period(history.offered, ticks), history.instances, ticks)
        changes += int(np.count_nonzero(np.diff(history.instances)))
        present = _by_period(history.instances, ticks)
        distances.append(float(np.mean(np.abs(present - needed) / needed)))
    late = run.latency > target_seconds
    processed = float(run.processed.sum())
    offered = sum(float(run[source.into].offered.sum()) for source in run.network.sources if not source.waits)
    made = sum(float(run[source.into].admitted.sum()) for source in run.network.sources if not source.waits)
    settling = [each.settling_ticks * run.tick_seconds for each in stretches]
    return Merits(
        settling_seconds=sum(settling) / len(settling) if settling else None,
        unsettled=sum(not each.settled for each in stretches),
        overshoot=max((each.overshoot for each in stretches), default=0.0),
        oscillations=oscillating,
        reversals=reversing,
        accuracy=sum(distances) / len(distances),
        instance_seconds=float(run.paid.sum()) * run.tick_seconds,
        late_time=float(late.mean()),
        late_tuples=float(run.processed[late].sum()) / processed if processed > 0 else 0.0,
        refused=max(1.0 - made / offered, 0.0) if offered > 0 else 0.0,
        changes=changes,
    )


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of constant load, in ticks from `start` to `end`, and how instances settled in it."""

    start: int
    end: int
    settling_ticks: int
    settled: bool
    overshoot: float


def settle(load: Floats, instances: Floats, ticks: int) -> list[Stretch]:
    """The stretches of constant load (a value per period) and how instances (a value per tick) settled in each."""
    found = []
    for first, last in _constant(load):
        start, end = first * ticks, last * ticks
        part = instances[start:end]
        moves = np.flatnonzero(np.diff(part)) + 1
        latest = int(moves[-1]) if len(moves) else 0
        settled = end - start - latest >= QUIET_PERIODS * ticks
        kept = part[-1]
        above, below = float(part.max() - kept), float(kept - part.min())
        past = above if part[0] < kept else below if part[0] > kept else max(above, below)
        found.append(Stretch(start, end, latest if settled else end - start, settled, past / float(kept)))
    return found


def oscillations(
    load: Floats,
    instances: Floats,
    ticks: int,
    waits: NDArray[np.bool_] | None = None,
    paid: Floats | None = None,
) -> int:
    """Reversals without a change of load; `load` has a value per period, `instances` one per tick.

    `waits` says for each period whether more waited at its end than the target allows; without it nothing ever waits.
    `paid` tells, per tick, since when instances that start late were on order; without it all are there at once.
    """
    steps = np.diff(instances)
    moves = np.flatnonzero(steps)
    count = 0
    for before, after in pairwise(moves.tolist()):
        if steps[before] * steps[after] > 0:
            continue
        ordered = before
        while paid is not None and ordered > 0 and paid[ordered] >= instances[before + 1] > instances[before]:
            ordered -= 1
        # A tick's number becomes visible one tick later; the period that led to it ends there.
        periods = slice(max((ordered + 1) // ticks - 1, 0), (after + 1) // ticks)
        seen = load[periods]
        changed = seen.max() - seen.min() > TOLERANCE * seen.max()
        done = waits is not None and steps[before] > 0 and waits[periods][0] and not waits[periods][-1]
        count += not (changed or done)
    return count


def needed_instances(
    subquery: SubqueryModel, history: SubqueryHistory, target_seconds: float, limits: Limits, ticks: int
) -> Floats:
    """For each period, the least number of instances that meets the target at its load and its cost of a tuple."""
    pairs = np.stack([_by_period(history.offered, ticks), _by_period(history.service_rate, ticks)], axis=1)
    distinct, places = np.unique(pairs, axis=0, return_inverse=True)
    if len(distinct) > MOST_EXACT:
        # Loads that never repeat are taken on a grid of 0.2 %.
        grid = np.exp(np.rint(np.log(np.maximum(pairs, 1e-12)) / 0.002) * 0.002)
        distinct, places = np.unique(grid, axis=0, return_inverse=True)
    needed = [
        least_instances(subquery, float(rate), float(service), target_seconds, limits) for rate, service in distinct
    ]
    return np.asarray(np.array(needed, dtype=np.float64)[places.reshape(-1)])


def least_instances(
    subquery: SubqueryModel, arrival_rate: float, service_rate: float, target_seconds: float, limits: Limits
) -> int:
    """The least number whose mean latency is within the target: M/M/k, or M/M/1 on an even share each with keys.

    `service_rate` is that of an instance alone. The upper limit, if no number within the limits meets the target.
    """
    instances = limits.clamp(math.floor(arrival_rate / service_rate))
    while instances < limits.most and _latency(subquery, instances, arrival_rate, service_rate) > target_seconds:
        instances += 1
    return instances


def _latency(subquery: SubqueryModel, instances: int, arrival_rate: float, service_rate: float) -> float:
    each = service_rate * subquery.speed(instances)
    if subquery.keys is None:
        return mean_sojourn(instances, arrival_rate, each)
    return mean_sojourn(1, arrival_rate / instances, each)


def _constant(load: Floats) -> list[tuple[int, int]]:
    """Stretches of at least QUIET_PERIODS periods, as long as can be, in which the load stays within the tolerance."""
    found, first = [], 0
    while first < len(load):
        last, least, most = first, load[first], load[first]
        while last < len(load):
            least, most = min(least, load[last]), max(most, load[last])
            if most - least > TOLERANCE * most:
                break
            last += 1
        if last - first >= QUIET_PERIODS:
            found.append((first, last))
        first = last
    return found


def passing(subquery: SubqueryModel, run: Run) -> SubqueryHistory:
    """The history of a subquery with no more offered than what follows it accepts the results of."""
    history, limit = run[subquery.name], getattr(subquery, "downstream_limit", None)
    if limit is None:
        return history
    return replace(history, offered=np.minimum(history.offered, limit.rate(run.times - run.tick_seconds / 2)))


def _at_ends(values: NDArray[np.bool_], ticks: int) -> NDArray[np.bool_]:
    """The values at the ends of whole periods."""
    return np.asarray(values[ticks - 1 :: ticks])


def _by_period(values: Floats, ticks: int) -> Floats:
    """Means over whole periods; what is left at the end belongs to none."""
    periods = len(values) // ticks
    return np.asarray(values[: periods * ticks].reshape(periods, ticks).mean(axis=1))
