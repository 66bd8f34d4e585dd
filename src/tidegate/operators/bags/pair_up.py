"""The pairs of bags, found by the compiled loop of joins: a tuple meets those of the other side that share a bag with it.

Where windows overlap, two tuples share several bags. The predicate is asked once for them, and the pair is in all of these.
So the bags that expire together need not list their tuples: what counts of a tuple is its key, its first and last window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.operators.bags.held_bags import Expiring, HeldBags, KeyedTuples, owned_part
from tidegate.operators.columns import Array, as_numpy, expand_ranges, valid_mask
from tidegate.operators.emit_windows import AT_ONCE, runs_of_windows, window_columns
from tidegate.operators.joins.encode_side import TextCodes, TupleArrays, arrays_read
from tidegate.operators.joins.find_pairs import PairFailed, PairFinder, Reach, stretches
from tidegate.operators.joins.loop_source import texts_of
from tidegate.operators.keys import key_codes
from tidegate.query.bag_functions import PairUp, pair_columns
from tidegate.query.bags import BagRows, Bags
from tidegate.query.nodes import Join
from tidegate.query.predicates.bounds import fits_int64
from tidegate.query.predicates.predicate import failed_on, plain_values
from tidegate.query.predicates.tree import LEFT, RIGHT, TRUE, Column, Side, Tree, columns_of
from tidegate.query.schema import contiguous


@dataclass(frozen=True, slots=True)
class TupleWindows:
    """Tuples of one side: their rows, the codes of their keys, and the first and last of their windows; in this order."""

    rows: Array
    keys: Array
    first: Array
    last: Array

    @staticmethod
    def sorted(rows: Array, keys: Array, first: Array, last: Array) -> TupleWindows:
        """By key, then window."""
        # By the last window too: of tuples that begin in one window, those that came first need not end in the earlier one.
        order = np.lexsort((last, first, keys))
        return TupleWindows(rows[order], keys[order], first[order], last[order])


BothSidesWindows: TypeAlias = tuple[TupleWindows, TupleWindows]


@dataclass(frozen=True)
class CompiledPairUp:
    """`PairUp` for a predicate with a tree; where its numbers are too large for a loop, the plain function decides."""

    plain: PairUp
    per_tuple: bool = False

    def __call__(self, bags: Bags) -> BagRows:
        kept = self.plain.keyed(bags)
        keys, count = key_codes([contiguous(column) for column in bags.keys.columns])
        # Windows may lie far apart; those of a tuple are neighbours among those that there are.
        _, windows = np.unique(bags.starts, return_inverse=True)
        spans = _spans(kept, LEFT, keys, windows), _spans(kept, RIGHT, keys, windows)
        found = self.found(kept.tuples, spans)
        if found is None:
            return self.plain(bags)
        pairs, shared = expand_ranges(*_shared(spans, found))
        order = np.argsort(shared, kind="stable")
        left, right = found[0][pairs[order]], found[1][pairs[order]]
        numbers = windows * count + keys
        places = np.argsort(numbers)
        of = places[np.searchsorted(numbers, shared[order] * count + spans[0].keys[left], sorter=places)]
        return self.plain.result(kept, spans[0].rows[left], spans[1].rows[right], of)

    def found(self, tuples: Sequence[pa.Table], spans: BothSidesWindows) -> tuple[Array, Array] | None:
        """The numbers of tuples that fit, of both sides; None where no loop can tell."""
        left, right = spans
        none = np.empty(0, np.int64)
        if len(left.rows) == 0 or len(right.rows) == 0:
            return none, none
        # Codes of texts hold for one call; those of the texts in the predicate are the same in each.
        codes = TextCodes(texts_of(self._tree))
        (one, large), (other, larger) = (
            self._arrays(tuples[LEFT], LEFT, left.rows, codes),
            self._arrays(tuples[RIGHT], RIGHT, right.rows, codes),
        )
        if not fits_int64(self._tree, large | larger):
            return None
        # Windows may lie far apart: their ranks do not.
        seen = np.unique(np.concatenate([left.first, left.last, right.first, right.last]))
        places = [
            each.keys * len(seen) + np.searchsorted(seen, end)
            for each, end in ((right, right.last), (left, left.first), (right, right.first), (left, left.last))
        ]
        lows = np.searchsorted(places[0], places[1], "left")
        highs = np.searchsorted(places[2], places[3], "right")
        reach = Reach(lows, highs, *stretches(len(other), lows, highs))
        try:
            found = list(self._finder.pairs(LEFT, one, other, reach, decide=True))
        except PairFailed as failed:
            rows = int(left.rows[failed.args[0]]), int(right.rows[failed.args[1]])
            values = [plain_values(table.slice(row, 1))[0] for table, row in zip(tuples, rows, strict=True)]
            raise failed_on(self.plain.join.name, values[0], values[1], "divides a whole number by zero") from None
        lefts, rights = [each.left for each in found], [each.right for each in found]
        return np.concatenate([none, *lefts]), np.concatenate([none, *rights])

    @cached_property
    def _tree(self) -> Tree:
        where = self.plain.join.where
        return TRUE if where is None or where.tree is None else where.tree

    @cached_property
    def _finder(self) -> PairFinder:
        return PairFinder(self._tree, 0, TextCodes(texts_of(self._tree)), None)

    def _arrays(
        self, tuples: pa.Table, side: Side, rows: Array, codes: TextCodes
    ) -> tuple[TupleArrays, dict[Column, int]]:
        """Some tuples of a side as the loop reads them; they are numbered in this order."""
        join = self.plain.join
        times = as_numpy(tuples.column(join.inputs[side].time))
        found, sizes = arrays_read(columns_of(self._tree, side), tuples, times, codes)
        taken = found.take(rows)
        return TupleArrays(taken.times, np.arange(len(rows)), (), taken.values, taken.valid, found.has_nulls), sizes


@dataclass(frozen=True, slots=True)
class EmitPairs:
    """The pairs of the bags that expire, an owner's share, in the order of time. None: no loop can tell."""

    function: CompiledPairUp

    def __call__(
        self, held: HeldBags, expiring: Expiring, keyed: Sequence[KeyedTuples], owned: Array | None
    ) -> Iterator[pa.Table] | None:
        join, window = self.function.plain.join, held.node.window
        if owned is not None:
            keyed = [owned_part(each, owned) for each in keyed]
        columns = [pa.concat_arrays(parts) for parts in zip(*(each.keys for each in keyed), strict=True)]
        if len(columns[0]) == 0:
            return iter(())
        codes, _ = key_codes(columns)
        there = np.logical_and.reduce([valid_mask(column) for column in columns]) if join.on else None
        sides = []
        for each, part in zip(keyed, np.split(np.arange(len(codes)), [len(keyed[0].rows)]), strict=True):
            times = each.times[each.rows]
            first = np.maximum((times - window.size) // window.every + 1, expiring.first)
            last = np.minimum(times // window.every, expiring.last)
            arrays = each.rows, codes[part].astype(np.int64), first, last
            sides.append(TupleWindows.sorted(*(arrays if there is None else (array[there[part]] for array in arrays))))
        spans = sides[0], sides[1]
        found = self.function.found(expiring.tuples, spans)
        return None if found is None else _rows(join, expiring.tuples, spans, found)


def _rows(
    join: Join, tuples: tuple[pa.Table, ...], spans: BothSidesWindows, found: tuple[Array, Array]
) -> Iterator[pa.Table]:
    """The rows of pairs, each once for every window that it shares, in the order of windows."""
    begin, counts = _shared(spans, found)
    end = begin + counts - 1
    for which, low, high in runs_of_windows(begin, end, AT_ONCE):
        lowest = np.maximum(begin[which], low)
        pairs, windows = expand_ranges(lowest, np.minimum(end[which], high) - lowest + 1)
        order = np.argsort(windows, kind="stable")
        pairs = which[pairs[order]]
        left, right = spans[0].rows[found[0][pairs]], spans[1].rows[found[1][pairs]]
        columns = pair_columns(join, tuples, left, right) | window_columns(join, windows[order])
        yield pa.table([columns[name] for name in join.schema.names], schema=join.schema)


def _shared(spans: BothSidesWindows, found: tuple[Array, Array]) -> tuple[Array, Array]:
    """The first window that the tuples of each pair share, and how many."""
    (left, right), (one, other) = spans, found
    begin = np.maximum(left.first[one], right.first[other])
    return begin, np.minimum(left.last[one], right.last[other]) - begin + 1


def _spans(bags: Bags, side: Side, keys: Array, windows: Array) -> TupleWindows:
    """The tuples of a side by the key and window of each bag. A tuple has one key, and its windows are neighbours."""
    rows, of = bags.rows[side], bags.bags[side]
    found = np.full((3, bags.tuples[side].num_rows), -1)
    found[0, rows], found[2, rows] = keys[of], windows[of]  # bags are in the order of windows: the last one stays
    found[1, rows[::-1]] = windows[of[::-1]]
    there = np.flatnonzero(found[0] >= 0)
    return TupleWindows.sorted(there, *found[:, there])
