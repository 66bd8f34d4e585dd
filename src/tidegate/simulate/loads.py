"""Loads: tuples per second offered as a function of time, the named ones of the papers, and those read from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import DataError, UserError, choices

Floats = NDArray[np.floating[Any]]
DAY_SECONDS = 86_400.0


class Load(Protocol):
    """Tuples per second offered at each of the given times, in seconds from the start; never negative."""

    def rate(self, times: Floats) -> Floats: ...


def rates_of(load: Load, times: Floats) -> Floats:
    """The rates of a load, refused where they are no rates."""
    rates = load.rate(times)
    if not (np.isfinite(rates).all() and (rates >= 0).all()):
        raise UserError(
            f"{type(load).__name__}: the rate must be 0 or more and finite at all times, not {rates.min():g}"
        )
    return rates


@dataclass(frozen=True, slots=True)
class ConstantLoad:
    """The same rate at all times."""

    level: float

    def rate(self, times: Floats) -> Floats:
        return np.full(len(times), self.level)


@dataclass(frozen=True, slots=True)
class StepLoad:
    """Levels of constant rate, each `(seconds, rate)`, in turn; from the top again, or the last one for ever.

    >>> StepLoad(((250.0, 5_000.0), (100.0, 10_000.0))).rate(np.array([0.0, 249.0, 250.0, 350.0])).tolist()
    [5000.0, 5000.0, 10000.0, 5000.0]
    """

    levels: tuple[tuple[float, float], ...]
    repeats: bool = True

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
class SineLoad:
    """A sine wave around `mean`, rising at time 0."""

    mean: float
    amplitude: float
    period_seconds: float

    def rate(self, times: Floats) -> Floats:
        return np.asarray(self.mean + self.amplitude * np.sin(2 * np.pi * times / self.period_seconds))


@dataclass(frozen=True, slots=True)
class RampLoad:
    """Straight lines through points `(seconds, rate)`; constant before the first and after the last."""

    points: tuple[tuple[float, float], ...]

    def rate(self, times: Floats) -> Floats:
        seconds, rates = zip(*self.points, strict=True)
        return np.asarray(np.interp(times, seconds, rates))


@dataclass(frozen=True, slots=True)
class SpikeLoad:
    """A base rate with rectangular spikes up to `peak` every `every_seconds`; the first after a whole interval."""

    base: float
    peak: float
    every_seconds: float
    lasting_seconds: float

    def rate(self, times: Floats) -> Floats:
        spiking = (times >= self.every_seconds) & (np.mod(times, self.every_seconds) < self.lasting_seconds)
        return np.where(spiking, self.peak, self.base)


@dataclass(frozen=True, slots=True)
class FlashCrowd:
    """A peak that is reached `rise_seconds` after `at_seconds` and halves every `half_life_seconds` from then on."""

    base: float
    peak: float
    at_seconds: float
    rise_seconds: float
    half_life_seconds: float

    def rate(self, times: Floats) -> Floats:
        since = times - self.at_seconds
        rising = np.clip(since / self.rise_seconds, 0.0, 1.0)
        falling = np.exp2(-np.maximum(since - self.rise_seconds, 0.0) / self.half_life_seconds)
        return np.asarray(self.base + (self.peak - self.base) * rising * falling)


@dataclass(frozen=True, slots=True)
class DayLoad:
    """A day of people, from midnight on: `low` before dawn, a peak before noon, `high` in the evening; repeats daily."""

    low: float
    high: float

    def rate(self, times: Floats) -> Floats:
        shape, every_minute = _diurnal(times), _diurnal(np.arange(0.0, DAY_SECONDS, 60.0))
        least, greatest = every_minute.min(), every_minute.max()
        return self.low + (self.high - self.low) * np.asarray(np.clip((shape - least) / (greatest - least), 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class TraceLoad:
    """A replayed load: from each of the rising `times` on, the rate beside it; 0 before the first."""

    times: tuple[float, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.times) == len(self.rates):
            raise UserError(
                f"trace: {len(self.times)} times and {len(self.rates)} rates; give as many of each, at least 1"
            )
        if not (np.diff(self.times) > 0).all():
            raise UserError("trace: times must rise; sort them and remove repeated ones")

    def rate(self, times: Floats) -> Floats:
        places = np.searchsorted(np.array(self.times), times, side="right")
        return np.concatenate(([0.0], np.array(self.rates, dtype=np.float64)))[places]


@dataclass(frozen=True, slots=True)
class SumOfLoads:
    """Several loads at once, multiplied by `factor`."""

    parts: tuple[Load, ...]
    factor: float = 1.0

    def rate(self, times: Floats) -> Floats:
        return self.factor * np.asarray(np.sum([part.rate(times) for part in self.parts], axis=0))


def phases(seed: int, *, total_seconds: float = 1200.0) -> StepLoad:
    """Phases of 100 to 300 s at a constant rate of 500 to 8,000 tuples/s, both random: those of STRETCH §8.5, Q5."""
    random = np.random.default_rng(seed)
    levels: list[tuple[float, float]] = []
    while sum(seconds for seconds, _ in levels) < total_seconds:
        levels.append((float(np.rint(random.uniform(100.0, 300.0))), float(np.rint(random.uniform(500.0, 8_000.0)))))
    return StepLoad(tuple(levels))


def _diurnal(times: Floats) -> Floats:
    turn = 2 * np.pi * times / DAY_SECONDS
    return np.asarray(-np.cos(turn - 0.9) + 0.45 * np.sin(2 * turn + 2.6))


GEDIK_SINE = SineLoad(mean=5_000, amplitude=2_500, period_seconds=500)
GEDIK_STEP = StepLoad(((250, 5_000), (100, 10_000), (150, 2_000)))
STREAMCLOUD_RAMP = RampLoad(((0, 5_000), (500, 64_506), (900, 100_869), (1_500, 155_000), (3_000, 5_000)))
"""Through the rates of StreamCloud's table I at the times its text gives for 11 and for 17 instances, on to what 27
instances hold, and down again."""

STRETCH_Q5 = phases(seed=5)
ELASTICUTOR = ConstantLoad(200_000)
"""Elasticutor's micro-benchmark at 1 ms a tuple: 200 of its 256 cores busy."""

