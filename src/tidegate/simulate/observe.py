"""What is observed of a simulated subquery in a period: averages over its ticks, off by the noise."""

from __future__ import annotations

import numpy as np

from tidegate.control.observation import Observation, WindowInput
from tidegate.simulate.fluid import SubqueryFlow
from tidegate.simulate.loads import Floats
from tidegate.simulate.model import Noise


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
