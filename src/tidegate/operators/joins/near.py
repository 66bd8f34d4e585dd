"""Which event times a tuple may be paired with, and how long it is needed for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tidegate.operators.columns import Array
from tidegate.query.nodes import Join, Stateful
from tidegate.query.windows import Window
from tidegate.state.pair_grid import PairGrid
from tidegate.watermark import END, START, Watermark


@dataclass(frozen=True, slots=True)
class WithinDistance:
    """Pairs tuples that are at most ``span`` microseconds apart; both are known at once."""

    span: int

    def least_time(self, watermark: Watermark) -> int:
        """The earliest time at which a tuple may still be part of a result."""
        return max(watermark - self.span, START)

    def least_arriving(self, watermark: Watermark) -> int:
        """The earliest time at which a tuple that arrives may still be part of a result."""
        return watermark

    def times(self, times: Array) -> tuple[Array, Array]:
        """The first and last time that each may be paired with; neither overflows (`tidegate.query.event_time`)."""
        return times - self.span, times + self.span


@dataclass(frozen=True, slots=True)
class InSameWindow:
    """Pairs tuples that share a window, once for each window they share, when it expires."""

    window: Window

    @property
    def span(self) -> int:
        """How far apart two tuples can be."""
        return self.window.size

    def least_time(self, watermark: Watermark) -> int:
        """The earliest time at which a tuple may still be part of a result."""
        return max(self.window.first_open(watermark) * self.window.every, START)

    least_arriving = least_time

    def windows(self, times: Array, first: int, last: int) -> tuple[Array, Array]:
        """The first and last window of each time, of those from ``first`` to ``last``."""
        return (
            np.maximum((times - self.window.size) // self.window.every + 1, first),
            np.minimum(times // self.window.every, last),
        )

    def spanned(self, first: int, last: int) -> tuple[int, int]:
        """The first and last time that lies in one of the windows from ``first`` to ``last``."""
        return max(first * self.window.every, START), min(last * self.window.every + self.window.size - 1, END)

    def times(self, times: Array, first: int, last: int) -> tuple[Array, Array]:
        """The first and last time with which each shares one of the windows from ``first`` to ``last``."""
        begin, end = self.windows(times, first, last)
        return begin * self.window.every, end * self.window.every + (self.window.size - 1)


Near: TypeAlias = WithinDistance | InSameWindow


def near_of(node: Join) -> Near:
    """Which tuples of a join are near."""
    if node.window is not None:
        return InSameWindow(node.window)
    assert node.within_us is not None
    return WithinDistance(node.within_us)


def least_kept(node: Join, side: int, watermark: Watermark) -> int:
    """The earliest time at which a tuple of a side is kept.

    Which tuples have a partner within a distance is not stored: it is found out again from the tuples. Those that may still
    leave alone are as far behind the watermark as pairs reach, and their partners as far again.
    """
    near = near_of(node)
    again = any(judged != side for judged in node.judged_sides)
    reach = near.span if again and isinstance(near, WithinDistance) else 0
    return max(near.least_time(watermark) - reach, START)


def pair_grid_of(node: Stateful) -> PairGrid | None:
    """The grid by which the tuples of a join go to cells; None where they go by keys."""
    return PairGrid(node.judged_sides) if isinstance(node, Join) and node.is_on_grid else None
