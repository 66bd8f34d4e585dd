"""Steady, the recommended controller: as many instances as the work ahead needs, and no change that noise could ask for.

The work is a number of instances: tuples per second that must be completed, times the seconds of one instance that each
takes. Both are followed as trends (`steady_trend.py`), with their errors, so the work is an interval and not a number:

- *Up*, when it is too much for the instances there are: at its value while it rises or tuples are late, and at its lower
  end otherwise.
- *Down when it pays*, when the upper end would do with fewer: a surplus is kept until it has cost as much as a change
  there and back would (the break-even rule of renting or buying, at most twice as dear as knowing the future). A large
  surplus is gone in seconds, a small one is given time to be needed again.
- In between nothing happens, so measurements that differ by noise alone do not move anything.
- *Not back at the same work*: what the work asked for is kept until the work has surely fallen, and what was given back is
  taken again at the same work only when tuples are late.

What has to be completed is the demand (DS2's propagation from the sources) as it will be when a change is in force; how
long that takes is learnt from the changes before. To it comes what waits, spread over `drain_seconds`. Enough is what
keeps the mean time of an M/M/k queue within the target.

Instances are not added where they cannot help: if one shard alone takes an instance, or if instances stand idle while
tuples wait (`steady_limit.py`), the work is that of what gets through, and the decision says what the limit is.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tidegate.control.balancers.balance import Floats, Ints, observed_shards, shard_name
from tidegate.control.balancers.minimal_movement import MinimalMovement
from tidegate.control.controller import (
    Action,
    Alternative,
    Decision,
    Effect,
    Limits,
    hold,
    require,
    resize,
)
from tidegate.control.controllers.steady_limit import CONGESTED, EVIDENCE, LimitDetector, ThroughputLimit
from tidegate.control.controllers.steady_trend import Trend, TrendEstimate
from tidegate.control.erlang import mean_sojourn, mean_sojourns
from tidegate.control.observation import Observation

REGRET = 30.0
"""How many times over it must pay to take an increase back at the same work; at 1 it would be taken back and regretted."""

SAME_WORK = 0.1
"""Works that differ by no more, beside what noise explains, are the same: costs of a tuple drift by as much."""

FALLEN = 0.05
"""How far work must surely have fallen before what was added for it is too much: one instance of twenty."""

FALLING = 0.9
"""While the need falls faster than this in a period, a decrease waits for the next, and is one instead of several."""

IMPATIENCE = 1.5
"""How many times what is about to come must be needed before more is asked for."""

OVERDUE_SECONDS = 120.0
"""When a change that was asked for and has not come is asked for again: executors take up to a minute."""

EVENNESS = 1.03
"""How far above the average the hottest instance may be once shards have been spread anew."""

HOT, COOLER = 0.95, 0.95
"""The work of the hottest instance from which on shards are spread anew, and the share of it that must be left then."""

ATTAINABLE = 1.05
"""The mean time to aim at where the target is below the time of service, in units of the latter."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Follows the work ahead, up when it must and down when it pays, and does not follow noise.

    target_seconds
        the mean latency to keep, as the M/M/k model has it.
    drain_seconds
        the time in which what waits should be worked off; infinite leaves the backlog out of it.
    patience_seconds
        what a change is worth: a surplus of s among n instances is kept for patience·n/s seconds.
    horizon_seconds
        how long a change should last: it is made for the work foreseen until so long after it is in force. With 0
        nothing is foreseen.
    confidence
        how many standard errors a decrease must be sure of.
    balances
        whether shards are spread anew where an instance is too hot and they are observed.
    heeds_limits
        whether to stop where more instances would not help.

    >>> observed = Observation("q", 5.0, 5.0, 2, demand=5_000.0, processed=1_000.0, busy=(1.0, 1.0))
    >>> Steady().start(Limits(1, 32)).decide(observed).instances
    11
    """

    target_seconds: float = 0.5
    drain_seconds: float = 60.0
    patience_seconds: float = 4.0
    horizon_seconds: float = 60.0
    confidence: float = 3.0
    balances: bool = True
    heeds_limits: bool = True
    name: ClassVar[str] = "steady"

    def __post_init__(self) -> None:
        target, drain = self.target_seconds, self.drain_seconds
        require(0 < target < math.inf, "steady", "target_seconds", target, "above 0, and finite")
        require(drain > 0, "steady", "drain_seconds", drain, "above 0; infinite drains nothing")
        for name in ("patience_seconds", "horizon_seconds", "confidence"):
            value = getattr(self, name)
            require(0 <= value < math.inf, "steady", name, value, "at least 0, and finite")

    def start(self, limits: Limits) -> SteadyRun:
        return SteadyRun(self, limits)


def enough(rate: float, cost_seconds: float, target_seconds: float, limits: Limits, *, keyed: bool) -> int:
    """The fewest instances within the limits whose mean latency is within the target.

    Without keys they serve one queue, M/M/k. With keys each has its own, M/M/1, and the hottest gets EVENNESS times an
    even share. O(instances).
    """
    target = max(target_seconds, ATTAINABLE * cost_seconds)
    work = rate * cost_seconds
    if work >= limits.most:
        return limits.most
    if keyed:
        return limits.clamp(math.ceil(EVENNESS * work / (1 - cost_seconds / target)))
    instances = math.floor(work) + 1
    for seconds in mean_sojourns(rate, 1 / cost_seconds):
        if seconds <= target or instances >= limits.most:
            break
        instances += 1
    return limits.clamp(instances)


@dataclass(frozen=True, slots=True)
class ShardShares:
    """The share of the load that each shard gets, and the instance it is on."""

    owners: Ints
    shares: Floats

    @classmethod
    def observed(cls, observation: Observation) -> ShardShares | None:
        """The shards of a period; None where they are not known or contradict each other."""
        seen = observed_shards(observation)
        if seen is None or not (total := float(seen[1].sum())) > 0:
            return None
        return cls(seen[0], seen[1] / total)

    @property
    def hottest(self) -> float:
        """The share of the load that the hottest instance has at present."""
        return float(np.bincount(self.owners, weights=self.shares).max())

    def spread(self, instances: int) -> tuple[tuple[int, ...], float]:
        """A mapping to so many instances that moves little, and the share its hottest instance has."""
        mapping = MinimalMovement(EVENNESS).balance(self.owners, self.shares, instances).mapping
        return mapping, float(np.bincount(np.asarray(mapping), weights=self.shares).max())


@dataclass(frozen=True, slots=True)
class WorkAhead:
    """Tuples per second due, what each costs in seconds of an instance, and tuples per second of what waits to work off."""

    rate: float
    cost_seconds: float
    draining: float = 0.0

    @property
    def instances(self) -> float:
        """The work, as a number of instances that are busy all the time."""
        return (self.rate + self.draining) * self.cost_seconds

    def within(self, most: float) -> WorkAhead:
        """The same with no more in all than gets through."""
        rate = min(self.rate, most)
        return replace(self, rate=rate, draining=min(self.draining, most - rate))


@dataclass(frozen=True, slots=True)
class Increase:
    """An increase: the instances that the work alone asked for, the work that was sure at its most, and if tuples waited."""

    instances: int
    work: float
    waited: bool


@dataclass(frozen=True, slots=True)
class _InstancesNeeded:
    """The instances needed: surely (`low`), to go to (`target`), and at most (`high`); and what that follows from.

    `steady` is what is surely needed for what is due, without what waits. Tuples `waits` where they are late and nothing
    limits them. It is `quiet` where it is known that none is late. `doubt` is the relative error of the work that the
    confidence asked for allows.
    """

    low: int
    target: int
    high: int
    steady: int
    work: WorkAhead
    doubt: float
    waits: bool
    quiet: bool
    why: str

    @property
    def due(self) -> float:
        """The work of what is due, without what waits, as a number of instances."""
        return self.work.rate * self.work.cost_seconds


class SteadyRun:
    """Steady at work on one subquery: two trends, the surplus so far, and the change that is under way."""

    def __init__(self, settings: Steady, limits: Limits) -> None:
        self._settings, self._limits = settings, limits
        self._demand, self._cost, self._detector = Trend(), Trend(sudden=False), LimitDetector()
        self._enough: deque[int] = deque(maxlen=EVIDENCE)
        self._surplus_seconds = 0.0
        self._asked: tuple[int, float] | None = None
        self._lead_seconds = 0.0
        self._seen: int | None = None
        self._changed_seconds = -math.inf
        self._raised: Increase | None = None
        self._lowered_for: float | None = None

    def decide(self, observation: Observation) -> Decision:
        """Weigh the work ahead against the instances there are."""
        now, seconds = observation.instances, observation.time_seconds
        self._notice(observation)
        due = "offered" if observation.missing(("demand",)) else "demand"
        missing = observation.missing((due, "processed", "busy"))
        if missing or len(observation.busy or ()) != now:
            return hold(observation, missing=missing or ("busy",))
        self._demand.see(seconds, observation.due or 0.0)
        # As windows fill, a tuple costs more and more; elsewhere it costs what it costs.
        self._cost.sloped = not observation.missing(("window_inputs",))
        processed, busy = observation.processed or 0.0, observation.busy_instances
        if processed > 0 and busy > 0:
            self._cost.see(seconds, busy / processed)
        demand, cost = self._demand.estimate(), self._cost.estimate()
        assert demand is not None
        if cost is None:
            return hold(observation, "no tuple was completed yet, so what one costs is not known")
        shards = ShardShares.observed(observation)
        need = self._need(observation, demand, cost, shards)
        if self._asked is not None and need.steady <= max(now, IMPATIENCE * self._asked[0]):
            return hold(observation, f"{need.why}; the change to {self._asked[0]} instances is under way")
        if need.low > now or now < self._limits.least:
            return self._up(observation, need, demand, shards)
        if now > self._limits.most:
            return self._resized(observation, self._limits.most, need, shards, ())
        return self._down(observation, need, shards)

    def _notice(self, observation: Observation) -> None:
        """See whether the change asked for is there, learn how long it took, and start over after any change."""
        now, seconds, seen = observation.instances, observation.time_seconds, self._seen
        if self._asked is not None:
            asked, since = self._asked
            if now == asked and now > (seen or now):
                self._lead_seconds = max(seconds - observation.period_seconds - since, 0.0)
            partly = seen is not None and min(seen, asked) < now < max(seen, asked)
            elsewhere = now != seen and not partly
            if now == asked or elsewhere or seconds - since > max(OVERDUE_SECONDS, 2 * self._lead_seconds):
                self._asked = None
        if now != seen:
            self._changed_seconds = seconds - observation.period_seconds
            self._start_over()
        self._seen = now

    def _start_over(self) -> None:
        self._surplus_seconds = 0.0
        self._enough.clear()

    def _need(
        self, observation: Observation, demand: TrendEstimate, cost: TrendEstimate, shards: ShardShares | None
    ) -> _InstancesNeeded:
        """How many instances the work ahead takes, by what is known and by what may be."""
        settings, period = self._settings, observation.period_seconds
        soon = self._lead_seconds + period if settings.horizon_seconds > 0 else 0.0
        later, ago = soon + settings.horizon_seconds, -EVIDENCE * period
        tuples = observation.waiting
        # In any queue tuples wait for half of the latency target; what waits longer is late.
        late = max(tuples - demand.value * settings.target_seconds / 2, 0.0)
        short = max(demand.value - observation.instances / cost.value, 0.0)
        # Until a change is in force what waits grows, unless sources slow down, which leaves nothing that waits.
        growing = short * self._lead_seconds if tuples >= short * period / 2 else 0.0
        # What is due when a change is in force; until the horizon after that; and what falls may stop falling.
        due = WorkAhead(demand.highest(0.0, soon), cost.highest(0.0, soon), late / settings.drain_seconds)
        more = (late + growing) / settings.drain_seconds
        most = WorkAhead(demand.highest(0.0, soon, later), cost.highest(0.0, soon, later), more)
        kept = WorkAhead(demand.highest(ago, 0.0, soon, later), cost.highest(ago, 0.0, soon, later))
        why = f"{due.rate:.4g}/s due"
        if (ceiling := self._detector.ceiling) is not None and settings.heeds_limits:
            # What could not pass before is not tried again for the sake of what waits.
            due = replace(due, draining=min(due.draining, max(ceiling - due.rate, 0.0)))
            most = replace(most, draining=min(most.draining, max(ceiling - most.rate, 0.0)))
        limit = self._limit(observation, demand, cost, shards)
        if limit is not None and limit.rate < due.rate + due.draining:
            why += f", but {limit.why}"
            room = limit.rate * limit.slack
            due, most, kept = due.within(limit.rate), most.within(room), kept.within(room)
        else:
            limit = None
        kept = replace(kept, draining=due.draining)
        if due.draining > 0:
            why += f" and {due.draining:.4g}/s to work off {tuples:.4g} that wait"
        error = math.hypot(demand.error, cost.error)
        quiet = late == 0 and (observation.congestion or 0.0) <= CONGESTED
        doubt = 0.0  # where tuples are late, that bears the measurements out
        if demand.slope > 0:  # what rises will be more
            doubt = -error
        elif quiet:
            doubt = settings.confidence * math.hypot(demand.error_ahead(soon), cost.error_ahead(soon))
        low = steady = self._size(replace(due, draining=0.0), max(1 - doubt, 0.0), shards)
        if late > 0 and not (settings.heeds_limits and self._detector.suspected):
            # Instances are added for what waits if it would take twice as long otherwise.
            slow = min(due.draining, late / (2 * settings.drain_seconds))
            low = max(steady, self._size(replace(due, draining=slow), 1.0, shards))
        settled_error = math.hypot(self._demand.settled_error, self._cost.settled_error)
        return _InstancesNeeded(
            low,
            self._size(most, 1 + min(error, settled_error), shards),
            self._size(kept, 1 + settings.confidence * error, shards),
            steady,
            due,
            settings.confidence * error,
            late > 0 and limit is None,
            quiet and len(observation.missing(("backlog", "congestion"))) < 2,
            f"{why}, at {1 / due.cost_seconds:.4g}/s an instance",
        )

    def _limit(
        self, observation: Observation, demand: TrendEstimate, cost: TrendEstimate, shards: ShardShares | None
    ) -> ThroughputLimit | None:
        """What gets through at most, where that is known."""
        limit = self._detector.see(observation, demand.value * self._settings.target_seconds, self._lead_seconds)
        if not self._settings.heeds_limits:
            return None
        if shards is not None:
            heaviest = int(np.argmax(shards.shares))
            rate = 1 / (float(shards.shares[heaviest]) * cost.value)
            if limit is None or rate < limit.rate:
                named = shard_name(observation, heaviest)
                return ThroughputLimit(rate, 1.0, f"{named} alone takes an instance at {rate:.4g}/s in all")
        return limit

    def _size(self, work: WorkAhead, room: float, shards: ShardShares | None) -> int:
        """The instances for what is due, with some room, or with what waits if that is more."""
        rate = max(work.rate * room, work.rate + work.draining) if room >= 1 else work.rate * room
        return enough(rate, work.cost_seconds, self._settings.target_seconds, self._limits, keyed=shards is not None)

    def _up(
        self, observation: Observation, need: _InstancesNeeded, demand: TrendEstimate, shards: ShardShares | None
    ) -> Decision:
        now, work = observation.instances, need.work.instances
        self._start_over()
        below = now < self._limits.least
        # What waits in the period of a change may have come to wait by the change itself.
        rested = observation.time_seconds - self._changed_seconds > observation.period_seconds
        if demand.count == 1 and need.quiet and not below:
            why = f"{need.why}: {need.low} instances needed, but nothing waits, so that may be one wrong measurement"
            return hold(observation, why, rejected=(Alternative(need.target, "not certain yet"),))
        same = self._lowered_for is not None and (1 - SAME_WORK - need.doubt) * work <= self._lowered_for
        if same and not (below or (need.waits and rested)):
            why = f"{need.why}: {need.low} instances may be needed, but {now} were enough for the same work"
            return hold(observation, why, rejected=(Alternative(need.target, "nothing waits for long"),))
        after = max(need.target, need.low, self._limits.least)
        rejected = [Alternative(now, f"{need.low} are needed even if the rates were overrated by chance")]
        if now < after - 1:
            why_not = f"would be busy {work / (after - 1):.0%}, without room for what is foreseen"
            rejected.append(Alternative(after - 1, why_not))
        return self._resized(observation, after, need, shards, tuple(rejected))

    def _down(self, observation: Observation, need: _InstancesNeeded, shards: ShardShares | None) -> Decision:
        now, enough, patience = observation.instances, need.high, self._settings.patience_seconds
        if self._raised is not None:
            # What was added is kept while the work may be the same, unless it is more than one and a tenth too many.
            self._raised = raised = replace(self._raised, work=max(self._raised.work, need.due * (1 - need.doubt)))
            fallen = need.due * (1 + need.doubt) < (1 - FALLEN) * raised.work
            if not fallen and 0 < raised.instances - enough <= max(1.0, 0.1 * raised.instances):
                enough = raised.instances
            if not fallen and not raised.waited:
                patience *= REGRET
        if enough >= now or need.waits:
            self._start_over()
            return self._balanced(observation, need, shards)
        self._enough.append(enough)
        self._surplus_seconds += observation.period_seconds * (now - enough) / now
        after = max(self._enough)
        if len(self._enough) == EVIDENCE and self._surplus_seconds >= patience and enough >= FALLING * after:
            why = f"enough in the last {EVIDENCE} periods, with {need.doubt:.1%} of error"
            return self._resized(observation, after, need, shards, (Alternative(now, f"{after} are {why}"),))
        kept = self._balanced(observation, need, shards)
        cost = f"the surplus has cost {self._surplus_seconds:.1f} s of all instances, a change is worth {patience:g} s"
        return kept if kept.changes else replace(kept, rejected=(Alternative(after, cost),))

    def _balanced(self, observation: Observation, need: _InstancesNeeded, shards: ShardShares | None) -> Decision:
        """Spread shards anew if the hottest instance has more than it can do, and that would help; else hold."""
        now, work = observation.instances, need.work.instances
        why = f"{need.why}: {need.low} to {need.high} instances are enough, and there are {now}"
        if shards is None or not self._settings.balances:
            return hold(observation, why)
        rested = observation.time_seconds - self._changed_seconds >= EVIDENCE * observation.period_seconds
        if work * shards.hottest < HOT or not rested:
            return hold(observation, why)
        mapping, share = shards.spread(now)
        why += f"; the hottest has work for {work * shards.hottest:.2f}, with other shards {work * share:.2f}"
        if share > COOLER * shards.hottest:
            return hold(observation, f"{why}, which is not worth a change")
        self._changed_seconds = observation.time_seconds
        through = min(need.work.rate, 1 / (share * need.work.cost_seconds))
        expected = Effect(min(work / now, 1.0), processed=through)
        return Decision(observation.subquery, Action.BALANCE, now, why, mapping, expected)

    def _resized(
        self,
        observation: Observation,
        after: int,
        need: _InstancesNeeded,
        shards: ShardShares | None,
        rejected: tuple[Alternative, ...],
    ) -> Decision:
        now, work = observation.instances, need.work
        if after == now:
            return self._balanced(observation, need, shards)
        self._asked = after, observation.time_seconds
        self._raised = None
        if after > now and need.steady > now:
            self._raised = Increase(need.steady, need.due * (1 - need.doubt), work.draining > 0)
        self._lowered_for = work.instances * (1 + need.doubt) if after < now else None
        mapping = shards.spread(after)[0] if shards is not None and self._settings.balances else None
        queues = (1, EVENNESS * work.rate / after) if shards is not None else (after, work.rate)
        seconds, busy = mean_sojourn(*queues, 1 / work.cost_seconds), min(work.instances / after, 1.0)
        through = min(work.rate + work.draining, after / work.cost_seconds)
        expected = Effect(busy, seconds if math.isfinite(seconds) else None, through)
        why = f"{need.why}: {after} instances, busy {busy:.0%}"
        return resize(observation, after, why, mapping=mapping, expected=expected, rejected=rejected)
