"""The pairs of bags, found by the compiled loop of joins: the tuples of one side meet those of the other in their bag."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.joins.encode_side import SideEncoder, TextCodes, TupleArrays
from tidegate.operators.joins.find_pairs import BLOCK, PairFailed, PairFinder, Reach
from tidegate.operators.joins.loop_source import texts_of
from tidegate.query.bag_functions import PairUp
from tidegate.query.bags import BagRows, Bags
from tidegate.query.predicates.bounds import fits_int64
from tidegate.query.predicates.predicate import failed_on, plain_values
from tidegate.query.predicates.tree import LEFT, RIGHT, TRUE, Column, Tree, columns_of

FEW_BAGS = 4
"""Up to so many bags are tried block by block, as they may be larger than a cache."""


@dataclass(frozen=True)
class CompiledPairUp:
    """`PairUp` for a predicate with a tree; where its numbers are too large for a loop, the plain function decides."""

    plain: PairUp
    per_tuple: bool = False

    def __call__(self, bags: Bags) -> BagRows:
        kept = self.plain.keyed(bags)
        # Codes of texts hold for one call; those of the texts in the predicate are the same in each.
        codes = TextCodes(texts_of(self._tree))
        (left, large), (right, other) = (self._arrays(kept, side, codes) for side in (LEFT, RIGHT))
        if not fits_int64(self._tree, large | other):
            return self.plain(bags)
        sizes = kept.sizes(1)
        lows = (np.cumsum(sizes) - sizes)[kept.bags[0]]
        highs = lows + sizes[kept.bags[0]]
        starts = np.arange(0, len(right), BLOCK) if len(kept) <= FEW_BAGS else np.zeros(min(len(right), 1), np.int64)
        stops = np.minimum(starts + BLOCK, len(right)) if len(kept) <= FEW_BAGS else np.full(len(starts), len(right))
        one, two = self._found(kept, left, right, Reach(lows, highs, starts, stops))
        of = kept.bags[0][one]
        order = np.argsort(of, kind="stable")
        return self.plain.result(kept, kept.rows[0][one[order]], kept.rows[1][two[order]], of[order])

    @cached_property
    def _tree(self) -> Tree:
        where = self.plain.join.where
        return TRUE if where is None or where.tree is None else where.tree

    @cached_property
    def _finder(self) -> PairFinder:
        return PairFinder(self._tree, 0, TextCodes(texts_of(self._tree)), None)

    def _arrays(self, bags: Bags, side: int, codes: TextCodes) -> tuple[TupleArrays, dict[Column, int]]:
        """The entries of a side as the loop reads them; their numbers are those of entries."""
        join = self.plain.join
        which = LEFT if side == LEFT else RIGHT
        encoder = SideEncoder(join, which, columns_of(self._tree, which), None, codes)
        tuples = bags.tuples[side]
        found, sizes = encoder.arrays(tuples, as_numpy(tuples.column(join.inputs[side].time)))
        rows = bags.rows[side]
        taken = found.take(rows)
        return TupleArrays(taken.times, np.arange(len(rows)), (), taken.values, taken.valid, found.has_nulls), sizes

    def _found(self, bags: Bags, left: TupleArrays, right: TupleArrays, reach: Reach) -> tuple[Array, Array]:
        """The entries of both sides that fit."""
        none = np.empty(0, np.int64)
        if len(left) == 0 or len(right) == 0:
            return none, none
        try:
            found = list(self._finder.pairs(LEFT, left, right, reach, decide=True))
        except PairFailed as failed:
            one, other = (
                plain_values(bags.tuples[side].slice(int(bags.rows[side][entry]), 1))[0]
                for side, entry in enumerate(failed.args)
            )
            raise failed_on(self.plain.join.name, one, other, "divides a whole number by zero") from None
        lefts, rights = [each.left for each in found], [each.right for each in found]
        return np.concatenate([none, *lefts]), np.concatenate([none, *rights])
