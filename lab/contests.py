"""The loads of the tournament: what each is, and the networks it is offered to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.network import ContendedSubquery, Network, Source, one
from tidegate.control.controller import Limits
from tidegate.control.observation import DataflowEdge
from tidegate.simulate.loads import (
    ELASTICUTOR,
    GEDIK_SINE,
    GEDIK_STEP,
    STREAMCLOUD_RAMP,
    STRETCH_Q5,
    ConstantLoad,
    DayLoad,
    FlashCrowd,
    Floats,
    Load,
    RampLoad,
    SineLoad,
    SpikeLoad,
    StepLoad,
    SumOfLoads,
    TraceLoad,
    load_named,
    phases,
)
from tidegate.simulate.model import JoinWindow, KeyDistribution, Noise, ReconfigurationCost, SubqueryModel, ZipfKeys

TARGET_SECONDS = 0.5
SERVICE_SECONDS = 0.002
PAUSE_SECONDS, START_SECONDS = 1.0, 10.0
COST = ReconfigurationCost(PAUSE_SECONDS, start_seconds=START_SECONDS)
LATE = ReconfigurationCost(PAUSE_SECONDS, start_seconds=45.0)
NOISE = Noise(rates=0.03, busy=0.03, congestion=0.1, latency=0.1, arrivals=1.0, idle_congestion=0.002)
LOUD = Noise(rates=0.1, busy=0.1, congestion=0.2, latency=0.2, arrivals=4.0, idle_congestion=0.01)


TAIL_SECONDS, TAIL_SHARE = 900.0, 0.03
"""Every load ends with so long a quiet time, at this share of its mean: time to work off what was put off."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A load for so long, and from then on a share of its mean."""

    load: Load
    seconds: float
    share: float

    def rate(self, times: Floats) -> Floats:
        mean = float(self.load.rate(np.arange(0.0, self.seconds)).mean())
        return np.where(times < self.seconds, self.load.rate(times), self.share * mean)


@dataclass(frozen=True, slots=True)
class Contest:
    """One load on one network, for so long, within limits; then the quiet time."""

    name: str
    network: Network
    seconds: float
    limits: Limits = Limits(1, 48)  # noqa: RUF009 - a frozen value
    period_seconds: float = 5.0
    tick_seconds: float = 1.0
    start: int = 1

    @property
    def whole_seconds(self) -> float:
        """How long it takes with the quiet time."""
        return self.seconds + TAIL_SECONDS

    @property
    def ending(self) -> Network:
        """The network under loads that end with the quiet time."""
        sources = (replace(each, load=Ending(each.load, self.seconds, TAIL_SHARE)) for each in self.network.sources)
        return replace(self.network, sources=tuple(sources))


def _subquery(**more: object) -> SubqueryModel:
    return replace(ContendedSubquery("subquery", SERVICE_SECONDS, cost=COST), **more)  # type: ignore[arg-type]


def _on(load: Load, *, noise: Noise = NOISE, waits: bool = True, **more: object) -> Network:
    """The load on one subquery, whose properties may be given."""
    return one(_subquery(**more), load, waits=waits, noise=noise)


def _two(load: Load) -> Network:
    """A cheap subquery that feeds 0.4 of its tuples to a dear one."""
    subqueries = (
        SubqueryModel("parse", 0.001, cost=COST),
        SubqueryModel("score", 0.004, cost=COST),
    )
    return Network(subqueries, (Source("parse", load),), (DataflowEdge("parse", "score", 0.4),), noise=NOISE)


def bursts(seed: int, *, seconds: float = 1_800.0, every_seconds: float = 20.0, mean: float = 5_000.0) -> TraceLoad:
    """A trace as of a busy service: a slowly wandering mean with bursts, a value every so often."""
    random = np.random.default_rng(seed)
    count = int(seconds / every_seconds)
    wander, values = 0.0, []
    for _ in range(count):
        wander = 0.95 * wander + 0.12 * random.normal()
        burst = random.uniform(1.3, 2.0) if random.random() < 0.04 else 1.0
        values.append(float(np.rint(mean * np.exp(wander) * burst)))
    return TraceLoad(tuple(float(time) for time in np.arange(count) * every_seconds), tuple(values))


def _zipf(exponent: float, shuffles_per_minute: float = 0.0, seed: int = 103) -> KeyDistribution:
    return ZipfKeys(exponent=exponent, shuffles_per_minute=shuffles_per_minute, seed=seed)


STALL = StepLoad(((300, 20_000), (300, 4_000), (600, 20_000)), repeats=False)
JOIN = JoinWindow(window_seconds=60.0, seconds_per_comparison=1e-8)

