"""Loads: how many tuples per second are offered, as a function of time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from tidegate.errors import UserError
from tidegate.simulate.keys import Floats

DAY_SECONDS = 86_400.0


class Load(Protocol):
    """Tuples per second offered at each of the given times, in seconds from the start; never negative."""

    def rate(self, times: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same rate at all times."""

    level: float

    def __post_init__(self) -> None:
        _not_negative("constant load", level=self.level)

    def rate(self, times: Floats) -> Floats:
        return np.full(len(times), self.level)


@dataclass(frozen=True, slots=True)
class Step:
    """Levels of constant rate, each `(seconds, rate)`, one after the other; from the top again, or the last for ever.

    >>> Step(((250.0, 5_000.0), (100.0, 10_000.0))).rate(np.array([0.0, 249.0, 250.0, 350.0])).tolist()
    [5000.0, 5000.0, 10000.0, 5000.0]
    """

    levels: tuple[tuple[float, float], ...]
    repeats: bool = True

    def __post_init__(self) -> None:
        if not self.levels:
            raise UserError("step load: no levels; give pairs of seconds and rate")
        for seconds, rate in self.levels:
            _positive("step load", seconds=seconds)
            _not_negative("step load", rate=rate)

    @property
    def seconds(self) -> float:
        """How long all levels take together."""
        return sum(seconds for seconds, _ in self.levels)

    def rate(self, times: Floats) -> Floats:
        ends = np.cumsum([seconds for seconds, _ in self.levels])
        rates = np.array([rate for _, rate in self.levels], dtype=np.float64)
        within = np.mod(times, ends[-1]) if self.repeats else times
        return rates[np.minimum(np.searchsorted(ends, within, side="right"), len(rates) - 1)]


@dataclass(frozen=True, slots=True)
class Sine:
    """A sine wave around `mean`, which it leaves upwards at time 0."""

    mean: float
    amplitude: float
    period_seconds: float

    def __post_init__(self) -> None:
        _not_negative("sine load", amplitude=self.amplitude)
        _positive("sine load", period_seconds=self.period_seconds)
        if self.mean < self.amplitude:
            raise UserError(
                f"sine load: amplitude ({self.amplitude:g}) is larger than mean ({self.mean:g}), "
                "so the rate would be negative; make amplitude ≤ mean"
            )

    def rate(self, times: Floats) -> Floats:
        return np.asarray(self.mean + self.amplitude * np.sin(2 * np.pi * times / self.period_seconds))


