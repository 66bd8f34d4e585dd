"""StreamCloud's elastic manager: keep the average busy share between two thresholds, and even (fig. 12)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tidegate.control.balancers.balance import (
    Balance,
    Balancer,
    Floats,
    Ints,
    Verdict,
    named_limit,
    observed_shards,
    shard_name,
    shard_use,
)
from tidegate.control.balancers.greedy import Greedy
from tidegate.control.controller import Action, Alternative, Decision, Effect, Limits, hold, resize
from tidegate.control.observation import Observation
from tidegate.errors import UserError, choices

PROVISIONING = ("load-aware", "individual")
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Keeps the average busy share of the instances between two thresholds, and spreads shards evenly.

    When the average leaves [lower, upper], it resizes to where the average is nearest to `target`.

    lower, upper, target
        StreamCloud's LUT, UUT and TUT, with lower < target < upper; the defaults are those of its self-provisioning
        experiment (§VI.C.3, fig. 21).
    provisioning
        ``"load-aware"`` goes to ⌈n·U/target⌉ instances at once; ``"individual"`` by one, which the paper shows to
        provision in cascades under a rising load.
    balancer
        decides when loads are too uneven and what moves then (Greedy: StreamCloud's UIT and MIT), and what new
        instances get. With None, and where shard loads or the mapping are not observed, every mapping is the runtime's
        choice and nothing is balanced.

    Needs `busy`. Where it goes beyond the paper:

    - A busy share cannot exceed 1, so under overload U says too little. Where `processed` and `demand` (or else
      `offered`) are observed, U is scaled by demand / processed: the size is right at once instead of growing by
      1/target a period. While a backlog drains, `processed` exceeds `demand` and U says too much; it is then scaled
      down, though not below the target, so that nothing is added for work that passes or taken away before it has.
    - A shard that alone needs more than an instance gets one and no more; the thresholds apply to the others.
    - Nothing is taken away if what is left would be above the upper threshold: that would bring it back next period.
      Only limits that are below the present size do so.
    """

    lower: float = 0.5
    upper: float = 0.9
    target: float = 0.6
    provisioning: str = "load-aware"
    balancer: Balancer | None = field(default_factory=Greedy)
    name: ClassVar[str] = "thresholds"

    def __post_init__(self) -> None:
        if not 0 <= self.lower < self.target < self.upper <= 1:
            raise UserError(
                f"thresholds: lower ({self.lower}), target ({self.target}) and upper ({self.upper}) are busy shares and "
                "must satisfy 0 ≤ lower < target < upper ≤ 1; StreamCloud's are 0.5, 0.6 and 0.9"
            )
        if self.provisioning not in PROVISIONING:
            raise UserError(f"thresholds: provisioning is '{self.provisioning}'; choose one of {choices(PROVISIONING)}")

    def start(self, limits: Limits) -> ThresholdsDeciding:
        return ThresholdsDeciding(self, limits)


@dataclass(frozen=True, slots=True)
class _BusyWork:
    """What there is to do, in instances' worth: `hot` shards that need one each and more, and the rest.

    `note` says how the observed busy share was corrected. `shards` are the instance and the rate of each, where known.
    """

    shards: tuple[Ints, Floats] | None
    total: float
    hot: int
    rest: float
    note: str
    hottest: str

    def share(self, instances: int) -> float:
        """The busy share to expect of the instances that hold no hot shard."""
        if instances > self.hot:
            return self.rest / (instances - self.hot)
        return 0.0 if instances == self.hot and self.rest <= ROUNDING else math.inf

    def average(self, instances: int) -> float:
        """The average busy share to expect of `instances` instances, a hot shard's being 1."""
        return min(1.0, (self.hot + self.rest) / instances)


