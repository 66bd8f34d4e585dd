"""What was measured in the cells of a matrix, and how it is shown: the worst cells first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SHOWN = 20


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """The seconds of each engine in one cell, ours among them, and how many times as fast as the faster peer we are."""

    cell: str
    tuples: int
    rows: int
    seconds: Mapping[str, float]
    cpu_seconds: Mapping[str, float]
    ours: str

    @property
    def ratio(self) -> float:
        return self._ratio(self.seconds)

    @property
    def cpu_ratio(self) -> float:
        return self._ratio(self.cpu_seconds)

    def line(self) -> str:
        return f"{self.cell}: {self.ratio:.2f}×, by CPU seconds {self.cpu_ratio:.2f}×"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": round(self.ratio, 3), "cpu_ratio": round(self.cpu_ratio, 3)}

    def _ratio(self, seconds: Mapping[str, float]) -> float:
        return min(took for engine, took in seconds.items() if engine != self.ours) / seconds[self.ours]


def ratios(found: Sequence[MeasuredCell]) -> dict[str, float]:
    """The summary, then each cell."""
    return {**summary([each.ratio for each in found]), **{each.cell: round(each.ratio, 3) for each in found}}


def summary(values: Sequence[float]) -> dict[str, float]:
    """The geometric mean, the worst, and the share of cells in which a peer is faster; nothing of no cell."""
    if not values:
        return {}
    return {
        "geometric mean": round(math.exp(sum(map(math.log, values)) / len(values)), 3),
        "worst": round(min(values), 3),
        "share below 1": round(sum(value < 1 for value in values) / len(values), 3),
    }


def shown(found: Sequence[MeasuredCell], peers: Sequence[str]) -> str:
    """The worst cells first, then all in short."""
    worst = sorted(found, key=lambda each: each.ratio)[:SHOWN]
    lines = [f"{'cell':<44}{'ratio':>7}{'by CPU':>8}{'ours s':>9}" + "".join(f"{peer + ' s':>16}" for peer in peers)]
    lines += [
        f"{each.cell:<44}{each.ratio:>7.2f}{each.cpu_ratio:>8.2f}{each.seconds[each.ours]:>9.3f}"
        + "".join(f"{each.seconds[peer]:>16.3f}" if peer in each.seconds else f"{'–':>16}" for peer in peers)
        for each in worst
    ]
    for title, values in (("wall", [each.ratio for each in found]), ("CPU", [each.cpu_ratio for each in found])):
        lines.append(f"{title}: " + ", ".join(f"{name} {value:g}" for name, value in summary(values).items()))
    return "\n".join(lines)