@dataclass(frozen=True, slots=True)
class Ramp:
    """Straight lines through points `(seconds, rate)`; constant before the first and after the last."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        times = [seconds for seconds, _ in self.points]
        if len(times) < 2 or any(after <= before for before, after in pairwise(times)):
            raise UserError(f"ramp load: points at {times} s; give two or more, in rising order of time")
        for _, rate in self.points:
            _not_negative("ramp load", rate=rate)

    def rate(self, times: Floats) -> Floats:
        seconds, rates = zip(*self.points, strict=True)
        return np.asarray(np.interp(times, seconds, rates))


@dataclass(frozen=True, slots=True)
class Spikes:
    """A base rate with rectangular spikes up to `peak`, every `every_seconds`, each `lasting_seconds` long.

    The first spike comes after a whole interval.
    """

    base: float
    peak: float
    every_seconds: float
    lasting_seconds: float

    def __post_init__(self) -> None:
        _not_negative("spikes", base=self.base, peak=self.peak)
        _positive("spikes", every_seconds=self.every_seconds, lasting_seconds=self.lasting_seconds)
        if self.lasting_seconds >= self.every_seconds:
            raise UserError(
                f"spikes: lasting_seconds ({self.lasting_seconds:g}) must be less than every_seconds "
                f"({self.every_seconds:g}), or there is nothing between spikes"
            )

    def rate(self, times: Floats) -> Floats:
        spiking = (times >= self.every_seconds) & (np.mod(times, self.every_seconds) < self.lasting_seconds)
        return np.where(spiking, self.peak, self.base)


@dataclass(frozen=True, slots=True)
class FlashCrowd:
    """A crowd that comes within `rise_seconds` from `at_seconds` on, and loses interest by half in `half_life_seconds`."""

    base: float
    peak: float
    at_seconds: float
    rise_seconds: float
    half_life_seconds: float

    def __post_init__(self) -> None:
        _not_negative("flash crowd", base=self.base, at_seconds=self.at_seconds)
        _positive("flash crowd", rise_seconds=self.rise_seconds, half_life_seconds=self.half_life_seconds)
        if self.peak < self.base:
            raise UserError(f"flash crowd: peak ({self.peak:g}) is below base ({self.base:g}); make peak ≥ base")

    def rate(self, times: Floats) -> Floats:
        since = times - self.at_seconds
        rising = np.clip(since / self.rise_seconds, 0.0, 1.0)
        falling = np.exp2(-np.maximum(since - self.rise_seconds, 0.0) / self.half_life_seconds)
        return np.asarray(self.base + (self.peak - self.base) * rising * falling)


@dataclass(frozen=True, slots=True)
class Day:
    """A day of people: lowest before dawn, a first peak before noon, the highest in the evening; repeats daily.

    `low` and `high` are the least and the greatest rate of the day. Time 0 is midnight.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _not_negative("day", low=self.low)
        if self.high < self.low:
            raise UserError(f"day: high ({self.high:g}) is below low ({self.low:g}); make high ≥ low")

    def rate(self, times: Floats) -> Floats:
        shape, every_minute = _diurnal(times), _diurnal(np.arange(0.0, DAY_SECONDS, 60.0))
        least, greatest = every_minute.min(), every_minute.max()
        return self.low + (self.high - self.low) * np.asarray(np.clip((shape - least) / (greatest - least), 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Trace:
    """A replayed load: from each of the rising `times` on, the rate beside it; 0 before the first."""

    times: tuple[float, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times or len(self.times) != len(self.rates):
            raise UserError(
                f"trace: {len(self.times)} times and {len(self.rates)} rates; give as many of each, at least 1"
            )
        if bool((np.diff(self.times) <= 0).any()):
            raise UserError("trace: times must rise; sort the trace and remove repeated times")
        if min(self.rates) < 0 or not np.isfinite(self.rates).all():
            raise UserError(f"trace: rates must be finite and 0 or more; the least is {min(self.rates):g}")

    def rate(self, times: Floats) -> Floats:
        places = np.searchsorted(np.array(self.times), times, side="right")
        return np.concatenate(([0.0], np.array(self.rates, dtype=np.float64)))[places]


@dataclass(frozen=True, slots=True)
class Total:
    """Several loads at once, each multiplied by `factor`."""

    parts: tuple[Load, ...]
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not self.parts:
            raise UserError("total load: no parts; give one or more loads")
        _not_negative("total load", factor=self.factor)

    def rate(self, times: Floats) -> Floats:
        return self.factor * np.asarray(np.sum([part.rate(times) for part in self.parts], axis=0))


def phases(
    seed: int,
    *,
    total_seconds: float = 1200.0,
    phase_seconds: tuple[float, float] = (100.0, 300.0),
    rates: tuple[float, float] = (500.0, 8_000.0),
) -> Step:
    """Phases of random length and random constant rate, joined by abrupt changes; by default those of STRETCH §8.5, Q5."""
    shortest, longest = phase_seconds
    if not 0 < shortest <= longest or not 0 <= rates[0] <= rates[1]:
        raise UserError(
            f"phases: phase_seconds {phase_seconds} and rates {rates} must each be (least, most), not negative"
        )
    random = np.random.default_rng(seed)
    levels: list[tuple[float, float]] = []
    while sum(seconds for seconds, _ in levels) < total_seconds:
        levels.append((float(np.rint(random.uniform(shortest, longest))), float(np.rint(random.uniform(*rates)))))
    return Step(tuple(levels))


def _diurnal(times: Floats) -> Floats:
    turn = 2 * np.pi * times / DAY_SECONDS
    return np.asarray(-np.cos(turn - 0.9) + 0.45 * np.sin(2 * turn + 2.6))


def _positive(subject: str, **values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and np.isfinite(value)):
            raise UserError(f"{subject}: {name} ({value:g}) must be more than 0 and finite")


def _not_negative(subject: str, **values: float) -> None:
    for name, value in values.items():
        if not (value >= 0 and np.isfinite(value)):
            raise UserError(f"{subject}: {name} ({value:g}) must be 0 or more and finite")