@dataclass(frozen=True, slots=True)
class ThresholdsDeciding:
    """`Thresholds` at work on one subquery; it remembers nothing."""

    settings: Thresholds
    limits: Limits

    def decide(self, observation: Observation) -> Decision:
        settings, instances, busy = self.settings, observation.instances, observation.busy
        if observation.missing(("busy",)) or busy is None:
            return hold(observation, "the instances' busy shares are not known", missing=("busy",))
        if len(busy) != instances:
            why = f"busy shares of {len(busy)} instances were observed and there are {instances}"
            return hold(observation, why, missing=("busy",))
        if sum(busy) <= 0 and observation.due and observation.processed == 0:
            return hold(observation, "tuples were due and none was completed, so what they cost is not known")
        work = self._work(observation, busy)
        wanted, why = self._wanted(instances, work)
        after, rejected = self.limits.clamp(wanted), []
        if wanted != after:
            rejected.append(Alternative(wanted, f"limits are {self.limits}"))
            why += f"; limits are {self.limits}"
        uncapped = math.ceil(work.total / settings.target - ROUNDING)
        if work.hot and uncapped > wanted:
            rejected.append(Alternative(uncapped, work.hottest))
        if after < instances <= self.limits.most and work.share(after) > settings.upper + ROUNDING:
            rejected.append(Alternative(after, f"would be busy {work.share(after):.2f}, above {settings.upper:.2f}"))
            after = instances
        plan = self._plan(busy, work.shards, after)
        expected = Effect(work.average(after), deviation=None if plan is None else plan.deviation_after)
        mapping = None if plan is None else plan.mapping
        if after != instances:
            return resize(observation, after, why, mapping=mapping, expected=expected, rejected=tuple(rejected))
        if plan is None or (plan.verdict is Verdict.EVEN and not plan.moved):
            return hold(observation, why, rejected=tuple(rejected))
        spread = f"busy shares deviate by {plan.deviation_before:.3f}"
        if plan.moved:
            why = f"{spread}: moving {len(plan.moved)} shards brings that to {plan.deviation_after:.3f}; {why}"
            return Decision(observation.subquery, Action.BALANCE, instances, why, mapping, expected, tuple(rejected))
        reason = plan.verdict.value if plan.limit is None else str(named_limit(plan.limit, observation))
        rejected.append(Alternative(instances, f"balancing: {spread}, but {reason}"))
        return hold(observation, f"{why}; {spread}, {reason}", rejected=tuple(rejected))

    def _work(self, observation: Observation, busy: tuple[float, ...]) -> _BusyWork:
        use = sum(busy) / len(busy)
        ratio, note = self._correction(observation, use)
        total = use * ratio * len(busy)
        shards = observed_shards(observation)
        received = 0.0 if shards is None else float(shards[1].sum())
        if shards is None or received <= 0:
            return _BusyWork(shards, total, 0, total, note, "")
        needed = shards[1] * (total / received)
        hot = needed > 1 + ROUNDING
        shard = int(np.argmax(needed))
        hottest = f"{shard_name(observation, shard)} alone needs {needed[shard]:.2f} instances, more will not help it"
        return _BusyWork(shards, total, int(hot.sum()), float(total - needed[hot].sum()), note, hottest)

    def _correction(self, observation: Observation, use: float) -> tuple[float, str]:
        """What to multiply the busy share by so that it says what is due rather than what was done."""
        due, done = observation.due, observation.processed
        if not due or not done or not math.isfinite(done) or use <= 0:
            return 1.0, ""
        ratio = due / done
        if ratio < 1:
            ratio = max(ratio, min(1.0, self.settings.target / use)) if observation.waiting > 0 else 1.0
        if abs(ratio - 1) < 0.005:
            return ratio, ""
        return ratio, f" ({use:.2f} observed, {due:,.0f} tuples/s due and {done:,.0f} completed)"

    def _wanted(self, instances: int, work: _BusyWork) -> tuple[int, str]:
        """The size the thresholds ask for, limits aside: ComputeNewConfiguration, and why."""
        settings, share = self.settings, work.share(instances)
        seen = f"busy {share:.2f}" if math.isfinite(share) else "no instance is left for the rest"
        seen = f"{work.hottest}; the other instances: {seen}{work.note}" if work.hot else f"{seen}{work.note}"
        if settings.lower - ROUNDING <= share <= settings.upper + ROUNDING:
            return instances, f"{seen}, within [{settings.lower:.2f}, {settings.upper:.2f}]"
        above = share > settings.upper
        wanted = max(1, work.hot + math.ceil(work.rest / settings.target - ROUNDING))
        if settings.provisioning == "individual":
            wanted = instances + 1 if above else max(1, instances - 1)
        elif not above:
            wanted = min(wanted, instances)
        beyond = f"above {settings.upper:.2f}" if above else f"below {settings.lower:.2f}"
        return wanted, f"{seen}, {beyond}: {wanted} instances for a target of {settings.target:.2f}"

    def _plan(self, busy: tuple[float, ...], shards: tuple[Ints, Floats] | None, instances: int) -> Balance | None:
        """Fig. 12, lines 8 and 12: who gets what once there are `instances` instances; None if shards are not known."""
        if self.settings.balancer is None or shards is None:
            return None
        owners, rates = shards
        return self.settings.balancer.balance(owners, shard_use(owners, rates, busy), instances)
