"""What is seen of a simulated network in a period: averages over its ticks, off by the network's noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tidegate.control.observation import Observation, WindowInput
from tidegate.simulate.flow import Flow
from tidegate.simulate.fluid import Fluid
from tidegate.simulate.keys import Floats


def without(observations: Iterable[Observation], fields: frozenset[str]) -> tuple[Observation, ...]:
    """The observations with those fields absent."""
    absent: dict[str, Any] = dict.fromkeys(fields)
    return tuple(replace(each, **absent) if absent else each for each in observations)


class Observer:
    """Makes the observations of a period and starts the next one. Its noise comes from the seed alone."""

    def __init__(self, fluid: Fluid, seed: int) -> None:
        self._fluid = fluid
        self._random = np.random.default_rng((seed, 2))
        self._mappings: dict[str, tuple[object, tuple[int, ...]]] = {}
        self._sources = {source.into for source in fluid.network.sources}

    def observe(self, index: int, ticks: int) -> tuple[Observation, ...]:
        """All subqueries over the period of so many ticks that ends with the tick of that index."""
        made = without((self._of(name, index, ticks) for name in self._fluid.flows), self._fluid.network.withheld)
        for name, flow in self._fluid.flows.items():
            self._fluid.busy_seconds[name] = np.zeros(flow.instances)
        return made

    def _of(self, name: str, index: int, ticks: int) -> Observation:
        fluid, flow, history = self._fluid, self._fluid.flows[name], self._fluid.history[name]
        noise, hidden = fluid.network.noise, fluid.network.withheld
        rows = slice(index + 1 - ticks, index + 1)
        period = ticks * fluid.tick_seconds
        admitted, processed = float(history.admitted[rows].mean()), float(history.processed[rows].mean())
        busy = self._off(fluid.busy_seconds[name] / period, noise.busy)
        weights = history.processed[rows]
        latency = np.average(history.latency[rows], weights=weights) if weights.sum() > 0 else history.latency[index]
        shard_loads = None
        if flow.keyed and "shard_loads" not in hidden:
            shard_loads = tuple(self._off(admitted * flow.shares, noise.rates).tolist())
        window_inputs, comparisons = self._windows(flow, admitted, processed)
        return Observation(
            subquery=name,
            time_seconds=(index + 1) * fluid.tick_seconds,
            period_seconds=period,
            instances=flow.instances,
            mapping=self._mapping(name, flow) if flow.keyed else None,
            offered=self._rate(float(history.offered[rows].mean()), noise.rates) if name in self._sources else None,
            admitted=self._rate(admitted, noise.rates),
            processed=self._rate(processed, noise.rates),
            backlog=float(history.backlog[index]),
            congestion=self._blocked(float(history.congestion[rows].mean())),
            busy=tuple(np.minimum(busy, 1.0).tolist()),
            shard_loads=shard_loads,
            shard_state_bytes=self._state_bytes(flow) if "shard_state_bytes" not in hidden else None,
            watermark_lag_seconds=self._lag(name, flow),
            latency_seconds=self._rate(float(latency), noise.latency),
            window_inputs=window_inputs,
            comparisons=comparisons,
        )

    def _off(self, values: Floats, deviation: float) -> Floats:
        if deviation == 0:
            return values
        return np.maximum(values * (1.0 + deviation * self._random.normal(size=len(values))), 0.0)

    def _rate(self, value: float, deviation: float) -> float:
        return value if deviation == 0 else max(value * (1.0 + deviation * float(self._random.normal())), 0.0)

    def _blocked(self, share: float) -> float:
        noise = self._fluid.network.noise
        seen = min(self._rate(share, noise.congestion), 1.0)
        if noise.idle_congestion == 0:
            return seen
        return seen + (1.0 - seen) * min(float(self._random.exponential(noise.idle_congestion)), 1.0)

    def _mapping(self, name: str, flow: Flow) -> tuple[int, ...]:
        known = self._mappings.get(name)
        if known is None or known[0] is not flow.mapping:
            known = self._mappings[name] = (flow.mapping, tuple(flow.mapping.tolist()))
        return known[1]

    def _state_bytes(self, flow: Flow) -> tuple[int, ...] | None:
        return tuple(flow.shard_bytes().astype(np.int64).tolist()) if flow.keyed else None

    def _lag(self, name: str, flow: Flow) -> float:
        queued = self._fluid.queues.get(name, 0.0)
        return flow.longest_delay() + queued / flow.full_rate

    def _windows(
        self, flow: Flow, admitted: float, processed: float
    ) -> tuple[tuple[WindowInput, ...] | None, float | None]:
        window = flow.subquery.window
        if window is None:
            return None, None
        shares = (window.left_share, 1 - window.left_share)
        inputs = tuple(WindowInput(share * admitted, share * flow.held, window.window_seconds) for share in shares)
        return inputs, processed * window.comparisons_per_held * flow.held
