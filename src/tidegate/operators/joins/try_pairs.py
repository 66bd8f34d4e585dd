"""Trying pairs: which loop, over which tuples, and what it cannot decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidegate.operators.joins.columns import Columns
from tidegate.operators.joins.loop_source import LoopShape, loop_source
from tidegate.operators.joins.text_codes import TextCodes
from tidegate.query.predicates.bounds import fits_int64
from tidegate.query.predicates.tree import TRUE, Column, Side, Tree, columns_of

Array = np.ndarray[Any, Any]

BUFFER = 65_536
BLOCK = 512
"""Tuples are dealt out to shards in blocks of so many arrivals; a block of stored ones stays in the first cache."""


class PairFailed(Exception):
    """The predicate has no value for a pair of tuples, given by their positions, then by their arrival numbers."""

    def __init__(self, new: int, stored: int) -> None:
        super().__init__(new, stored)
        self.new, self.stored = new, stored


@dataclass(frozen=True, slots=True)
class Reach:
    """What the new tuples meet: stored ones from ``lows[i]`` to before ``highs[i]`` that lie in one of some stretches.

    With ``times``, only those with event times from ``times[0][i]`` to ``times[1][i]``.
    """

    lows: Array
    highs: Array
    starts: Array
    stops: Array
    times: tuple[Array, Array] | None = None


@dataclass(frozen=True, slots=True)
class _Loop:
    """A compiled loop, and which columns of each side it takes, by their places."""

    run: Any
    keys: bool
    nullable: bool
    new: tuple[int, ...]
    stored: tuple[int, ...]
    texts: tuple[int, ...]

    def arguments(self, new: Columns, stored: Columns, times: tuple[Array, Array] | None) -> list[Any]:
        """The arrays and codes that the loop takes, in its order."""
        made: list[Any] = []
        for columns, places, near in (
            (new, self.new, times or ()),
            (stored, self.stored, (stored.times,) if times is not None else ()),
        ):
            made.extend(near)
            made.extend(columns.keys if self.keys else ())
            for place in places:
                made.append(columns.values[place])
                if self.nullable:
                    made.append(columns.valid[place])
        made.extend(self.texts)
        return made


@dataclass(slots=True)
class TryPairs:
    """The loops of one join."""

    tree: Tree
    keys: int
    codes: TextCodes
    _loops: dict[tuple[Side, bool, bool, bool], _Loop] = field(default_factory=dict)

    def exact(self, sizes: Mapping[Column, int]) -> bool:
        """Whether loops decide exactly, columns of whole numbers being at most so far from zero."""
        return fits_int64(self.tree, sizes)

    def pairs(
        self, new_side: Side, new: Columns, stored: Columns, reach: Reach, decide: bool
    ) -> Iterator[tuple[Array, Array]]:
        """Positions of new and stored tuples that fit, some at a time; unless ``decide``, the predicate is not asked."""
        if len(reach.starts) == 0 or len(new) == 0:
            return
        nullable = (new.has_nulls or stored.has_nulls) and decide
        loop = self._loop(new_side, nullable, reach.times is not None, decide)
        arguments = loop.arguments(new, stored, reach.times)
        longest = min(int((reach.highs - reach.lows).max()), int((reach.stops - reach.starts).max()))
        at = np.zeros(3, np.int64)
        while at[0] < len(reach.starts):
            out = np.empty(max(BUFFER, longest), np.int64), np.empty(max(BUFFER, longest), np.int64)
            found = loop.run(reach.lows, reach.highs, reach.starts, reach.stops, at, *out, *arguments)
            if at[2]:
                raise PairFailed(int(at[0]), int(at[1]))
            if found:
                yield out[0][:found], out[1][:found]

    def _loop(self, new_side: Side, nullable: bool, checks_time: bool, decide: bool) -> _Loop:
        key = new_side, nullable, checks_time, decide
        if key not in self._loops:
            # Imported here: numba takes a while, and a query can be built without it.
            from tidegate.operators.kernels import compiled

            shape = LoopShape(self.tree if decide else TRUE, new_side, self.keys, checks_time, nullable)
            new_held, stored_held = columns_of(self.tree, new_side), columns_of(self.tree, 0 if new_side else 1)
            self._loops[key] = _Loop(
                compiled(loop_source(shape)),
                self.keys > 0,
                nullable,
                tuple(new_held.index(column) for column in shape.new_columns),
                tuple(stored_held.index(column) for column in shape.stored_columns),
                tuple(self.codes.constant(text) for text in shape.texts),
            )
        return self._loops[key]


def blocks(columns: Columns, owned: Array | None, shards: int) -> tuple[Array, Array]:
    """The stretches of tuples, in the order of arrival, that lie in owned shards, none longer than a block.

    Blocks of arrivals are dealt to shards in turn, whatever the tuples hold, so no skew can burden one of them.
    """
    if len(columns) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first, stop = int(columns.arrivals[0]), int(columns.arrivals[-1]) + 1
    numbers = np.arange(first // BLOCK, (stop - 1) // BLOCK + 1)
    if owned is not None:
        numbers = numbers[owned[numbers % shards]]
    starts, stops = np.maximum(numbers * BLOCK, first), np.minimum((numbers + 1) * BLOCK, stop)
    return starts - first, stops - first


def in_owned(arrivals: Array, owned: Array | None, shards: int) -> Array | None:
    """Which arrivals lie in owned shards; None for all of them."""
    return None if owned is None else owned[(arrivals // BLOCK) % shards]
