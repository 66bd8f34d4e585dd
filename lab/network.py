"""Networks of subqueries in the fluid simulation: each feeds the next, and a full buffer slows down all before it.

In each tick the subqueries are asked from the last to the first how much they can take in, back to the sources; then
tuples move from the first to the last, through all of them in one tick where nothing holds them up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

import numpy as np

from tidegate.control.controller import Decision
from tidegate.control.events import Event, Stepped
from tidegate.control.loop import unrecorded
from tidegate.control.observation import DataflowEdge, Observation, with_demand
from tidegate.control.rules import Rule, Rules
from tidegate.errors import UserError, choices
from tidegate.simulate.fluid import SubqueryFlow, SubqueryHistory, passed_share
from tidegate.simulate.loads import Floats, Load, rates_of
from tidegate.simulate.model import Noise, SubqueryModel
from tidegate.simulate.run import NoisyObserver, SimulationSettings, Simulator

NO_NOISE = Noise()


@dataclass(frozen=True, slots=True)
class ContendedSubquery(SubqueryModel):
    """A subquery whose instances slow each other down, or whose results are not all accepted.

    serial_share, crosstalk
        each of n instances works at 1/(1 + serial_share·(n − 1) + crosstalk·n·(n − 1)) of its speed: Gunther's universal
        scalability law. With serial_share alone, n instances are never worth more than 1/serial_share.
    downstream_limit
        tuples per second of its input whose results the next subquery accepts: congestion that instances do not cure.
    """

    serial_share: float = 0.0
    crosstalk: float = 0.0
    downstream_limit: Load | None = None

    def speed(self, instances: int) -> float:
        others = instances - 1
        return 1.0 / (1.0 + self.serial_share * others + self.crosstalk * instances * others)


@dataclass(frozen=True, slots=True)
class TakenDecision:
    """A decision to change something, when it was taken, and whether it was carried out."""

    time_seconds: float
    decision: Decision
    accepted: bool


@dataclass(frozen=True, slots=True)
class Source:
    """A load that enters the network at a subquery; see `SimulatedQuery` for `waits`."""

    into: str
    load: Load
    waits: bool = True


@dataclass(frozen=True, slots=True)
class Network:
    """Subqueries, what enters from outside, and what they send each other; `order` lists them upstream first."""

    subqueries: tuple[SubqueryModel, ...]
    sources: tuple[Source, ...]
    feeds: tuple[DataflowEdge, ...] = ()
    noise: Noise = NO_NOISE
    order: tuple[SubqueryModel, ...] = field(init=False)

    def __post_init__(self) -> None:
        by_name = {subquery.name: subquery for subquery in self.subqueries}
        if not len(by_name) == len(self.subqueries) > 0:
            raise UserError(f"network: names of subqueries must differ; got {list(by_name)}")
        named = [source.into for source in self.sources]
        named += [name for feed in self.feeds for name in (feed.upstream, feed.downstream) if name is not None]
        for name in named:
            if name not in by_name:
                raise UserError(f"network: no subquery is called '{name}'; there are {choices(by_name)}")
        if not self.sources or len({source.into for source in self.sources}) < len(self.sources):
            raise UserError(
                f"network: sources enter at {named[: len(self.sources)]}; give one or more, one per subquery"
            )
        for feed in self.feeds:
            if feed.upstream is None or feed.selectivity is None:
                raise UserError(
                    f"network: feed {feed.upstream} → {feed.downstream} must name its upstream and its selectivity; "
                    "what comes from outside is a Source"
                )
        upstream = {name: [f.upstream for f in self.feeds if f.downstream == name] for name in by_name}
        try:
            order = tuple(TopologicalSorter(upstream).static_order())
        except CycleError as error:
            raise UserError(f"network: {' → '.join(error.args[1])} is a cycle; subqueries feed one way") from error
        reached = {source.into for source in self.sources} | {feed.downstream for feed in self.feeds}
        for name in by_name:
            if name not in reached:
                raise UserError(f"network: nothing feeds subquery '{name}'; give it a Source or a Feed")
        object.__setattr__(self, "order", tuple(by_name[str(name)] for name in order))

    @property
    def all_feeds(self) -> tuple[DataflowEdge, ...]:
        """The feeds, sources among them, as the demand of each subquery is computed from."""
        return (*(DataflowEdge(None, source.into) for source in self.sources), *self.feeds)


def one(subquery: SubqueryModel, load: Load, *, waits: bool = True, noise: Noise = NO_NOISE) -> Network:
    """The network of a single subquery."""
    return Network((subquery,), (Source(subquery.name, load, waits),), noise=noise)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished simulation of a network. `times` are the ends of the ticks."""

    network: Network
    controller: str
    settings: SimulationSettings
    times: Floats
    subqueries: dict[str, SubqueryHistory]
    decisions: tuple[TakenDecision, ...]

    def __getitem__(self, subquery: str) -> SubqueryHistory:
        return self.subqueries[subquery]

    @property
    def tick_seconds(self) -> float:
        return self.settings.tick_seconds

    @property
    def period_seconds(self) -> float:
        return self.settings.period_seconds

    @property
    def only(self) -> SubqueryHistory:
        """The history of the subquery, where there is one."""
        (history,) = self.subqueries.values()
        return history

    @property
    def entering(self) -> Floats:
        """What the sources offer, all together, in tuples per second."""
        return np.asarray(np.sum([self.subqueries[source.into].offered for source in self.network.sources], axis=0))

    @property
    def latency(self) -> Floats:
        """Seconds through the whole network: each subquery's latency, times how often a tuple comes by there."""
        entering = np.maximum(self.entering, 1e-12)
        return np.asarray(np.sum([each.latency * each.offered / entering for each in self.subqueries.values()], axis=0))

    @property
    def processed(self) -> Floats:
        """Tuples per second that the subqueries with sources completed, all together."""
        return np.asarray(np.sum([self.subqueries[source.into].processed for source in self.network.sources], axis=0))

    @property
    def instances(self) -> Floats:
        """Instances of all subqueries together."""
        return np.asarray(np.sum([each.instances for each in self.subqueries.values()], axis=0))

    @property
    def paid(self) -> Floats:
        """Instances of all subqueries together that are paid for."""
        return np.asarray(np.sum([each.paid for each in self.subqueries.values()], axis=0))


