"""The fluid simulation: tuples as a fluid that flows through a network of subqueries, tick by tick.

In each tick the subqueries are asked from the last to the first how much they can take in, so that a full buffer slows
down whoever feeds it, back to the sources; then tuples move from the first to the last, through all of them in one tick
where nothing holds them up. Nothing is lost on the way: what arrived was completed, waits, or was never made by a source
that slows down. Randomness is in the arrivals alone, and only if the network's noise asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tidegate.errors import UserError
from tidegate.simulate.flow import EPSILON, Flow
from tidegate.simulate.history import History
from tidegate.simulate.keys import Floats
from tidegate.simulate.network import JoinWindow, Network


class Fluid:
    """A network at work. Call `tick` once for each tick; histories fill up row by row."""

    def __init__(
        self, network: Network, instances: Mapping[str, int], *, ticks: int, tick_seconds: float, seed: int
    ) -> None:
        self.network, self.tick_seconds, self.ticks = network, tick_seconds, ticks
        self.flows: dict[str, Flow] = {}
        for subquery in network.order:
            if instances[subquery.name] < 1:
                raise UserError(f"subquery '{subquery.name}': must start with 1 instance or more")
            self.flows[subquery.name] = Flow(subquery, instances[subquery.name])
        self.history = {name: History.empty(name, ticks) for name in self.flows}
        self.queues = {source.into: 0.0 for source in network.sources}
        self.busy_seconds: dict[str, Floats] = {name: np.zeros(flow.instances) for name, flow in self.flows.items()}
        self._waits = {source.into: source.waits for source in network.sources}
        self._outputs = {name: [feed for feed in network.feeds if feed.upstream == name] for name in self.flows}
        self._senders = {
            name: [feed.upstream for feed in network.feeds if feed.downstream == name]
            + ([None] if name in self.queues else [])
            for name in self.flows
        }
        self._wanted: dict[tuple[str | None, str], float] = {}
        middles = (np.arange(ticks) + 0.5) * tick_seconds
        self._entering = self._arrivals(middles, seed)
        self._limits = {
            name: flow.subquery.downstream_limit.rate(middles) * tick_seconds
            for name, flow in self.flows.items()
            if flow.subquery.downstream_limit is not None
        }
        self._fill = {
            name: WindowFill(flow.subquery.window, ticks, tick_seconds)
            for name, flow in self.flows.items()
            if flow.subquery.window is not None
        }

    def tick(self, index: int) -> None:
        """Let one tick pass."""
        now, seconds = index * self.tick_seconds, self.tick_seconds
        rates: dict[str, float] = {}
        capacities: dict[str, float] = {}
        outlets: dict[str, float] = {}
        rooms: dict[str, float] = {}
        for name, flow in self.flows.items():
            flow.begin(now)
            rates[name] = flow.lane_rate
            capacities[name] = rates[name] * seconds * flow.open_share(now, seconds)
        for name in reversed(self.flows):
            flow = self.flows[name]
            outlets[name] = self._outlet(name, rooms, index)
            rooms[name] = flow.room(capacities[name] * _drain(outlets[name], flow.wanted))
        arriving = dict.fromkeys(self.flows, 0.0)
        blocked: dict[str, list[float]] = {name: [] for name in self.flows}
        for name, flow in self.flows.items():
            arrived, created = arriving[name], arriving[name]
            if name in self.queues:
                admitted, made = self._admit(name, rooms[name], index, blocked[name])
                arrived, created = arrived + admitted, created + made
            processed = flow.serve(arrived, capacities[name], outlets[name])
            for feed in self._outputs[name]:
                selectivity = feed.selectivity or 0.0
                arriving[feed.downstream] += processed * selectivity
                self._wanted[name, feed.downstream] = flow.wanted * selectivity
                holds_up = (
                    self._room_for(name, feed.downstream, rooms) / selectivity <= outlets[name] if selectivity else 0
                )
                blocked[feed.downstream].append(1.0 - _drain(processed, flow.wanted) if holds_up else 0.0)
            if name in self._fill:
                flow.held = self._fill[name].move(index, created, processed)
            busy = flow.busy(rates[name] * seconds)
            self._record(name, index, arrived, processed, busy, blocked[name], _drain(outlets[name], flow.wanted))

    def _arrivals(self, middles: Floats, seed: int) -> dict[str, Floats]:
        random = np.random.default_rng((seed, 1))
        dispersion = self.network.noise.arrivals
        made = {}
        for source in self.network.sources:
            mean = source.load.rate(middles) * self.tick_seconds
            if dispersion > 0:
                mean = np.maximum(mean + random.normal(size=len(mean)) * np.sqrt(dispersion * mean), 0.0)
            made[source.into] = mean
        self._demand = {name: np.zeros(len(middles)) for name in self.flows}
        for name in self.flows:
            self._demand[name] += made.get(name, 0.0)
            for feed in self._outputs[name]:
                self._demand[feed.downstream] += self._demand[name] * (feed.selectivity or 0.0)
        return made

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

    def _admit(self, name: str, room: float, index: int, blocked: list[float]) -> tuple[float, float]:
        """Tuples taken in from a source, and tuples it made: all it offers if it can wait, else what it could send."""
        offered = float(self._entering[name][index])
        queued = self.queues[name]
        wanted = queued + offered
        self._wanted[None, name] = wanted
        room = self._room_for(None, name, {name: room})
        admitted = min(wanted, room)
        left = wanted - admitted
        if not self._waits[name]:
            blocked.append(left / wanted if wanted > 0 else 0.0)
            return admitted, admitted
        self.queues[name] = left = left if left > EPSILON * wanted else 0.0
        if queued > 0:
            # The queue lasted the whole tick, or until it was drained by what the room left over.
            blocked.append(1.0 if left > 0 else min(queued / max(room - offered, queued), 1.0))
        else:
            blocked.append(left / wanted if wanted > 0 else 0.0)
        return wanted - left, offered

    def _record(
        self,
        name: str,
        index: int,
        arrived: float,
        processed: float,
        busy: Floats,
        blocked: list[float],
        drain: float,
    ) -> None:
        flow, history, seconds = self.flows[name], self.history[name], self.tick_seconds
        queued = self.queues.get(name, 0.0)
        kept = self.busy_seconds[name]
        if len(kept) != len(busy):
            kept = np.pad(kept, (0, max(len(busy) - len(kept), 0)))[: len(busy)]
        self.busy_seconds[name] = kept + busy * seconds
        history.offered[index] = self._demand[name][index] / seconds
        history.admitted[index] = arrived / seconds
        history.processed[index] = processed / seconds
        history.backlog[index] = flow.backlog + queued
        delay = flow.delay(arrived / seconds, drain, (index + 1) * seconds)
        history.latency[index] = delay + (queued / (flow.full_rate * max(drain, EPSILON)) if queued else 0.0)
        history.instances[index] = flow.instances
        history.paid[index] = flow.paid
        history.utilisation[index] = busy.mean()
        history.busiest[index] = busy.max()
        history.congestion[index] = sum(blocked) / len(blocked) if blocked else 0.0
        history.service_rate[index] = flow.subquery.speed(flow.instances) ** -1 / flow.seconds_per_tuple


class WindowFill:
    """What a join's windows hold: tuples that were made within the window before the one that is being processed."""

    def __init__(self, window: JoinWindow, ticks: int, tick_seconds: float) -> None:
        self._ticks_held = window.window_seconds / tick_seconds
        self._made = np.zeros(ticks + 1)
        self._processed = 0.0

    def move(self, index: int, made: float, processed: float) -> float:
        """Let a tick pass in which so many tuples were made and processed; returns how many are held at its end.

        The tuples come in order of event time, so the one processed last is the n-th made, n being all processed.
        """
        self._made[index + 1] = self._made[index] + made
        self._processed += processed
        known = self._made[: index + 2]
        # Of several ticks in which nothing was made, the last: an empty window is an old one.
        tick = min(int(np.searchsorted(known, self._processed, side="right")) - 1, index + 1)
        within = 0.0
        if tick <= index and known[tick + 1] > known[tick]:
            within = (self._processed - known[tick]) / (known[tick + 1] - known[tick])
        start = tick + within - self._ticks_held
        if start <= 0:
            return self._processed
        before = int(start)
        return float(self._processed - (known[before] + (start - before) * (known[before + 1] - known[before])))


def _drain(outlet: float, wanted: float) -> float:
    """The share of what is wanted that an outlet lets through."""
    return 1.0 if outlet >= wanted or wanted <= 0 else outlet / wanted