EIGHT_TENTHS = SumOfLoads((ELASTICUTOR,), 0.8)
"""Elasticutor's micro-benchmark; at its full load and 1 ms a tuple, its most frequent key alone fills an instance."""

MANY = Limits(1, 256)

REPORTED: Sequence[Contest] = (
    Contest("constant", _on(load_named("constant")), 1_000),
    Contest("noisy", _on(StepLoad(((400, 5_000), (400, 8_000))), noise=LOUD), 1_600),
    Contest("gedik-step", _on(GEDIK_STEP), 1_500),
    Contest("gedik-step, slowing", _on(GEDIK_STEP, waits=False), 1_500),
    Contest("gedik-sine", _on(GEDIK_SINE), 1_500),
    Contest("gedik-sine, two subqueries", _two(GEDIK_SINE), 1_500),
    Contest("ramp", _on(load_named("ramp")), 1_800),
    Contest("streamcloud-ramp", _on(STREAMCLOUD_RAMP, service_seconds=27 / 155_000), 3_300),
    Contest("spikes", _on(load_named("spikes")), 1_800),
    Contest("flash-crowd", _on(load_named("flash-crowd")), 1_200),
    Contest("day", _on(load_named("day")), 86_400, period_seconds=30.0, tick_seconds=5.0),
    Contest("trace", _on(bursts(107)), 1_800),
    Contest("stretch-q5", _on(STRETCH_Q5), 1_200),
    Contest("stretch-q5, window join", _on(STRETCH_Q5, service_seconds=0.0005, window=JOIN), 1_200),
    Contest(
        "elasticutor",
        _on(EIGHT_TENTHS, service_seconds=0.001, keys=_zipf(0.5, 2.0), shards=8_192),
        600,
        MANY,
        start=176,
    ),
    Contest("skewed keys", _on(GEDIK_SINE, keys=_zipf(0.8, 0.25)), 1_500),
    Contest("one hot key", _on(StepLoad(((300, 2_000), (600, 4_500), (300, 2_000))), keys=_zipf(1.2)), 1_200),
    Contest("downstream stall", _on(ConstantLoad(8_000), downstream_limit=STALL), 1_200),
    Contest("late executors", _on(phases(111, total_seconds=1_800), cost=LATE), 1_800),
    Contest("contention", _on(StepLoad(((400, 4_000), (400, 7_000))), serial_share=0.02), 1_600),
)
"""What the tables show; the papers' own loads are among them."""

TUNING: Sequence[Contest] = (
    Contest("constant 3,300", _on(ConstantLoad(3_300)), 800),
    Contest("noisy phases", _on(phases(21), noise=LOUD), 1_200),
    Contest("phases 22", _on(phases(22)), 1_200),
    Contest("phases 23, slowing", _on(phases(23), waits=False), 1_200),
    Contest("short sine", _on(SineLoad(6_000, 4_000, 240)), 960),
    Contest("long sine, two subqueries", _two(SineLoad(6_000, 3_000, 900)), 1_800),
    Contest("steep ramp", _on(RampLoad(((0, 1_000), (200, 1_000), (400, 15_000), (700, 15_000), (800, 1_000)))), 1_200),
    Contest("large ramp", _on(RampLoad(((0, 30_000), (600, 100_000), (1_200, 30_000))), service_seconds=0.0003), 1_400),
    Contest("rare spikes", _on(SpikeLoad(2_000, 12_000, 300, 40)), 1_500),
    Contest("slow crowd", _on(FlashCrowd(2_000, 9_000, 200, 90, 200)), 1_200),
    Contest("half a day", _on(DayLoad(500, 8_000)), 43_200, period_seconds=30.0, tick_seconds=5.0),
    Contest("trace 31", _on(bursts(31)), 1_800),
    Contest("join phases", _on(phases(24), service_seconds=0.0005, window=JOIN), 1_200),
    Contest("mild skew", _on(phases(25), keys=_zipf(0.6, 0.5, 9)), 1_200),
    Contest("hot key", _on(StepLoad(((200, 1_500), (500, 6_000))), keys=_zipf(1.1, 0.0, 8)), 1_400),
    Contest("stall", _on(SineLoad(7_000, 1_000, 300), downstream_limit=StepLoad(((200, 9_000), (200, 3_000)))), 1_200),
    Contest("late phases", _on(phases(26), cost=LATE), 1_200),
    Contest(
        "two crowds", _on(SumOfLoads((FlashCrowd(1_000, 5_000, 100, 20, 60), FlashCrowd(0, 6_000, 500, 40, 90)))), 1_000
    ),
)
"""What Steady's settings and rules were chosen on; other loads, and other seeds, than those reported."""

TUNING_SEEDS = (1, 2)
REPORTED_SEEDS = (101, 102)
