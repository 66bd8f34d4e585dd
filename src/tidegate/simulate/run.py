"""Runs a simulation: shows each period to a control loop per subquery, and carries out what the loops decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tidegate.control.controller import Controller, Limits, Outcome
from tidegate.control.demand import with_demand
from tidegate.control.events import Event, Refused
from tidegate.control.loop import ControlLoop
from tidegate.errors import UserError
from tidegate.simulate.flow import Change
from tidegate.simulate.fluid import Fluid
from tidegate.simulate.history import Run, Taken
from tidegate.simulate.network import Network
from tidegate.simulate.observe import Observer, without

DEFAULT_LIMITS = Limits()


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
    """How a simulation is run: for how long, in which steps, within which limits, with which rules of the loop."""

    seconds: float
    limits: Limits = DEFAULT_LIMITS
    start: int | None = None
    period_seconds: float = 5.0
    tick_seconds: float = 1.0
    seed: int = 0
    cooldown_seconds: float = 0.0
    max_step: int | None = None
    dry_run: bool = False
    limits_of: tuple[tuple[str, Limits], ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.tick_seconds <= self.period_seconds <= self.seconds:
            raise UserError(
                f"simulation: must have 0 < tick_seconds ({self.tick_seconds:g}) ≤ period_seconds "
                f"({self.period_seconds:g}) ≤ seconds ({self.seconds:g})"
            )
        ticks = self.period_seconds / self.tick_seconds
        if abs(ticks - round(ticks)) > 1e-9:
            raise UserError(
                f"simulation: period_seconds ({self.period_seconds:g}) must be a whole number of ticks "
                f"(tick_seconds is {self.tick_seconds:g})"
            )

    def limits_for(self, subquery: str) -> Limits:
        """The limits of a subquery: its own, else the common ones."""
        return dict(self.limits_of).get(subquery, self.limits)

    def start_for(self, subquery: str) -> int:
        """The instances a subquery starts with."""
        limits = self.limits_for(subquery)
        return limits.least if self.start is None else limits.clamp(self.start)


class World:
    """The simulated network as an actuator: changes come into force at the beginning of a tick, late ones later."""

    def __init__(self, fluid: Fluid) -> None:
        self._fluid = fluid
        self.now = 0.0

    def reconfigure(self, subquery: str, instances: int, mapping: tuple[int, ...] | None) -> Outcome:
        """Order a change; it replaces one that has not come into force yet."""
        flow = self._fluid.flows.get(subquery)
        if flow is None:
            return Outcome(False, f"there is no subquery '{subquery}'")
        if instances < 1:
            return Outcome(False, f"subquery '{subquery}' cannot have {instances} instances")
        wrong = _wrong_mapping(mapping, len(flow.mapping), instances) if flow.keyed else ""
        if wrong:
            return Outcome(False, wrong)
        same_mapping = mapping is None or not flow.keyed or tuple(flow.mapping.tolist()) == mapping
        if flow.change is None and instances == flow.instances and same_mapping:
            return Outcome(True, "nothing to change", 0.0, 0)
        if flow.change is not None and (flow.change.instances, flow.change.mapping) == (instances, mapping):
            pause, moved_bytes = flow.cost(instances, mapping)
            return Outcome(True, "already under way", flow.change.at_seconds - self.now + pause, moved_bytes)
        if instances == flow.instances and same_mapping:
            flow.change = None
            return Outcome(True, "the change under way is called off", 0.0, 0)
        wait = flow.subquery.cost.start_seconds if instances > flow.instances else 0.0
        pause, moved_bytes = flow.cost(instances, mapping)
        flow.change = Change(self.now + wait, instances, mapping)
        return Outcome(True, "", wait + pause, moved_bytes)


def simulate(
    network: Network,
    controller: Controller | Mapping[str, Controller] | None,
    settings: Settings,
    *,
    shadows: tuple[Controller, ...] = (),
    record: Callable[[Event], None] | None = None,
    progress: Callable[[SimulationProgress], None] | None = None,
) -> Run:
    """Simulate a network under control, from time 0, and return what happened.

    `controller` drives every subquery, or those that a mapping names; the others, and all of them for None, keep the
    number of instances they start with. The same arguments give the same run. One control step costs what building an
    observation costs, O(shards); a tick costs O(instances) while nothing waits, O(shards) otherwise.
    """
    ticks_per_period = round(settings.period_seconds / settings.tick_seconds)
    ticks = int(settings.seconds / settings.tick_seconds + 1e-9)
    names = [subquery.name for subquery in network.order]
    start = {name: settings.start_for(name) for name in names}
    fluid = Fluid(network, start, ticks=ticks, tick_seconds=settings.tick_seconds, seed=settings.seed)
    world, observer = World(fluid), Observer(fluid, settings.seed)
    driven = _driven(controller, names)
    taken: list[Taken] = []
    refused: list[Refused] = []

    def note(event: Event) -> None:
        if isinstance(event, Refused):
            refused.append(event)
        if record is not None:
            record(event)

    loops = {
        name: ControlLoop(
            driving,
            settings.limits_for(name),
            world,
            cooldown_seconds=settings.cooldown_seconds,
            max_step=settings.max_step,
            dry_run=settings.dry_run,
            shadows=shadows,
            record=note,
        )
        for name, driving in driven.items()
    }
    for index in range(ticks):
        fluid.tick(index)
        if (index + 1) % ticks_per_period:
            continue
        world.now = (index + 1) * settings.tick_seconds
        observed = with_demand(observer.observe(index, ticks_per_period), network.all_feeds)
        for observation in without(observed, network.withheld):
            if observation.subquery in loops:
                refused.clear()
                decision = loops[observation.subquery].step(observation)
                if decision.changes:
                    taken.append(Taken(world.now, decision, not (refused or settings.dry_run)))
        if progress is not None:
            progress(_progress(fluid, index, settings.seconds, len(taken)))
    return Run(
        network,
        ", ".join(sorted({driving.name for driving in driven.values()})) or "none",
        settings.seed,
        settings.tick_seconds,
        settings.period_seconds,
        (np.arange(ticks) + 1) * settings.tick_seconds,
        fluid.history,
        tuple(taken),
        {name: flow.moved_bytes for name, flow in fluid.flows.items()},
    )


def _driven(controller: Controller | Mapping[str, Controller] | None, names: list[str]) -> dict[str, Controller]:
    if controller is None:
        return {}
    if not isinstance(controller, Mapping):
        return dict.fromkeys(names, controller)
    unknown = [name for name in controller if name not in names]
    if unknown:
        raise UserError(f"simulation: controllers for {unknown}, but the subqueries are {names}")
    return dict(controller)


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