NAMED: dict[str, tuple[Load, str]] = {
    "constant": (ConstantLoad(5_000), "5,000 tuples/s"),
    "day": (DayLoad(low=1_000, high=12_000), "1,000 to 12,000 tuples/s in the course of a day"),
    "day-with-crowd": (
        SumOfLoads((DayLoad(low=1_000, high=9_000), FlashCrowd(0, 6_000, 40_000, 60, 900))),
        "a day, with a flash crowd of 6,000 tuples/s at 11 o'clock",
    ),
    "elasticutor": (ELASTICUTOR, "200,000 tuples/s (Elasticutor §5.1, at 1 ms a tuple)"),
    "flash-crowd": (
        FlashCrowd(base=1_500, peak=12_000, at_seconds=300, rise_seconds=30, half_life_seconds=120),
        "1,500 tuples/s, within 30 s up to 12,000, halving every 2 minutes",
    ),
    "gedik-sine": (GEDIK_SINE, "5,000 ± 2,500 tuples/s, period 500 s (Gedik, appendix B.2)"),
    "gedik-step": (GEDIK_STEP, "5,000 for 250 s, 10,000 for 100 s, 2,000 for 150 s (Gedik, appendix B.2)"),
    "ramp": (
        RampLoad(((0, 500), (600, 12_000), (900, 12_000), (1_500, 500))),
        "500 to 12,000 tuples/s in 10 minutes, and back",
    ),
    "spikes": (
        SpikeLoad(base=3_000, peak=9_000, every_seconds=180, lasting_seconds=20),
        "3,000 tuples/s, every 3 minutes 9,000 for 20 s",
    ),
    "streamcloud-ramp": (STREAMCLOUD_RAMP, "5,000 to 155,000 tuples/s and back (StreamCloud, figure 21 and table I)"),
    "stretch-q5": (STRETCH_Q5, "phases of 100 to 300 s at 500 to 8,000 tuples/s (STRETCH §8.5)"),
}
"""The named loads, each with what it is."""


def load_named(name: str) -> Load:
    """The load of that name, or the one in the .csv or .parquet file of that name."""
    if name in NAMED:
        return NAMED[name][0]
    if "." not in name:
        raise UserError(f"load '{name}' is not known; choose one of {choices(NAMED)}, or give a .csv or .parquet file")
    return read_trace(name)


def read_trace(path: str | Path) -> TraceLoad:
    """The load in a .csv or .parquet file with the columns 'seconds' and 'rate', in any order of rows and columns.

    From each time on, the rate beside it holds until the next time. Times count from the first one, so that seconds
    since the epoch may be given.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    file = Path(path)
    readers = {".csv": csv.read_csv, ".parquet": parquet.read_table}
    if file.suffix not in readers or not file.is_file():
        raise UserError(f"trace {file}: no such file; give a .csv or .parquet file with columns 'seconds' and 'rate'")
    numbers = pa.schema([("seconds", pa.float64(), False), ("rate", pa.float64(), False)])
    try:
        table = readers[file.suffix](file).select(numbers.names).cast(numbers).sort_by("seconds")
        times, rates = table["seconds"].to_numpy(), table["rate"].to_numpy()
        trace = TraceLoad(tuple((times - times[:1]).tolist()), tuple(rates.tolist()))
        rates_of(trace, times - times[0])
    except (UserError, ValueError, KeyError, pa.ArrowException, OSError) as error:
        raise DataError(
            f"trace {file}: must have numbers in the columns 'seconds' and 'rate' (tuples per second), at least one row "
            f"and none missing: {error}"
        ) from error
    return trace
