"""Runs a simulation: shows each period to a control loop per subquery, and carries out what the loops decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.control.controller import Limits, Outcome
from tidegate.control.demand import with_demand
from tidegate.control.events import Acted, Event, Refused
from tidegate.control.loop import unrecorded
from tidegate.control.rules import Rule, Rules
from tidegate.errors import UserError
from tidegate.simulate.flow import reordered
from tidegate.simulate.fluid import Fluid
from tidegate.simulate.history import Run, Taken
from tidegate.simulate.network import Network
from tidegate.simulate.observe import Observer, without


@dataclass(frozen=True, slots=True)
class SimulationProgress:
    """How far a simulation has come."""

    seconds: float
    total_seconds: float
    offered: float
    processed: float
    backlog: float
    instances: int
    changes: int

    def __str__(self) -> str:
        share = f"{self.seconds / self.total_seconds:4.0%}"
        parts = [
            f"{share} · {self.seconds:,.0f} of {self.total_seconds:,.0f} s",
            f"{self.offered:,.0f} tuples/s offered",
        ]
        parts += [f"{self.processed:,.0f} processed", f"{self.backlog:,.0f} waiting"]
        return " · ".join([*parts, f"{self.instances:,} instances", f"{self.changes:,} changes"])


@dataclass(frozen=True, slots=True)
class Settings:
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


class World:
    """The simulated network as an actuator: changes come into force at the beginning of a tick, late ones later."""

    def __init__(self, fluid: Fluid) -> None:
        self._fluid = fluid
        self.now = 0.0

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> Outcome:
        """Say how many instances there shall be, with which mapping once all are there.

        Those on order come when they are due, each lot with a pause of its own, whatever is said after (`reordered`).
        """
        flow = self._fluid.flows.get(subquery)
        if flow is None:
            return Outcome(False, f"there is no subquery '{subquery}'")
        if instances < 1:
            return Outcome(False, f"subquery '{subquery}' cannot have {instances} instances")
        wrong = _wrong_mapping(mapping, len(flow.mapping), instances) if flow.keyed else ""
        if wrong:
            return Outcome(False, wrong)
        if instances == flow.instances and (
            mapping is None or not flow.keyed or tuple(flow.mapping.tolist()) == mapping
        ):
            note = "what is on order is called off" if flow.ordered else "nothing to change"
            flow.ordered = ()
            return Outcome(True, note, 0.0, 0)
        last = flow.ordered[-1] if flow.ordered else None
        same = last is not None and (last.instances, last.mapping) == (instances, mapping)
        wait = flow.subquery.cost.start_seconds
        flow.ordered = reordered(flow.ordered, flow.instances, instances, mapping, self.now, wait)
        pause, moved_bytes = flow.cost(instances, mapping)
        in_force = flow.ordered[-1].at_seconds - self.now + pause
        return Outcome(True, "already under way" if same else "", in_force, moved_bytes)


def simulate(
    network: Network,
    rules: Rules | Rule | None,
    settings: Settings,
    *,
    record: Callable[[Event], None] = unrecorded,
    progress: Callable[[SimulationProgress], None] | None = None,
) -> Run:
    """Simulate a network under control, from time 0, and return what happened.

    A single rule holds for every subquery; without rules, all keep the instances they start with. The same arguments
    give the same run. A control step costs what the observation does, O(shards), and the controller; a tick costs
    O(instances) while nothing waits, O(shards) otherwise.
    """
    each = Rules(rules) if isinstance(rules, Rule) else rules
    names = [subquery.name for subquery in network.order]
    if each is not None:
        each.check(names)
    start = {name: settings.start_within(each.of(name).limits if each is not None else None) for name in names}
    fluid = Fluid(network, start, ticks=settings.ticks, tick_seconds=settings.tick_seconds, seed=settings.seed)
    world, observer = World(fluid), Observer(fluid, settings.seed)
    taken: list[Taken] = []

    def note(event: Event) -> None:
        if isinstance(event, Acted | Refused):
            taken.append(Taken(event.time_seconds, event.decision, isinstance(event, Acted)))
        record(event)

    loops = {name: each.of(name).loop(world, note) for name in names} if each is not None else {}
    for index in range(settings.ticks):
        fluid.tick(index)
        if (index + 1) % settings.ticks_per_period:
            continue
        world.now = (index + 1) * settings.tick_seconds
        if loops:
            observed = with_demand(observer.observe(index, settings.ticks_per_period), network.all_feeds)
            for observation in without(observed, network.withheld):
                loops[observation.subquery].step(observation)
        if progress is not None:
            progress(_progress(fluid, index, settings.seconds, len(taken)))
    return Run(
        network,
        ", ".join(sorted({each.of(name).controller.name for name in names})) if each is not None else "none",
        settings.seed,
        settings.tick_seconds,
        settings.period_seconds,
        (np.arange(settings.ticks) + 1) * settings.tick_seconds,
        fluid.history,
        tuple(taken),
        {name: flow.moved_bytes for name, flow in fluid.flows.items()},
    )


def _wrong_mapping(mapping: tuple[int, ...] | None, shards: int, instances: int) -> str:
    if mapping is None or (len(mapping) == shards and min(mapping) >= 0 and max(mapping) < instances):
        return ""
    return f"the mapping must name, for each of {shards} shards, an instance from 0 to {instances - 1}"


def _progress(fluid: Fluid, index: int, total_seconds: float, changes: int) -> SimulationProgress:
    first = [fluid.history[source.into] for source in fluid.network.sources]
    return SimulationProgress(
        (index + 1) * fluid.tick_seconds,
        total_seconds,
        float(sum(each.offered[index] for each in first)),
        float(sum(each.processed[index] for each in first)),
        float(sum(each.backlog[index] for each in fluid.history.values())),
        sum(flow.instances for flow in fluid.flows.values()),
        changes,
    )
