"""How the pairs of a join are found: a compiled loop tries all that are near, or those that bisection by key or band finds.

The *new* tuples are those of one side that have come, the *stored* ones those of the other side that they meet.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array
from tidegate.operators.joins.encode_side import TextCodes, TupleArrays
from tidegate.operators.joins.join_side import SortedRun
from tidegate.operators.joins.loop_source import LoopShape, loop_source, texts_of
from tidegate.query.predicates.bounds import Band
from tidegate.query.predicates.tree import LEFT, TRUE, Side, Tree

TimeRanges: TypeAlias = tuple[Array, Array]

BUFFER = 65_536
BLOCK = 512
"""Tuples are mapped to shards in blocks of so many arrivals; a block of stored ones stays in the first cache."""
TRIED_FOR_A_LOOK = 8
"""How many pairs are tried at the least for each new tuple and block."""

_LEAST, _MOST = -(2**63), 2**63 - 1


class PairFailed(Exception):
    """The predicate has no value for a pair of tuples; its arguments are their arrival numbers, left and right."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What the new tuples meet: stored ones from ``lows[i]`` to before ``highs[i]`` that lie in one of some stretches.

    With ``times``, only those with event times from ``times[0][i]`` to ``times[1][i]``.
    """

    lows: Array
    highs: Array
    starts: Array
    stops: Array
    times: TimeRanges | None = None

    @property
    def pairs(self) -> int:
        """How many pairs of new and stored tuples that is, whether or not their times are near."""
        if len(self.starts) == 1:
            low, high = np.maximum(self.lows, self.starts[0]), np.minimum(self.highs, self.stops[0])
            return int(np.maximum(high - low, 0).sum())
        covered = np.concatenate([[0], np.cumsum(self.stops - self.starts)])

        def before(places: Array) -> Array:
            stretch = np.maximum(np.searchsorted(self.starts, places, "right") - 1, 0)
            inside = np.clip(places - self.starts[stretch], 0, (self.stops - self.starts)[stretch])
            return np.asarray(covered[stretch] + inside)

        return int((before(self.highs) - before(self.lows)).sum())


class Scope(NamedTuple):
    """What a search covers: the pairs of ``owned`` shards, None for all; unless ``decide``, the predicate is left out."""

    owned: Array | None
    decide: bool


class FoundPairs(NamedTuple):
    """Pairs: the arrival numbers and the event times of both tuples."""

    left: Array
    right: Array
    left_times: Array
    right_times: Array

    @property
    def times(self) -> Array:
        """When each is a pair: the later of the times of its tuples."""
        return np.maximum(self.left_times, self.right_times)

    @staticmethod
    def none() -> FoundPairs:
        """No pairs."""
        return FoundPairs(*([np.empty(0, np.int64)] * 4))

    @staticmethod
    def concatenated(parts: Sequence[FoundPairs]) -> FoundPairs:
        """The pairs of several, one after the other."""
        return FoundPairs(*map(np.concatenate, zip(*parts, strict=True))) if parts else FoundPairs.none()

    def take(self, kept: Array) -> FoundPairs:
        """Some of the pairs."""
        return FoundPairs(*(array[kept] for array in self))


@dataclass(slots=True)
class PairFinder:
    """Finds the pairs of one join; tuples are mapped to shards in blocks of arrivals.

    ``keys`` is how many keys a loop compares: none if bisection finds equal ones. ``tried`` counts the pairs that loops
    were given.
    """

    tree: Tree
    keys: int
    codes: TextCodes
    band: Band | None
    tried: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loops: dict[tuple[Side, bool, bool, bool], tuple[Any, list[int]]] = field(default_factory=dict)

    def in_log(
        self, side: Side, new: TupleArrays, stored: TupleArrays, times: TimeRanges, in_order: bool, scope: Scope
    ) -> Iterator[FoundPairs]:
        """Pairs of new tuples and stored ones of owned shards; ``in_order`` says that those are in the order of time."""
        starts, stops = _blocks(stored, scope.owned)
        if len(new) == 0 or len(starts) == 0:
            return
        if in_order:
            lows = np.searchsorted(stored.times, times[0], "left")
            highs = np.searchsorted(stored.times, times[1], "right")
            needed = (stops > lows.min()) & (starts < highs.max())
        else:
            # What is stored comes about in the order of time, so most blocks are wholly near or wholly far.
            lows, highs = np.zeros(len(new), np.int64), np.full(len(new), len(stored))
            edges = np.column_stack([starts, stops]).ravel()
            padded = np.append(stored.times, stored.times[-1:])
            least, most = (by.reduceat(padded, edges)[::2] for by in (np.minimum, np.maximum))
            needed = (most >= times[0].min()) & (least <= times[1].max())
        reach = Reach(lows, highs, starts[needed], stops[needed], None if in_order else times)
        yield from self.pairs(side, new, stored, reach, scope.decide)

    def in_runs(
        self, side: Side, new: TupleArrays, runs: Sequence[SortedRun], times: TimeRanges, scope: Scope
    ) -> Iterator[FoundPairs]:
        """Pairs of new tuples of owned shards and stored ones that grouping or sorting brings near."""
        if scope.owned is not None:
            mine = owned_by(scope.owned, new.arrivals)
            new, times = new.take(mine), (times[0][mine], times[1][mine])
        if len(new) == 0:
            return
        first, last = int(times[0].min()), int(times[1].max())
        near = [run.tuples for run in runs if run.high >= first and run.low <= last]
        if near and near[0].groups is not None:
            for stored in near:
                yield from self._in_groups(side, new, stored, times, scope.decide)
            return
        low, high = self._range(side, new)
        for stored in near:
            order = stored.order
            assert order is not None
            lows, highs = np.searchsorted(order, low, "left"), np.searchsorted(order, high, "right")
            met = np.flatnonzero(highs > lows)
            if len(met) == 0:
                continue
            some, within = new, times
            if 2 * len(met) < len(new):
                some, within = new.take(met), (times[0][met], times[1][met])
                lows, highs = lows[met], highs[met]
            reach = Reach(lows, highs, *stretches(len(order), lows, highs), within)
            yield from self.pairs(side, some, stored, reach, scope.decide)

    def _in_groups(
        self, side: Side, new: TupleArrays, stored: TupleArrays, times: TimeRanges, decide: bool
    ) -> Iterator[FoundPairs]:
        """Pairs of new tuples and stored ones in groups by key, each of which is in the order of time."""
        assert new.order is not None and stored.groups is not None
        which, lows, highs = stored.groups.near(new.order, *times, stored.times)
        yield from self.in_stretches(side, new, which, stored, lows, highs, decide)

    def in_stretches(
        self,
        side: Side,
        new: TupleArrays,
        which: Array,
        stored: TupleArrays,
        lows: Array,
        highs: Array,
        decide: bool,
    ) -> Iterator[FoundPairs]:
        """Pairs of the new tuples ``which[i]`` and stored ones from ``lows[i]`` to before ``highs[i]``."""
        if len(which) == 0:
            return
        if self.keys or (decide and self.tree != TRUE):
            reach = Reach(lows, highs, *stretches(len(stored), lows, highs))
            yield from self.pairs(side, new.take(which), stored, reach, decide)
            return
        from tidegate.operators.number_kernels import pair_up

        # Nothing is left to decide: all of them are pairs.
        until = np.cumsum(highs - lows)
        with self._lock:
            self.tried += int(until[-1])
        cuts = np.unique(np.searchsorted(until, np.arange(BUFFER, until[-1], BUFFER)))
        for start, stop in pairwise([0, *cuts[cuts > 0].tolist(), len(which)]):
            count = int(until[stop - 1] - (until[start - 1] if start else 0))
            ours, theirs = pair_up(which[start:stop], lows[start:stop], highs[start:stop], count)
            (left, one), (right, other) = ((new, ours), (stored, theirs))[:: 1 if side == LEFT else -1]
            yield FoundPairs(left.arrivals[one], right.arrivals[other], left.times[one], right.times[other])

    def pairs(
        self, new_side: Side, new: TupleArrays, stored: TupleArrays, reach: Reach, decide: bool
    ) -> Iterator[FoundPairs]:
        """New and stored tuples that fit, some at a time."""
        if len(reach.starts) == 0:
            return
        tried = reach.pairs
        with self._lock:
            self.tried += tried
        nullable = (new.has_nulls or stored.has_nulls) and decide
        loop, texts = self._loop(new_side, nullable, reach.times is not None, decide)
        arrays = self._arrays(new, nullable, decide), self._arrays(stored, nullable, decide)
        if reach.times is not None:
            arrays = [*reach.times, *arrays[0]], [stored.times, *arrays[1]]
        longest = min(int((reach.highs - reach.lows).max()), int((reach.stops - reach.starts).max()))
        left, right = (new, stored) if new_side == LEFT else (stored, new)
        at = np.zeros(3, np.int64)
        while at[0] < len(reach.starts):
            out = np.empty(max(BUFFER, longest), np.int64), np.empty(max(BUFFER, longest), np.int64)
            found = loop(reach.lows, reach.highs, reach.starts, reach.stops, at, *out, *arrays[0], *arrays[1], *texts)
            if at[2]:
                places = at[:2] if new_side == LEFT else at[1::-1]
                raise PairFailed(int(left.arrivals[places[0]]), int(right.arrivals[places[1]]))
            if found:
                one, other = (out[0][:found], out[1][:found]) if new_side == LEFT else (out[1][:found], out[0][:found])
                yield FoundPairs(left.arrivals[one], right.arrivals[other], left.times[one], right.times[other])

    def _loop(self, new_side: Side, nullable: bool, checks_time: bool, decide: bool) -> tuple[Any, list[int]]:
        """A compiled loop, and the codes of the texts that it compares with."""
        key = new_side, nullable, checks_time, decide
        if key not in self._loops:
            # Imported here: numba takes a while, and a query can be built without it.
            from tidegate.operators.kernels import compiled

            shape = LoopShape(self.tree if decide else TRUE, new_side, self.keys, checks_time, nullable)
            texts = [self.codes.constant(text) for text in texts_of(shape.tree)]
            self._loops[key] = compiled(loop_source(shape)), texts
        return self._loops[key]

    def _arrays(self, tuples: TupleArrays, nullable: bool, decide: bool) -> list[Array]:
        """The arrays of tuples that a loop takes, in its order."""
        values = zip(tuples.values, tuples.valid, strict=True) if nullable else zip(tuples.values, strict=True)
        return [*(tuples.keys if self.keys else ()), *(chain.from_iterable(values) if decide else ())]

    def _range(self, new_side: Side, new: TupleArrays) -> tuple[Array, Array]:
        """The least and greatest order of the stored tuples that each new one may fit."""
        order = new.order
        assert order is not None
        if self.band is None:
            return order, order
        # left − right lies between low and high: what a left tuple looks for lies below it, a right one's above it.
        down, up = (self.band.high, -self.band.low) if new_side == LEFT else (-self.band.low, self.band.high)
        if self.band.is_whole:
            slack = 0 if self.band.scale < 2**52 else int(self.band.scale * 2**-48)
            return _less(order, math.ceil(down) + slack), _less(order, -(math.ceil(up) + slack))
        size = np.abs(order) + self.band.scale + abs(down) + abs(up)
        with np.errstate(invalid="ignore"):
            low, high = order - down - 2.0**-48 * size, order + up + 2.0**-48 * size
        unknown = ~np.isfinite(order)
        return np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high)


def stretches(stored: int, lows: Array, highs: Array) -> tuple[Array, Array]:
    """The stretches of stored tuples that are tried one after the other, if new ones meet those from ``lows`` to ``highs``.

    They are blocks where a new tuple meets many of those that are stored: more than a block, so that blocks stay in the
    cache, and so many that looking at each block for each new tuple costs little beside.
    """
    met = float((highs - lows).mean())
    if met <= BLOCK or met * BLOCK < TRIED_FOR_A_LOOK * stored:
        return np.zeros(1, np.int64), np.full(1, stored)
    starts = np.arange(0, stored, BLOCK)
    return starts, np.minimum(starts + BLOCK, stored)


def owned_by(owned: Array, arrivals: Array) -> Array:
    """Which tuples lie in owned shards, by the numbers of their arrival."""
    return np.asarray(owned[(arrivals // BLOCK) % SHARDS])


def _blocks(tuples: TupleArrays, owned: Array | None) -> tuple[Array, Array]:
    """The stretches of tuples, in the order of arrival, that lie in owned shards, none longer than a block.

    Blocks of arrivals are mapped to shards in turn, whatever the tuples hold, so no skew can burden one of them.
    """
    if len(tuples) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first, stop = int(tuples.arrivals[0]), int(tuples.arrivals[-1]) + 1
    numbers = np.arange(first // BLOCK, (stop - 1) // BLOCK + 1)
    if owned is not None:
        numbers = numbers[owned[numbers % SHARDS]]
    starts, stops = np.maximum(numbers * BLOCK, first), np.minimum((numbers + 1) * BLOCK, stop)
    return starts - first, stops - first


def _less(values: Array, amount: int) -> Array:
    """Whole numbers less an amount; what would leave int64 stays at its end."""
    amount = max(min(amount, _MOST), _LEAST + 1)
    with np.errstate(over="ignore"):
        lower = values - np.int64(amount)
    if amount > 0:
        return np.where(values < _LEAST + amount, _LEAST, lower)
    return np.where(values > _MOST + amount, _MOST, lower)
