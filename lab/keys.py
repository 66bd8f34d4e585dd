"""Key distributions of the papers' experiments beside Zipf's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.errors import UserError
from tidegate.simulate.loads import Floats


@dataclass(frozen=True, slots=True)
class UniformKeys:
    """Every key is as frequent as every other."""

    keys: int = 10_000

    def __post_init__(self) -> None:
        _some_keys(self.keys)

    def era(self, seconds: float) -> int:
        return 0

    def shares(self, era: int) -> Floats:
        return np.full(self.keys, 1.0 / self.keys)


@dataclass(frozen=True, slots=True)
class Shift:
    """From `at_seconds` on, keys are normally distributed around `mean`; uniformly, if there is no `deviation`."""

    at_seconds: float
    mean: float = 0.0
    deviation: float | None = None


@dataclass(frozen=True, slots=True)
class NormalKeys:
    """Keys that are normally distributed over 0 … keys − 1, with mean and deviation that shift (StreamCloud fig. 20)."""

    shifts: tuple[Shift, ...]
    keys: int = 10_000

    def __post_init__(self) -> None:
        _some_keys(self.keys)
        times = [shift.at_seconds for shift in self.shifts]
        if not times or times[0] != 0 or sorted(set(times)) != times:
            raise UserError(f"normal keys: shifts at {times} s; the first must be at 0 and times must rise")
        for shift in self.shifts:
            if shift.deviation is not None and shift.deviation <= 0:
                raise UserError(
                    f"normal keys: deviation ({shift.deviation:g}) must be more than 0, or None for uniform"
                )

    def era(self, seconds: float) -> int:
        return sum(shift.at_seconds <= seconds + 1e-9 for shift in self.shifts) - 1

    def shares(self, era: int) -> Floats:
        shift = self.shifts[era]
        if shift.deviation is None:
            return np.full(self.keys, 1.0 / self.keys)
        away = (np.arange(self.keys) - shift.mean) / shift.deviation
        density: Floats = np.exp(-0.5 * away * away)
        return np.asarray(density / density.sum())


def _some_keys(keys: int) -> None:
    if keys < 1:
        raise UserError(f"key distribution: keys ({keys}) must be 1 or more")
