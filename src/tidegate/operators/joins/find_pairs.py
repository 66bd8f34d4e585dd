"""How the pairs of a join are found: by trying all that are near, or in sorted runs by key or by band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.operators.joins.columns import Columns
from tidegate.operators.joins.near import Within
from tidegate.operators.joins.sorted_runs import SortedRun
from tidegate.operators.joins.try_pairs import PairFailed, Reach, TryPairs, blocks, in_owned
from tidegate.query.predicates.bounds import Band
from tidegate.query.predicates.tree import Side

Array = np.ndarray[Any, Any]

_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs: positions in the tuples of both sides."""

    new_side: Side
    new: Columns
    stored: Columns
    at_new: Array
    at_stored: Array

    def of_side(self, side: Side, array: str) -> Array:
        """An array of one side, once for each pair."""
        columns, at = (self.new, self.at_new) if side == self.new_side else (self.stored, self.at_stored)
        values: Array = getattr(columns, array)[at]
        return values


@dataclass(frozen=True, slots=True)
class FindPairs:
    """The ways of one join; ``shards`` is over how many shards tuples are dealt."""

    loops: TryPairs
    band: Band | None
    shards: int

    def in_log(
        self, new_side: Side, new: Columns, stored: Columns, near: Within, owned: Array | None, decide: bool
    ) -> Iterator[Found]:
        """Pairs of new tuples and stored ones of owned shards, all in the order of time."""
        low, high = near.times(new.times)
        lows, highs = np.searchsorted(stored.times, low, "left"), np.searchsorted(stored.times, high, "right")
        starts, stops = blocks(stored, owned, self.shards)
        if len(lows):
            needed = (stops > lows.min()) & (starts < highs.max())
            starts, stops = starts[needed], stops[needed]
        yield from self._tried(new_side, new, stored, Reach(lows, highs, starts, stops), decide)

    def in_log_by_time(
        self,
        new_side: Side,
        new: Columns,
        stored: Columns,
        times: tuple[Array, Array],
        owned: Array | None,
        decide: bool,
    ) -> Iterator[Found]:
        """Pairs of new tuples and stored ones of owned shards, in any order of time."""
        starts, stops = blocks(stored, owned, self.shards)
        if len(new) and len(starts):
            # What is stored comes about in the order of time, so most blocks are wholly near or wholly far.
            edges = np.column_stack([starts, stops]).ravel()
            padded = np.append(stored.times, stored.times[-1:])
            least, most = (by.reduceat(padded, edges)[::2] for by in (np.minimum, np.maximum))
            needed = (most >= times[0].min()) & (least <= times[1].max())
            starts, stops = starts[needed], stops[needed]
        reach = Reach(np.zeros(len(new), np.int64), np.full(len(new), len(stored)), starts, stops, times)
        yield from self._tried(new_side, new, stored, reach, decide)

    def in_runs(
        self,
        new_side: Side,
        new: Columns,
        runs: Sequence[SortedRun],
        times: tuple[Array, Array],
        owned: Array | None,
        decide: bool,
    ) -> Iterator[Found]:
        """Pairs of new tuples of owned shards and stored ones that sorting brings near."""
        mine = in_owned(new.arrivals, owned, self.shards)
        if mine is not None:
            new, times = new.take(mine), (times[0][mine], times[1][mine])
        if len(new) == 0:
            return
        low, high = self._range(new_side, new)
        first, last = int(times[0].min()), int(times[1].max())
        for run in runs:
            if run.high < first or run.low > last:
                continue
            order = run.columns.order
            assert order is not None
            lows = np.searchsorted(order, low, "left")
            # Without a band there is one value to look for, and its end is often near its beginning.
            highs = np.searchsorted(order, high, "right")
            met = np.flatnonzero(highs > lows)
            if len(met) == 0:
                continue
            some, reached = new, (lows, highs, times)
            if 2 * len(met) < len(new):
                some = new.take(met)
                reached = (lows[met], highs[met], (times[0][met], times[1][met]))
            whole = np.zeros(1, np.int64), np.full(1, len(order))
            reach = Reach(reached[0], reached[1], *whole, reached[2])
            yield from self._tried(new_side, some, run.columns, reach, decide)

    def _range(self, new_side: Side, new: Columns) -> tuple[Array, Array]:
        """The least and greatest order of the stored tuples that each new one may fit."""
        order = new.order
        assert order is not None
        if self.band is None:
            return order, order
        # left − right lies between low and high: what a left tuple looks for lies below it, a right one's above it.
        down, up = (self.band.high, -self.band.low) if new_side == 0 else (-self.band.low, self.band.high)
        if self.band.is_whole:
            slack = 0 if self.band.scale < 2**52 else int(self.band.scale * 2**-48)
            return _less(order, _ceil(down) + slack), _less(order, -(_ceil(up) + slack))
        size = np.abs(order) + self.band.scale + abs(down) + abs(up)
        with np.errstate(invalid="ignore"):
            low, high = order - down - 2.0**-48 * size, order + up + 2.0**-48 * size
        unknown = ~np.isfinite(order)
        return np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high)

    def _tried(self, new_side: Side, new: Columns, stored: Columns, reach: Reach, decide: bool) -> Iterator[Found]:
        try:
            for at_new, at_stored in self.loops.pairs(new_side, new, stored, reach, decide):
                yield Found(new_side, new, stored, at_new, at_stored)
        except PairFailed as failed:
            numbers = int(new.arrivals[failed.new]), int(stored.arrivals[failed.stored])
            raise PairFailed(*(numbers if new_side == 0 else numbers[::-1])) from None


def _ceil(value: float) -> int:
    return -int(-value // 1)


def _less(values: Array, amount: int) -> Array:
    """Whole numbers less an amount; what would leave int64 stays at its end."""
    amount = max(min(amount, _MOST), _LEAST + 1)
    with np.errstate(over="ignore"):
        made = values - np.int64(amount)
    if amount > 0:
        return np.where(values < _LEAST + amount, _LEAST, made)
    return np.where(values > _MOST + amount, _MOST, made)
