"""DS2: as many instances as the demand divided by what one instance completes while it works.

Kalavri, Liagouris, Hoffmann, Dimitrova, Forshaw, Roscoe: "Three steps is all you need", OSDI 2018. The true rate of an
instance is what it processes per second of *useful* time, so neither waiting for input nor waiting for room downstream
makes it look slow; the demand is propagated from the sources (`demand.py`). If rates grow linearly with instances, one
decision is right, and the paper needs at most three.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

from tidegate.control.controller import Limits, require
from tidegate.control.decision import Alternative, Decision, Expectation, hold, hold_without, resize
from tidegate.control.observation import Observation

NEEDED = ("demand", "processed", "busy")

_ROUNDING = 1e-9  # a quotient of measured rates this little above a whole number is that number


@dataclass(frozen=True, slots=True)
class Ds2:
    """Divides the demand by what one instance completes while it works.

    The defaults are those of the published scaling manager.

    utilisation
        the busy share to aim at: 1 as published; 1/(1 + f) is the manager's `scaling_factor` f, and 0.7 is what
        Flink's autoscaler, the deployed descendant, has as its target.
    activation
        how many estimates in a row are combined into one decision, by their `combine`: "median" (upper) or "max".
    warm_up_periods
        observations that are ignored at the start and after a change. The published manager has no default; its sample
        configuration says 2 periods of 10 s, the time a job needs to restart.
    ignored_decrease
        a step down of so many instances or fewer is not worth a reconfiguration. The published manager ignores one,
        which is also what keeps it still when the quotient is close to a whole number. It looks at all operators of a
        job at once, where this looks at one subquery.
    target_rate_ratio
        where the model sees no reason to grow and the sources still offer more than this many times what is admitted,
        the estimate is multiplied by that ratio: the published final adjustment, for overheads the rates do not show.
        Never, by default; where it is set, `offered` and `admitted` are needed too.
    boundary
        hold while the busy share that the present instances would have is within so much of `utilisation`: Flink's
        `target.utilization.boundary`. 0 as published.
    catch_up_seconds
        add what it takes to work off the backlog within this time: Flink's `catch-up.duration`. None, as published,
        leaves the backlog out of it; where it is set, `backlog` is needed too.

    >>> from tidegate.control.controller import Limits
    >>> observed = Observation("q", 10.0, 10.0, 2, demand=5_000.0, processed=2_000.0, busy=(1.0, 1.0))
    >>> Ds2().start(Limits(1, 32)).decide(observed).instances
    5
    """

    utilisation: float = 1.0
    activation: int = 1
    combine: Literal["median", "max"] = "median"
    warm_up_periods: int = 0
    ignored_decrease: int = 1
    target_rate_ratio: float = math.inf
    boundary: float = 0.0
    catch_up_seconds: float | None = None

    def __post_init__(self) -> None:
        require(0 < self.utilisation <= 1, "ds2", "utilisation", self.utilisation, "in (0, 1]")
        require(self.activation >= 1, "ds2", "activation", self.activation, "at least 1")
        require(self.combine in ("median", "max"), "ds2", "combine", self.combine, "'median' or 'max'")
        require(self.warm_up_periods >= 0, "ds2", "warm_up_periods", self.warm_up_periods, "at least 0")
        require(self.ignored_decrease >= 0, "ds2", "ignored_decrease", self.ignored_decrease, "at least 0")
        require(self.target_rate_ratio >= 1, "ds2", "target_rate_ratio", self.target_rate_ratio, "at least 1")
        require(0 <= self.boundary < 1, "ds2", "boundary", self.boundary, "in [0, 1)")
        seconds = self.catch_up_seconds
        require(seconds is None or 0 < seconds < math.inf, "ds2", "catch_up_seconds", seconds, "above 0, or None")

    @property
    def name(self) -> str:
        return "ds2"

    @property
    def needed(self) -> tuple[str, ...]:
        """The observations without which it holds: more with the options that look at more."""
        ratio = ("offered", "admitted") if self.target_rate_ratio < math.inf else ()
        backlog = ("backlog",) if self.catch_up_seconds is not None else ()
        return (*NEEDED, *ratio, *backlog)

    def start(self, limits: Limits) -> Ds2Deciding:
        return Ds2Deciding(self, limits)


class Ds2Deciding:
    """DS2 at work on one subquery; it remembers the estimates since the last change, and when that was."""

    def __init__(self, settings: Ds2, limits: Limits) -> None:
        self._settings, self._limits = settings, limits
        self._estimates: deque[int] = deque(maxlen=settings.activation)
        self._ignored = 0
        self._seen: int | None = None
        self._asked: int | None = None

    def decide(self, observation: Observation) -> Decision:
        subquery, now = observation.subquery, observation.instances
        self._notice(now)
        if self._ignored < self._settings.warm_up_periods:
            self._ignored += 1
            return hold(subquery, now, f"warming up: period {self._ignored} of {self._settings.warm_up_periods}")
        if missing := observation.missing(self._settings.needed):
            return hold_without(missing, subquery, now)
        demand, rate = self._demand(observation), observation.service_rate
        if rate is None and demand > 0:
            return hold(subquery, now, "nothing was processed in the period, so there is no true rate to go by")
        estimate, reason = self._estimate(observation, demand, rate)
        self._estimates.append(estimate)
        if len(self._estimates) < self._settings.activation:
            why = f"{reason}; estimate {len(self._estimates)} of {self._settings.activation} before a decision"
            return hold(subquery, now, why)
        return self._settle(observation, demand, rate, reason)

    def _notice(self, now: int) -> None:
        """Start over if the instances were changed by somebody else."""
        if self._seen is not None and now not in (self._seen, self._asked):
            self._start_over()
        self._seen = now

    def _start_over(self) -> None:
        self._estimates.clear()
        self._ignored = 0

    def _demand(self, observation: Observation) -> float:
        """Tuples per second to make room for, at the aimed-at utilisation; what is known to be present is needed."""
        assert observation.demand is not None
        demand = observation.demand / self._settings.utilisation
        if self._settings.catch_up_seconds is None:
            return demand
        assert observation.backlog is not None
        return demand + observation.backlog / self._settings.catch_up_seconds

    def _estimate(self, observation: Observation, demand: float, rate: float | None) -> tuple[int, str]:
        """The number of instances by the model, within the limits, and the sentence that says why."""
        if rate is None:
            return self._limits.least, "no demand"
        instances = math.ceil(demand / rate * (1 - _ROUNDING))
        reason = f"⌈{demand:g}/s wanted / {rate:g}/s true rate of an instance⌉ = {instances}"
        ratio = self._ratio(observation)
        if instances <= observation.instances and ratio > self._settings.target_rate_ratio:
            instances = math.ceil(instances * ratio * (1 - _ROUNDING))
            reason += f", × {ratio:.2f} because sources still offer that many times what is admitted = {instances}"
        return self._limits.clamp(instances), reason

    def _ratio(self, observation: Observation) -> float:
        if self._settings.target_rate_ratio == math.inf or not observation.offered:
            return 1.0
        return observation.offered / observation.admitted if observation.admitted else 1.0

    def _settle(self, observation: Observation, demand: float, rate: float | None, reason: str) -> Decision:
        """Turn the estimates into a decision, unless the change is too small to be worth it."""
        now, settings = observation.instances, self._settings
        ordered = sorted(self._estimates)
        after = ordered[-1] if settings.combine == "max" else ordered[len(ordered) // 2]
        share = demand * settings.utilisation / (rate * now) if rate else 0.0
        outside = not self._limits.least <= now <= self._limits.most
        if after != now and not outside:
            if 0 < now - after <= settings.ignored_decrease:
                why_not = f"a decrease of {now - after} is ignored (up to {settings.ignored_decrease})"
                return hold(observation.subquery, now, reason, rejected=(Alternative(after, why_not),))
            if abs(share - settings.utilisation) <= settings.boundary:
                why_not = f"the present instances would be busy {share:.2f}, within {settings.boundary:g} of the target"
                return hold(observation.subquery, now, reason, rejected=(Alternative(after, why_not),))
        if after != now:
            self._start_over()
        self._asked = after
        assert observation.demand is not None
        busy = min(1.0, observation.demand / (rate * after)) if rate else 0.0
        expected = Expectation(utilisation=busy, processed=busy * after * rate if rate else 0.0)
        return resize(observation.subquery, now, after, reason, expected=expected)
