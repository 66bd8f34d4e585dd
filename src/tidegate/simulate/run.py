"""Runs a simulation: each period is observed and goes to a control loop, whose decisions are carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tidegate.control.controller import ChangeOutcome, Limits
from tidegate.control.events import Event
from tidegate.control.loop import ControlLoop, unrecorded
from tidegate.control.observation import Observation, WindowInput, with_demand
from tidegate.control.rules import Rule
from tidegate.errors import UserError
from tidegate.simulate.fluid import SubqueryFlow, SubqueryHistory, reordered
from tidegate.simulate.loads import Floats, Load, rates_of
from tidegate.simulate.model import Noise, SimulatedQuery


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """How a simulation is run: for how long, in which steps, from which seed.

    Every subquery has `start` instances at first, or as near to that as its limits allow; None is the least they allow.
    """

    seconds: float
    start: int | None = None
    period_seconds: float = 5.0
    tick_seconds: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.tick_seconds <= self.period_seconds <= self.seconds:
            raise UserError(
                f"simulation: must have 0 < tick_seconds ({self.tick_seconds:g}) ≤ period_seconds "
                f"({self.period_seconds:g}) ≤ seconds ({self.seconds:g}); simulate for longer, or observe more often"
            )
        if self.start is not None and self.start < 1:
            raise UserError(f"simulation: start ({self.start}) must be 1 instance or more")
        if abs(self.ticks_per_period * self.tick_seconds - self.period_seconds) > 1e-9:
            raise UserError(
                f"simulation: period_seconds ({self.period_seconds:g}) must be a whole number of ticks "
                f"(tick_seconds is {self.tick_seconds:g})"
            )

    @property
    def ticks(self) -> int:
        """Whole ticks that the simulation has."""
        return int(self.seconds / self.tick_seconds + 1e-9)

    @property
    def ticks_per_period(self) -> int:
        """Ticks from one observation to the next."""
        return round(self.period_seconds / self.tick_seconds)

    def start_within(self, limits: Limits | None) -> int:
        """The instances that a subquery with these limits starts with."""
        if limits is None:
            return self.start or 1
        return limits.least if self.start is None else limits.clamp(self.start)

    def arrivals(self, load: Load, noise: Noise, random: np.random.Generator) -> Floats:
        """The tuples of a load in each tick."""
        mean = rates_of(load, (np.arange(self.ticks) + 0.5) * self.tick_seconds) * self.tick_seconds
        if noise.arrivals == 0:
            return mean
        return np.asarray(np.maximum(mean + random.normal(size=len(mean)) * np.sqrt(noise.arrivals * mean), 0.0))


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run went against a target for its mean latency.

    changes, reversals
        how often the number of instances changed, and how often in the opposite direction of the change before.
    instance_seconds
        what is paid: instances times seconds, from when they were ordered.
    late_time, late_tuples
        share of the time, and of the tuples completed, with a mean latency above the target.
    refused
        share of the offered tuples that sources did not produce because they were slowed down.
    """

    changes: int
    reversals: int
    instance_seconds: float
    late_time: float
    late_tuples: float
    refused: float


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A finished simulation of one subquery. `times` are the ends of the ticks."""

    query: SimulatedQuery
    controller: str
    settings: SimulationSettings
    times: Floats
    history: SubqueryHistory

    def summary(self, target_seconds: float) -> RunSummary:
        """The figures of the run."""
        row = self.history
        late, steps = row.latency > target_seconds, np.diff(row.instances)
        moves = steps[steps != 0].tolist()
        refused = 0.0 if self.query.waits else 1.0 - float(row.admitted.sum()) / max(float(row.offered.sum()), 1e-9)
        return RunSummary(
            changes=len(moves),
            reversals=sum(before * after < 0 for before, after in pairwise(moves)),
            instance_seconds=float(row.paid.sum()) * self.settings.tick_seconds,
            late_time=float(late.mean()),
            late_tuples=float(row.processed[late].sum()) / max(float(row.processed.sum()), 1e-9),
            refused=max(refused, 0.0),
        )


class NoisyObserver:
    """Observes flows at the ends of periods. Its noise comes from the seed alone."""

    def __init__(self, noise: Noise, seed: int) -> None:
        self._noise = noise
        self._random = np.random.default_rng((seed, 2))

    def observe(self, flow: SubqueryFlow, index: int, ticks: int) -> Observation:
        """The period of so many ticks that ends with the tick of that index; the next period starts."""
        history, noise = flow.history, self._noise
        rows = slice(index + 1 - ticks, index + 1)
        period = ticks * flow.tick_seconds
        admitted, processed = float(history.admitted[rows].mean()), float(history.processed[rows].mean())
        busy = self._off(flow.busy_seconds / period, noise.busy)
        flow.busy_seconds = np.zeros(flow.instances)
        weights = history.processed[rows]
        latency = np.average(history.latency[rows], weights=weights) if weights.sum() > 0 else history.latency[index]
        window = flow.model.window
        held = None if window is None else WindowInput(admitted / 2, flow.held / 2, window.window_seconds)
        return Observation(
            subquery=flow.model.name,
            time_seconds=(index + 1) * flow.tick_seconds,
            period_seconds=period,
            instances=flow.instances,
            mapping=tuple(flow.mapping.tolist()) if flow.keyed else None,
            shard_loads=tuple(self._off(admitted * flow.shares, noise.rates).tolist()) if flow.keyed else None,
            offered=None if flow.entering is None else self._one_off(float(history.offered[rows].mean()), noise.rates),
            admitted=self._one_off(admitted, noise.rates),
            processed=self._one_off(processed, noise.rates),
            backlog=float(history.backlog[index]),
            congestion=self._blocked(float(history.congestion[rows].mean())),
            busy=tuple(np.minimum(busy, 1.0).tolist()),
            watermark_lag_seconds=flow.watermark_lag,
            latency_seconds=self._one_off(float(latency), noise.latency),
            window_inputs=None if held is None else (held, held),
            comparisons=None if held is None else processed * 0.5 * flow.held,
        )

    def _off(self, values: Floats, deviation: float) -> Floats:
        if deviation == 0:
            return values
        return np.maximum(values * (1.0 + deviation * self._random.normal(size=len(values))), 0.0)

    def _one_off(self, value: float, deviation: float) -> float:
        return float(self._off(np.array([value]), deviation)[0])

    def _blocked(self, share: float) -> float:
        seen, idle = min(self._one_off(share, self._noise.congestion), 1.0), self._noise.idle_congestion
        return seen if idle == 0 else seen + (1.0 - seen) * min(float(self._random.exponential(idle)), 1.0)


class Simulator:
    """One subquery under control, and the actuator that carries out what its loop decides.

    The same arguments give the same run. A control step costs what the observation does, O(shards), and the controller;
    a tick costs O(instances) while nothing waits, O(shards) otherwise.
    """

    def __init__(self, query: SimulatedQuery, rule: Rule | None, settings: SimulationSettings) -> None:
        self.settings, self.now_seconds = settings, 0.0
        self._observer = NoisyObserver(query.noise, settings.seed)
        entering = settings.arrivals(query.load, query.noise, np.random.default_rng((settings.seed, 1)))
        start = settings.start_within(rule.limits if rule is not None else None)
        subquery, tick_seconds = query.subquery, settings.tick_seconds
        self.flows = {subquery.name: SubqueryFlow(subquery, start, tick_seconds, entering, entering, waits=query.waits)}

    def tick(self, index: int) -> None:
        """Let one tick pass."""
        for flow in self.flows.values():
            flow.begin(index)
            flow.advance(index, flow.room())

    def with_demand(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """The observations of one period with the demand of each subquery."""
        return with_demand(observations, ())

    def run(
        self,
        rules: Mapping[str, Rule],
        record: Callable[[Event], None] = unrecorded,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Let all ticks pass, with a loop for each subquery that has a rule; `progress` is told in a line."""
        loops = {name: ControlLoop(rule, self, record) for name, rule in rules.items()}
        ticks = self.settings.ticks_per_period
        for index in range(self.settings.ticks):
            self.tick(index)
            if (index + 1) % ticks:
                continue
            self.now_seconds = (index + 1) * self.settings.tick_seconds
            if loops:
                seen = [self._observer.observe(flow, index, ticks) for flow in self.flows.values()]
                for observation in self.with_demand(seen):
                    loops[observation.subquery].step(observation)
            if progress is not None:
                working = sum(flow.instances for flow in self.flows.values())
                waiting = float(sum(flow.history.backlog[index] for flow in self.flows.values()))
                seconds, total = self.now_seconds, self.settings.seconds
                progress(
                    f"{seconds / total:4.0%} · {seconds:,.0f} of {total:,.0f} s · {working:,} instances · "
                    f"{waiting:,.0f} tuples waiting"
                )

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> ChangeOutcome:
        """Order a number of instances, with a mapping that holds once all are there, from the next tick on or later.

        Those ordered before come when they are due, each lot with a pause of its own (`reordered`).
        """
        flow = self.flows[subquery]
        if not flow.keyed:
            mapping = None
        if mapping is not None and not (
            len(mapping) == len(flow.mapping) and min(mapping) >= 0 and max(mapping) < instances
        ):
            return ChangeOutcome(
                False, f"the mapping must name an instance from 0 to {instances - 1} for all {len(flow.mapping)} shards"
            )
        if instances == flow.instances and (mapping is None or tuple(flow.mapping.tolist()) == mapping):
            note = "what is on order is called off" if flow.ordered else "nothing to change"
            flow.ordered = ()
            return ChangeOutcome(True, note, 0.0)
        last = flow.ordered[-1] if flow.ordered else None
        same = last is not None and (last.instances, last.mapping) == (instances, mapping)
        cost = flow.model.cost
        flow.ordered = reordered(flow.ordered, flow.instances, instances, mapping, self.now_seconds, cost.start_seconds)
        in_force = flow.ordered[-1].at_seconds - self.now_seconds + cost.pause_seconds
        return ChangeOutcome(True, "already under way" if same else "", in_force)


def simulate(
    query: SimulatedQuery,
    rule: Rule | None,
    settings: SimulationSettings,
    *,
    record: Callable[[Event], None] = unrecorded,
    progress: Callable[[str], None] | None = None,
) -> SimulatedRun:
    """Simulate a subquery under control from time 0; without a rule it keeps the instances it starts with."""
    simulator = Simulator(query, rule, settings)
    simulator.run({} if rule is None else {query.subquery.name: rule}, record, progress)
    (flow,) = simulator.flows.values()
    times = (np.arange(settings.ticks) + 1) * settings.tick_seconds
    return SimulatedRun(query, "none" if rule is None else rule.controller.name, settings, times, flow.history)
