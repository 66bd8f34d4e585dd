"""Steady, the recommended controller: as many instances as the work ahead needs, and no change that noise could ask for.

The work is a number of instances: tuples per second that must be completed, times the seconds of one instance that each
takes. Both are followed as trends (`steady_trend.py`), with their errors, so the work is an interval and not a number:

- *Up*, when it is too much for the instances there are: at its value while it rises or tuples are late, and at its lower
  end otherwise.
- *Down when it pays*, when the upper end would do with fewer: a surplus is kept until it has cost as much as a change
  there and back would (the break-even rule of renting or buying, at most twice as dear as knowing the future). A large
  surplus is gone in seconds, a small one is given time to be needed again.
- In between nothing happens, so measurements that differ by noise alone do not move anything.
- *Not back at the same work* (`steady_work.py`): what the work asked for is kept until the work has surely fallen, and what
  was given back is taken again at the same work only when tuples are late.

What has to be completed is the demand (DS2's propagation from the sources) as it will be when a change is in force; how
long that takes is learnt from the changes before. To it comes what waits, spread over `drain_seconds`. Enough is what
keeps the mean time of an M/M/k queue within the target.

Instances are not added where they cannot help: if one shard alone takes an instance, or if instances stand idle while
tuples wait, the work is that of what gets through, and the decision says what the limit is.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from tidegate.control.controller import Action, Alternative, Decision, Effect, Limits, hold, require, resize
from tidegate.control.controllers.steady_ahead import Ahead, Waiting
from tidegate.control.controllers.steady_limit import Limited, LimitWatch
from tidegate.control.controllers.steady_shards import Shards
from tidegate.control.controllers.steady_size import enough, latency
from tidegate.control.controllers.steady_trend import Estimate, Trend
from tidegate.control.controllers.steady_work import Raised, Work
from tidegate.control.observation import Observation

EVIDENCE = 2
"""Observations that a decrease must rest on."""

IMPATIENCE = 0.3
"""How much more than what is about to come must be needed to start over."""

REGRET = 30.0
"""How many times over it must pay to take an increase back at the same work."""

SAME = 0.9
"""Two needs that differ by less are the same; while they fall faster than that, a decrease waits for the next."""

SLOWER = 2.0
"""How many times the wanted time working off would have to take before instances are added for its sake."""

HOT, COOLER = 0.95, 0.95
"""The work of the hottest instance from which on shards are spread anew, and the share of it that must be left then."""

OVERDUE_SECONDS = 120.0
"""When a change that was asked for and has not come is asked for again."""


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
    margin, confidence
        room above what is foreseen, beside one standard error; and how many standard errors a decrease must be sure of.
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
    margin: float = 0.0
    confidence: float = 3.0
    balances: bool = True
    heeds_limits: bool = True

    def __post_init__(self) -> None:
        require(
            0 < self.target_seconds < math.inf, "steady", "target_seconds", self.target_seconds, "above 0, and finite"
        )
        require(
            self.drain_seconds > 0, "steady", "drain_seconds", self.drain_seconds, "above 0; infinite drains nothing"
        )
        for name in ("patience_seconds", "horizon_seconds", "margin", "confidence"):
            value = getattr(self, name)
            require(0 <= value < math.inf, "steady", name, value, "at least 0, and finite")

    @property
    def name(self) -> str:
        return "steady"

    def start(self, limits: Limits) -> SteadyRun:
        return SteadyRun(self, limits)


@dataclass(frozen=True, slots=True)
class _Need:
    """The instances needed: surely (`low`), with room (`target`), and at most (`high`); and what that follows from.

    `steady` is what is surely needed for what is due, without what waits. It is `quiet` where nothing is seen to be late.
    """

    low: int
    target: int
    high: int
    steady: int
    rate: float
    draining: float
    cost_seconds: float
    error: float
    waits: bool
    quiet: bool
    why: str

    @property
    def work(self) -> float:
        return (self.rate + self.draining) * self.cost_seconds

    @property
    def due(self) -> Work:
        """The work of what is due, without what waits."""
        return Work(self.rate * self.cost_seconds, self.error)


class SteadyRun:
    """Steady at work on one subquery: two trends, the surplus so far, and the change that is under way."""

    def __init__(self, settings: Steady, limits: Limits) -> None:
        self._settings, self._limits = settings, limits
        self._demand, self._cost, self._watch = Trend(), Trend(sudden=False), LimitWatch()
        self._enough: deque[int] = deque(maxlen=EVIDENCE)
        self._surplus_seconds = 0.0
        self._asked: tuple[int, float] | None = None
        self._lead_seconds = 0.0
        self._seen: int | None = None
        self._changed_seconds = -math.inf
        self._raised: Raised | None = None
        self._lowered_for: Work | None = None

    def decide(self, observation: Observation) -> Decision:
        """Weigh the work ahead against the instances there are."""
        now = observation.instances
        self._notice(observation)
        due = "offered" if observation.missing(("demand",)) else "demand"
        missing = observation.missing((due, "processed", "busy"))
        if missing or len(observation.busy or ()) != now:
            missing = missing or ("busy",)
            return hold(observation, f"not known: {', '.join(missing)}", missing=missing)
        seconds, processed, busy = observation.time_seconds, observation.processed or 0.0, observation.busy_instances
        self._demand.see(seconds, getattr(observation, due))
        # As windows fill, a tuple costs more and more; elsewhere it costs what it costs.
        self._cost.sloped = not observation.missing(("window_inputs",))
        if processed > 0 and busy > 0:
            self._cost.see(seconds, busy / processed)
        demand, cost = self._demand.estimate(), self._cost.estimate()
        assert demand is not None
        if cost is None:
            return hold(observation, "no tuple was completed yet, so what one costs is not known")
        shards = Shards.observed(observation)
        need = self._need(observation, demand, cost, shards)
        if self._asked is not None and need.steady <= max(now, self._impatience(observation) * self._asked[0]):
            return hold(observation, f"{need.why}; the change to {self._asked[0]} instances is under way")
        if need.low > now or now < self._limits.least:
            return self._up(observation, need, demand, shards)
        if now > self._limits.most:
            return self._resized(observation, self._limits.most, need, shards, ())
        return self._down(observation, need, shards)

    def _notice(self, observation: Observation) -> None:
        """See whether the change asked for is there, learn how long it took, and start over after any change."""
        now, seconds = observation.instances, observation.time_seconds
        if self._asked is not None:
            asked, since = self._asked
            if now == asked and now > (self._seen or now):
                self._lead_seconds = max(seconds - observation.period_seconds - since, 0.0)
            partly = self._seen is not None and min(self._seen, asked) < now < max(self._seen, asked)
            elsewhere = now != self._seen and not partly
            if now == asked or elsewhere or seconds - since > max(OVERDUE_SECONDS, 2 * self._lead_seconds):
                self._asked = None
        if now != self._seen:
            self._changed_seconds = seconds - observation.period_seconds
            self._start_over()
        self._seen = now

    def _impatience(self, observation: Observation) -> float:
        """How many times what was asked for must be needed before starting over: more the longer it is under way."""
        assert self._asked is not None
        expected_seconds = self._lead_seconds + observation.period_seconds
        return 1 + IMPATIENCE * (observation.time_seconds - self._asked[1]) / expected_seconds

    def _start_over(self) -> None:
        self._surplus_seconds = 0.0
        self._enough.clear()

    def _need(self, observation: Observation, demand: Estimate, cost: Estimate, shards: Shards | None) -> _Need:
        """How many instances the work ahead takes, by what is known and by what may be."""
        foreseen = self._foreseen(observation, demand, cost)
        waiting = self._waiting(observation, demand, cost, foreseen)
        limited = self._limited(observation, foreseen.rate + waiting.draining, demand, cost, shards)
        ahead = foreseen.within(limited)
        waiting = waiting.within(limited, ahead)
        error = math.hypot(demand.error, cost.error)
        soon = self._soon_seconds(observation)
        doubt = 0.0  # where tuples are late, that bears the measurements out
        if demand.slope > 0:  # what rises will be more
            doubt = -error
        elif waiting.quiet:
            doubt = self._settings.confidence * math.hypot(demand.error_ahead(soon), cost.error_ahead(soon))
        low, steady = self._surely(ahead, waiting, doubt, shards)
        return _Need(
            low,
            self._with_room(ahead, waiting, error, shards),
            self._at_most(ahead, waiting, error, shards),
            steady,
            ahead.rate,
            waiting.draining,
            ahead.cost_seconds,
            error,
            waiting.late > 0 and limited is None,
            waiting.quiet and waiting.known,
            _why(foreseen, waiting, limited),
        )

    @property
    def _settled_error(self) -> float:
        """The error of the work once the load has been constant for a while."""
        return math.hypot(self._demand.settled_error, self._cost.settled_error)

    def _soon_seconds(self, observation: Observation) -> float:
        """The time until a change is in force, as far as anything is foreseen."""
        return self._lead_seconds + observation.period_seconds if self._settings.horizon_seconds > 0 else 0.0

    def _foreseen(self, observation: Observation, demand: Estimate, cost: Estimate) -> Ahead:
        soon = self._soon_seconds(observation)
        later = soon + self._settings.horizon_seconds
        return Ahead.of(demand, cost, soon, later, EVIDENCE * observation.period_seconds)

    def _waiting(self, observation: Observation, demand: Estimate, cost: Estimate, foreseen: Ahead) -> Waiting:
        settings = self._settings
        waiting = Waiting.of(
            observation,
            demand,
            cost,
            foreseen,
            target_seconds=settings.target_seconds,
            drain_seconds=settings.drain_seconds,
            lead_seconds=self._lead_seconds,
        )
        return waiting.below(self._watch.ceiling if settings.heeds_limits else None, foreseen)

    def _surely(self, ahead: Ahead, waiting: Waiting, doubt: float, shards: Shards | None) -> tuple[int, int]:
        """The instances needed even if what is due is overrated by `doubt`, with what waits and without."""
        settings = self._settings
        steady = self._size(ahead.rate * max(1 - doubt, 0.0), ahead.cost_seconds, shards)
        if waiting.late == 0:
            return steady, steady
        suspected = settings.heeds_limits and self._watch.suspected
        slow = 0.0 if suspected else min(waiting.draining, waiting.late / (SLOWER * settings.drain_seconds))
        return max(steady, self._size(ahead.rate + slow, ahead.cost_seconds, shards)), steady

    def _with_room(self, ahead: Ahead, waiting: Waiting, error: float, shards: Shards | None) -> int:
        """The instances to go to if there are too few."""
        room = 1 + min(error, self._settled_error) + self._settings.margin
        return max(
            self._size(ahead.most * room, ahead.most_cost_seconds, shards),
            self._size(ahead.most + waiting.drained, ahead.most_cost_seconds, shards),
        )

    def _at_most(self, ahead: Ahead, waiting: Waiting, error: float, shards: Shards | None) -> int:
        """The instances that are enough even if rates are underrated by chance."""
        room = 1 + self._settings.confidence * error + self._settings.margin
        return max(
            self._size(ahead.kept * room, ahead.kept_cost_seconds, shards),
            self._size(ahead.kept + waiting.draining, ahead.kept_cost_seconds, shards),
        )

    def _limited(
        self, observation: Observation, wanted: float, demand: Estimate, cost: Estimate, shards: Shards | None
    ) -> Limited | None:
        """What gets through at most, where that is less than what is wanted."""
        limit = self._watch.see(observation, demand.value * self._settings.target_seconds, self._lead_seconds)
        if not self._settings.heeds_limits:
            return None
        if shards is not None:
            rate = 1 / (float(shards.shares[shards.heaviest]) * cost.value)
            if limit is None or rate < limit.rate:
                limit = Limited(rate, 1.0, f"shard {shards.heaviest} alone takes an instance at {rate:.4g}/s in all")
        return limit if limit is not None and limit.rate < wanted else None

    def _size(self, rate: float, cost_seconds: float, shards: Shards | None) -> int:
        return enough(rate, cost_seconds, self._settings.target_seconds, self._limits, keyed=shards is not None)

    def _up(self, observation: Observation, need: _Need, demand: Estimate, shards: Shards | None) -> Decision:
        now = observation.instances
        self._start_over()
        below = now < self._limits.least
        # What waits in the period of a change may have come to wait by the change itself.
        rested = observation.time_seconds - self._changed_seconds > observation.period_seconds
        if demand.count == 1 and need.quiet and not below:
            why = f"{need.why}: {need.low} instances needed, but nothing waits, so that may be one wrong measurement"
            return hold(observation, why, rejected=(Alternative(need.target, "not certain yet"),))
        if (
            self._lowered_for is not None
            and not (below or (need.waits and rested))
            and not Work(need.work, need.error).exceeds(self._lowered_for, self._settings.confidence)
        ):
            why = f"{need.why}: {need.low} instances may be needed, but {now} were enough for the same work"
            return hold(observation, why, rejected=(Alternative(need.target, "nothing waits for long"),))
        after = max(need.target, need.low, self._limits.least)
        busy = need.work / max(after - 1, 1)
        rejected: tuple[Alternative, ...] = (
            Alternative(now, f"{need.low} are needed even if the rates were overrated by chance"),
        )
        if now < after - 1:
            rejected += (Alternative(after - 1, f"would be busy {busy:.0%}, without room for what is foreseen"),)
        return self._resized(observation, after, need, shards, rejected)

    def _down(self, observation: Observation, need: _Need, shards: Shards | None) -> Decision:
        now, settings = observation.instances, self._settings
        enough = self._enough_to_keep(need)
        if enough >= now or need.waits:
            self._start_over()
            return self._balanced(observation, need, shards)
        self._enough.append(enough)
        self._surplus_seconds += observation.period_seconds * (now - enough) / now
        after = max(self._enough)
        if len(self._enough) < min(EVIDENCE, math.ceil(EVIDENCE * settings.patience_seconds + 1)):
            why_not = f"enough in {len(self._enough)} of {EVIDENCE} periods so far"
        elif self._surplus_seconds < (patience := self._patience_seconds(need)):
            why_not = (
                f"the surplus has cost {self._surplus_seconds:.1f} s of all instances, a change is worth {patience:g} s"
            )
        elif enough < SAME * after:
            why_not = f"{enough} may soon be enough: the need is still falling"
        else:
            why = f"enough in the last {len(self._enough)} periods, with {need.error:.1%} of error and room"
            return self._resized(observation, after, need, shards, (Alternative(now, f"{after} are {why}"),))
        kept = self._balanced(observation, need, shards)
        return (
            kept
            if kept.changes
            else hold(observation, kept.why, rejected=(*kept.rejected, Alternative(after, why_not)))
        )

    def _enough_to_keep(self, need: _Need) -> int:
        """The instances that are enough, and no fewer than the same work asked for before."""
        if self._raised is None:
            return need.high
        confidence = self._settings.confidence
        self._raised = self._raised.seen(need.due, confidence)
        return self._raised.floor(need.high, need.due, confidence)

    def _patience_seconds(self, need: _Need) -> float:
        """What a surplus must have cost before it goes: more if it was added at the same work, and not for what waited."""
        patience, raised = self._settings.patience_seconds, self._raised
        if raised is None or raised.waited or raised.fallen(need.due, self._settings.confidence):
            return patience
        return REGRET * patience

    def _balanced(self, observation: Observation, need: _Need, shards: Shards | None) -> Decision:
        """Spread shards anew if the hottest instance has more than it can do, and that would help; else hold."""
        now, subquery = observation.instances, observation.subquery
        why = f"{need.why}: {need.low} to {need.high} instances are enough, and there are {now}"
        if shards is None or not self._settings.balances:
            return hold(observation, why)
        hottest = need.work * shards.hottest_share
        rested = observation.time_seconds - self._changed_seconds >= EVIDENCE * observation.period_seconds
        if hottest < HOT or not rested:
            return hold(observation, why)
        mapping, share = shards.spread(now)
        if share > COOLER * shards.hottest_share:
            why += f"; the hottest has work for {hottest:.2f}, and no other mapping would change that much"
            return hold(observation, why)
        self._changed_seconds = observation.time_seconds
        why += f"; the hottest has work for {hottest:.2f}, with other shards {need.work * share:.2f}"
        expected = Effect(min(need.work / now, 1.0), processed=min(need.rate, 1 / (share * need.cost_seconds)))
        return Decision(subquery, Action.BALANCE, now, why, mapping, expected)

    def _resized(
        self,
        observation: Observation,
        after: int,
        need: _Need,
        shards: Shards | None,
        rejected: tuple[Alternative, ...],
    ) -> Decision:
        now, seconds, keyed = observation.instances, observation.time_seconds, shards is not None
        if after == now:
            return self._balanced(observation, need, shards)
        self._asked = after, seconds
        self._raised = None
        if after > now and need.steady > now:
            self._raised = Raised(need.steady, need.due.at_least(self._settings.confidence), need.draining > 0)
        self._lowered_for = Work(need.work, need.error) if after < now else None
        mapping = shards.spread(after)[0] if shards is not None and self._settings.balances else None
        expected = Effect(
            min(need.work / after, 1.0),
            latency(after, need.rate, need.cost_seconds, keyed=keyed),
            min(need.rate + need.draining, after / need.cost_seconds),
        )
        why = f"{need.why}: {after} instances, busy {min(need.work / after, 1.0):.0%}"
        return resize(observation, after, why, mapping=mapping, expected=expected, rejected=rejected)


def _why(foreseen: Ahead, waiting: Waiting, limited: Limited | None) -> str:
    """What the need follows from, in words."""
    why = f"{foreseen.rate:.4g}/s due"
    if limited is not None:
        why += f", but {limited.why}"
    if waiting.draining > 0:
        why += f" and {waiting.draining:.4g}/s to work off {waiting.tuples:.4g} that wait"
    return f"{why}, at {1 / foreseen.cost_seconds:.4g}/s an instance"
