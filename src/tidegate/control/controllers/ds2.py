"""DS2: as many instances as the demand divided by what one instance completes while it works.

Kalavri, Liagouris, Hoffmann, Dimitrova, Forshaw, Roscoe: "Three steps is all you need", OSDI 2018. The true rate of an
instance is what it processes per second of *useful* time, so neither waiting for input nor waiting for room downstream
makes it look slow; the demand is propagated from the sources (`observation`). If rates grow linearly with instances, one
decision is right, and the paper needs at most three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tidegate.control.controller import Alternative, Decision, Effect, Limits, hold, require, resize
from tidegate.control.observation import Observation

_ROUNDING = 1e-9  # a quotient of measured rates this little above a whole number is that number


@dataclass(frozen=True, slots=True)
class Ds2:
    """Divides the demand by what one instance completes while it works.

    The defaults are those of the published scaling manager, which combines no estimates and adjusts none.

    utilisation
        the busy share to aim at: 1 as published; 1/(1 + f) is the manager's `scaling_factor` f, and 0.7 is what
        Flink's autoscaler, the deployed descendant, has as its target.
    warm_up_periods
        observations that are ignored at the start and after a change. The published manager has no default; its sample
        configuration says 2 periods of 10 s, the time a job needs to restart.
    ignored_decrease
        a step down of so many instances or fewer is not worth a reconfiguration. The published manager ignores one,
        which is also what keeps it still when the quotient is close to a whole number. It looks at all operators of a
        job at once, where this looks at one subquery.
    boundary
        hold while the busy share that the present instances would have is within so much of `utilisation`: Flink's
        `target.utilization.boundary`. 0 as published.
    catch_up_seconds
        add what it takes to work off the backlog within this time: Flink's `catch-up.duration`. None, as published,
        leaves the backlog out of it; where it is set, `backlog` is needed too.

    >>> observed = Observation("q", 10.0, 10.0, 2, demand=5_000.0, processed=2_000.0, busy=(1.0, 1.0))
    >>> Ds2().start(Limits(1, 32)).decide(observed).instances
    5
    """

    utilisation: float = 1.0
    warm_up_periods: int = 0
    ignored_decrease: int = 1
    boundary: float = 0.0
    catch_up_seconds: float | None = None
    name: ClassVar[str] = "ds2"

    def __post_init__(self) -> None:
        require(0 < self.utilisation <= 1, "ds2", "utilisation", self.utilisation, "in (0, 1]")
        require(self.warm_up_periods >= 0, "ds2", "warm_up_periods", self.warm_up_periods, "at least 0")
        require(self.ignored_decrease >= 0, "ds2", "ignored_decrease", self.ignored_decrease, "at least 0")
        require(0 <= self.boundary < 1, "ds2", "boundary", self.boundary, "in [0, 1)")
        seconds = self.catch_up_seconds
        require(seconds is None or 0 < seconds < math.inf, "ds2", "catch_up_seconds", seconds, "above 0, or None")

    @property
    def needed(self) -> tuple[str, ...]:
        """The observations without which it holds."""
        return ("demand", "processed", "busy", *(("backlog",) if self.catch_up_seconds is not None else ()))

    def start(self, limits: Limits) -> Ds2Deciding:
        return Ds2Deciding(self, limits)


class Ds2Deciding:
    """DS2 at work on one subquery; it counts the periods since the last change."""

    def __init__(self, settings: Ds2, limits: Limits) -> None:
        self._settings, self._limits = settings, limits
        self._ignored = 0
        self._seen: int | None = None
        self._asked: int | None = None

    def decide(self, observation: Observation) -> Decision:
        settings, now = self._settings, observation.instances
        if self._seen is not None and now not in (self._seen, self._asked):
            self._ignored = 0  # another party changed the instances
        self._seen = now
        if self._ignored < settings.warm_up_periods:
            self._ignored += 1
            return hold(observation, f"warming up: period {self._ignored} of {settings.warm_up_periods}")
        if missing := observation.missing(settings.needed):
            return hold(observation, missing=missing)
        demand, rate = observation.demand or 0.0, observation.service_rate
        wanted = demand / settings.utilisation + (observation.backlog or 0.0) / (settings.catch_up_seconds or math.inf)
        if rate is None and wanted > 0:
            return hold(observation, "nothing was processed in the period, so there is no true rate to go by")
        after, reason, share = self._limits.least, "no demand", 0.0
        if rate is not None:
            instances = math.ceil(wanted / rate * (1 - _ROUNDING))
            reason = f"⌈{wanted:g}/s wanted / {rate:g}/s true rate of an instance⌉ = {instances}"
            after, share = self._limits.clamp(instances), wanted * settings.utilisation / (rate * now)
        if after != now and self._limits.least <= now <= self._limits.most:
            why_not = ""
            if 0 < now - after <= settings.ignored_decrease:
                why_not = f"a decrease of {now - after} is ignored (up to {settings.ignored_decrease})"
            elif abs(share - settings.utilisation) <= settings.boundary:
                why_not = f"the present instances would be busy {share:.2f}, within {settings.boundary:g} of the target"
            if why_not:
                return hold(observation, reason, rejected=(Alternative(after, why_not),))
        if after != now:
            self._ignored = 0
        self._asked = after
        busy = min(1.0, demand / (rate * after)) if rate else 0.0
        return resize(observation, after, reason, expected=Effect(busy, processed=busy * after * rate if rate else 0.0))