class NetworkSimulator(Simulator):
    """The simulator of a whole network."""

    def __init__(self, network: Network, start: Mapping[str, int], settings: SimulationSettings) -> None:
        self.network, self.settings, self.now_seconds = network, settings, 0.0
        self._observer = NoisyObserver(network.noise, settings.seed)
        names = [subquery.name for subquery in network.order]
        random = np.random.default_rng((settings.seed, 1))
        entering = {each.into: settings.arrivals(each.load, network.noise, random) for each in network.sources}
        waits = {source.into: source.waits for source in network.sources}
        self._outputs = {name: [feed for feed in network.feeds if feed.upstream == name] for name in names}
        self._senders = {
            name: [feed.upstream for feed in network.feeds if feed.downstream == name]
            + ([None] if name in entering else [])
            for name in names
        }
        self._wanted: dict[tuple[str | None, str], float] = {}
        middles = (np.arange(settings.ticks) + 0.5) * settings.tick_seconds
        limits = {each.name: getattr(each, "downstream_limit", None) for each in network.order}
        self._limits = {
            name: rates_of(limit, middles) * settings.tick_seconds
            for name, limit in limits.items()
            if limit is not None
        }
        demand = {name: entering.get(name, np.zeros(settings.ticks)) for name in names}
        self.flows: dict[str, SubqueryFlow] = {}
        for subquery in network.order:
            name = subquery.name
            for feed in self._outputs[name]:
                demand[feed.downstream] = demand[feed.downstream] + demand[name] * (feed.selectivity or 0.0)
            self.flows[name] = SubqueryFlow(
                subquery,
                start[name],
                settings.tick_seconds,
                demand[name],
                entering.get(name),
                waits=waits.get(name, True),
            )

    def tick(self, index: int) -> None:
        outlets: dict[str, float] = {}
        rooms: dict[str, float] = {}
        for flow in self.flows.values():
            flow.begin(index)
        for name in reversed(self.flows):
            outlets[name] = self._outlet(name, rooms, index)
            rooms[name] = self.flows[name].room(outlets[name])
        arriving = dict.fromkeys(self.flows, 0.0)
        blocked: dict[str, list[float]] = {name: [] for name in self.flows}
        for name, flow in self.flows.items():
            if flow.entering is not None:
                self._wanted[None, name] = flow.queued + float(flow.entering[index])
            room = self._room_for(None, name, rooms)
            processed = flow.advance(index, room, outlets[name], arriving[name], blocked[name])
            for feed in self._outputs[name]:
                selectivity = feed.selectivity or 0.0
                arriving[feed.downstream] += processed * selectivity
                self._wanted[name, feed.downstream] = flow.wanted * selectivity
                holds_up = (
                    self._room_for(name, feed.downstream, rooms) / selectivity <= outlets[name] if selectivity else 0
                )
                blocked[feed.downstream].append(1.0 - passed_share(processed, flow.wanted) if holds_up else 0.0)

    def with_demand(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        return with_demand(observations, self.network.all_feeds)

    def _outlet(self, name: str, rooms: Mapping[str, float], index: int) -> float:
        """Tuples that a subquery may complete in the tick before what comes after it is full."""
        outlet = float(self._limits[name][index]) if name in self._limits else math.inf
        for feed in self._outputs[name]:
            if feed.selectivity:
                outlet = min(outlet, self._room_for(name, feed.downstream, rooms) / feed.selectivity)
        return outlet

    def _room_for(self, sender: str | None, receiver: str, rooms: Mapping[str, float]) -> float:
        """A sender's part of the room at a receiver: by what each sender wanted to send in the last tick."""
        senders = self._senders[receiver]
        if len(senders) == 1:
            return rooms[receiver]
        total = sum(self._wanted.get((each, receiver), 0.0) for each in senders)
        part = self._wanted.get((sender, receiver), 0.0) / total if total > 0 else 1 / len(senders)
        return rooms[receiver] * part


def simulate(
    network: Network,
    rules: Rules | Rule | None,
    settings: SimulationSettings,
    *,
    record: Callable[[Event], None] = unrecorded,
    progress: Callable[[str], None] | None = None,
) -> Run:
    """Simulate a network under control from time 0. A single rule holds for every subquery."""
    each = Rules(rules) if isinstance(rules, Rule) else rules
    names = [subquery.name for subquery in network.order]
    if each is not None:
        each.check(names)
    by_name = {} if each is None else {name: each.of(name) for name in names}
    start = {name: settings.start_within(by_name[name].limits if by_name else None) for name in names}
    simulator = NetworkSimulator(network, start, settings)
    taken: list[TakenDecision] = []

    def note(event: Event) -> None:
        if isinstance(event, Stepped) and event.outcome is not None:
            taken.append(TakenDecision(event.time_seconds, event.decision, event.outcome.accepted))
        record(event)

    simulator.run(by_name, note, progress)
    controllers = ", ".join(sorted({rule.controller.name for rule in by_name.values()})) or "none"
    times = (np.arange(settings.ticks) + 1) * settings.tick_seconds
    histories = {name: flow.history for name, flow in simulator.flows.items()}
    return Run(network, controllers, settings, times, histories, tuple(taken))
