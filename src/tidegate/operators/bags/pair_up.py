"""The pairs of bags, found by the compiled loop of joins: a tuple meets those of the other side that share a bag with it.

Where windows overlap, two tuples share several bags. The predicate is asked once for them, and the pair is in all of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tidegate.operators.columns import Array, as_numpy, expand_ranges
from tidegate.operators.joins.encode_side import SideEncoder, TextCodes, TupleArrays
from tidegate.operators.joins.find_pairs import BLOCK, PairFailed, PairFinder, Reach
from tidegate.operators.joins.loop_source import texts_of
from tidegate.operators.keys import key_codes
from tidegate.query.bag_functions import PairUp
from tidegate.query.bags import BagRows, Bags
from tidegate.query.predicates.bounds import fits_int64
from tidegate.query.predicates.predicate import failed_on, plain_values
from tidegate.query.predicates.tree import LEFT, RIGHT, TRUE, Column, Side, Tree, columns_of
from tidegate.query.schema import contiguous

FEW_KEYS = 4
"""Up to so many keys, tuples are tried block by block, as those of one may be more than a cache holds."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Tuples of one side that are in bags: their rows, the code of their key, and the first and last of their windows."""

    rows: Array
    keys: Array
    first: Array
    last: Array

    @staticmethod
    def of(bags: Bags, side: Side, keys: Array, windows: Array) -> Spans:
        """By the key and window of each bag; in the order of keys, then windows. A tuple has one key."""
        rows, of = bags.rows[side], bags.bags[side]
        found = np.full((3, bags.tuples[side].num_rows), -1)
        found[0, rows], found[2, rows] = keys[of], windows[of]  # bags are in the order of windows: the last one stays
        found[1, rows[::-1]] = windows[of[::-1]]
        there = np.flatnonzero(found[0] >= 0)
        # By the last window too: of tuples that begin in one window, those that came first need not end in the earlier one.
        there = there[np.lexsort((found[2, there], found[1, there], found[0, there]))]
        return Spans(there, *found[:, there])


@dataclass(frozen=True)
class CompiledPairUp:
    """`PairUp` for a predicate with a tree; where its numbers are too large for a loop, the plain function decides."""

    plain: PairUp
    per_tuple: bool = False

    def __call__(self, bags: Bags) -> BagRows:
        window = self.plain.join.window
        assert window is not None
        kept = self.plain.keyed(bags)
        keys, count = key_codes([contiguous(column) for column in bags.keys.columns])
        windows = (bags.starts - bags.starts[0]) // window.every
        left, right = (Spans.of(kept, side, keys, windows) for side in (LEFT, RIGHT))
        # Codes of texts hold for one call; those of the texts in the predicate are the same in each.
        codes = TextCodes(texts_of(self._tree))
        (one, large), (other, larger) = (
            self._arrays(kept, side, spans.rows, codes) for side, spans in ((LEFT, left), (RIGHT, right))
        )
        if not fits_int64(self._tree, large | larger):
            return self.plain(bags)
        wide = int(windows[-1]) + 1
        lows = np.searchsorted(right.keys * wide + right.last, left.keys * wide + left.first, "left")
        highs = np.searchsorted(right.keys * wide + right.first, left.keys * wide + left.last, "right")
        starts, stops = _stretches(len(other), count)
        lefts, rights = self._found(kept, (one, other), Reach(lows, highs, starts, stops))
        begin = np.maximum(left.first[lefts], right.first[rights])
        pairs, shared = expand_ranges(begin, np.minimum(left.last[lefts], right.last[rights]) - begin + 1)
        order = np.argsort(shared, kind="stable")
        pairs = pairs[order]
        lefts, rights = lefts[pairs], rights[pairs]
        numbers = windows * count + keys
        places = np.argsort(numbers)
        of = places[np.searchsorted(numbers, shared[order] * count + left.keys[lefts], sorter=places)]
        return self.plain.result(kept, left.rows[lefts], right.rows[rights], of)

    @cached_property
    def _tree(self) -> Tree:
        where = self.plain.join.where
        return TRUE if where is None or where.tree is None else where.tree

    @cached_property
    def _finder(self) -> PairFinder:
        return PairFinder(self._tree, 0, TextCodes(texts_of(self._tree)), None)

    def _arrays(self, bags: Bags, side: Side, rows: Array, codes: TextCodes) -> tuple[TupleArrays, dict[Column, int]]:
        """Some tuples of a side as the loop reads them; they are numbered in this order."""
        join, tuples = self.plain.join, bags.tuples[side]
        encoder = SideEncoder(join, side, columns_of(self._tree, side), None, codes)
        found, sizes = encoder.arrays(tuples, as_numpy(tuples.column(join.inputs[side].time)))
        taken = found.take(rows)
        return TupleArrays(rows, np.arange(len(rows)), (), taken.values, taken.valid, found.has_nulls), sizes

    def _found(self, bags: Bags, sides: tuple[TupleArrays, TupleArrays], reach: Reach) -> tuple[Array, Array]:
        """The numbers of tuples of both sides that fit; their rows stand where their times would."""
        none = np.empty(0, np.int64)
        if len(sides[0]) == 0 or len(sides[1]) == 0:
            return none, none
        try:
            found = list(self._finder.pairs(LEFT, *sides, reach, decide=True))
        except PairFailed as failed:
            one, other = (
                plain_values(bags.tuples[side].slice(int(sides[side].times[number]), 1))[0]
                for side, number in enumerate(failed.args)
            )
            raise failed_on(self.plain.join.name, one, other, "divides a whole number by zero") from None
        return np.concatenate([none, *(each.left for each in found)]), np.concatenate(
            [none, *(each.right for each in found)]
        )


def _stretches(tuples: int, keys: int) -> tuple[Array, Array]:
    """The stretches of one side that are tried one after the other."""
    if keys > FEW_KEYS:
        return np.zeros(min(tuples, 1), np.int64), np.full(min(tuples, 1), tuples)
    starts = np.arange(0, tuples, BLOCK)
    return starts, np.minimum(starts + BLOCK, tuples)
