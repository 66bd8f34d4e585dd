"""Joins over the last n tuples, on columns: what is kept is the last n tuples of each key on each side.

Tuples of a side that settle are put behind those that are kept of their key. Then what a tuple of the other side meets is a
stretch of them, and a compiled loop tries each. A row is a tuple of one side; the columns of the other side are null in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.joins.encode_side import TextCodes, TupleArrays, arrays_read
from tidegate.operators.joins.find_pairs import FoundPairs, PairFinder
from tidegate.operators.joins.loop_source import texts_of
from tidegate.operators.joins.result_rows import fitting_pairs, rows_at
from tidegate.operators.keyed_rows import Handled, KeyedRows, entries_with_keys
from tidegate.operators.keys import key_codes
from tidegate.operators.settling import Settled
from tidegate.query.nodes import CountJoin
from tidegate.query.predicates.bounds import fits_int64
from tidegate.query.predicates.tree import LEFT, RIGHT, TRUE, Column, Side, Tree, columns_of
from tidegate.query.schema import contiguous
from tidegate.watermark import Watermark

SIDE = "side"
SIDES: tuple[Side, Side] = (LEFT, RIGHT)
MOST_PAIRS = 1 << 20
"""About so many pairs are tried before those that fit leave."""


@dataclass(frozen=True, slots=True)
class HeldTuples:
    """Tuples of one side, those that were kept and then those that have settled, and their order by key.

    ``codes`` are their keys, those of one key from ``starts[code]`` on in ``order``. ``held`` of them were kept.
    """

    table: pa.Table
    times: Array
    codes: Array
    order: Array
    starts: Array
    held: int

    def rows(self, numbers: Array) -> pa.Table:
        """Some of them, by their places."""
        return self.table.take(pa.array(numbers))

    @property
    def places(self) -> Array:
        """Where in the order by key those are that have settled."""
        place = np.empty(len(self.order), np.int64)
        place[self.order] = np.arange(len(self.order))
        return place[self.held :]

    def last(self, size: int) -> Array:
        """Those that have settled and are among the last so many of their key."""
        fresh = self.codes[self.held :]
        return self.held + np.flatnonzero(self.places >= self.starts[fresh + 1] - size)


@dataclass(frozen=True, slots=True)
class Meetings:
    """Settled tuples of one side, and for each the stretch of the other side that it meets."""

    new: TupleArrays
    lows: Array
    highs: Array


@dataclass(frozen=True)
class CountJoinRows(KeyedRows):
    """How one join over the last tuples is computed."""

    node: CountJoin

    @cached_property
    def schema(self) -> pa.Schema:
        keys = zip(self.key_names, self.node.key_schema.types, strict=True)
        columns = [
            (name, kind)
            for side in SIDES
            for name, kind in zip(self._names[side], self.node.inputs[side].schema.types, strict=True)
        ]
        return pa.schema([(SIDE, pa.int8()), *keys, *columns])

    def handle(self, held: pa.Table, settled: Settled, entries: Sequence[Array]) -> Handled:
        mine = [entries_with_keys(self.node, settled, side, entries[side]) for side in SIDES]
        keys = [self._keys(settled, side, mine[side]) for side in SIDES]
        of = as_numpy(held.column(SIDE))
        kept = [held.filter(pa.array(of == side)) for side in SIDES]
        columns = [
            pa.concat_arrays([contiguous(part.column(name)) for part in (*kept, *keys)]) for name in self.key_names
        ]
        codes, bound = key_codes(columns)
        counts = [part.num_rows for part in (*kept, *keys)]
        parts = np.split(codes.astype(np.int64, copy=False), np.cumsum(counts)[:-1])
        tuples = tuple(
            self._tuples(settled, side, kept[side], mine[side], np.concatenate(parts[side::2]), bound) for side in SIDES
        )
        changed = [self._rows(tuples[side], side, keys[side]) for side in SIDES]
        return Handled(self.joined(changed), self._results(tuples[0], tuples[1]))

    def current(self, rows: pa.Table, watermark: Watermark, whole: bool) -> pa.Table:
        from tidegate.operators.kernels import sort_slots

        if rows.num_rows == 0:
            return rows
        codes, bound = key_codes([contiguous(rows.column(name)) for name in self.key_names])
        codes = 2 * codes.astype(np.int64, copy=False) + as_numpy(rows.column(SIDE))
        order, starts = sort_slots(codes, 2 * bound)
        last = np.arange(len(order)) >= starts[codes[order] + 1] - self.node.size
        return rows if last.all() else rows.take(pa.array(np.sort(order[last])))

    @cached_property
    def _names(self) -> tuple[list[str], list[str]]:
        """What the columns of each side are called in rows."""
        left, right = (
            [f"{letter}{at}" for at in range(len(below.schema))]
            for letter, below in zip("lr", self.node.inputs, strict=True)
        )
        return left, right

    def _keys(self, settled: Settled, side: Side, mine: Array) -> pa.Table:
        found = settled.entries[side]
        whole = len(mine) == len(found.rows)
        columns = [column if whole else column.take(pa.array(mine)) for column in found.columns]
        return pa.table(columns, names=self.key_names)

    def _tuples(
        self, settled: Settled, side: Side, kept: pa.Table, mine: Array, codes: Array, bound: int
    ) -> HeldTuples:
        """The tuples of a side, those that are kept and some that have settled; ``codes`` are the keys of all."""
        from tidegate.operators.kernels import sort_slots

        source, fresh, rows = self.node.inputs[side], settled.tuples[side], settled.entries[side].rows[mine]
        if len(rows) < fresh.num_rows:
            fresh = fresh.take(pa.array(rows))
        before = kept.select(self._names[side]).rename_columns(source.schema.names)
        table = pa.concat_tables([before, fresh.select(source.schema.names)]).combine_chunks()
        return HeldTuples(
            table, as_numpy(table.column(source.time)), codes, *sort_slots(codes, bound), held=before.num_rows
        )

    def _rows(self, tuples: HeldTuples, side: Side, keys: pa.Table) -> pa.Table:
        """Those that have settled and are among the last of their key, as rows."""
        chosen = tuples.last(self.node.size)
        count = len(chosen)
        columns = dict(zip(self._names[side], tuples.rows(chosen).columns, strict=True))
        columns |= dict(zip(self.key_names, keys.take(pa.array(chosen - tuples.held)).columns, strict=True))
        columns[SIDE] = pa.array(np.full(count, side, np.int8))
        made = [columns[one.name] if one.name in columns else pa.nulls(count, one.type) for one in self.schema]
        return pa.table(made, schema=self.schema)

    def _results(self, left: HeldTuples, right: HeldTuples) -> Iterator[pa.Table]:
        """The pairs of tuples that have settled and those before them, in the order of time, some at a time."""
        if min(len(left.times), len(right.times)) == 0:
            return
        node, sides = self.node, (left, right)
        tree = node.where.tree if node.where is not None and node.where.tree is not None else TRUE
        codes = TextCodes(texts_of(tree))
        stored, decides = self._encoded(sides, tree, codes)
        finder = PairFinder(tree, 0, codes, None)
        meetings = [self._meetings(stored[side], sides[side], sides[1 - side], side) for side in SIDES]
        for first, stop in _cuts(meetings):
            found = [
                pairs
                for side in SIDES
                for pairs in finder.in_stretches(
                    side,
                    meetings[side].new,
                    np.arange(first[side], stop[side]),
                    stored[1 - side],
                    meetings[side].lows[first[side] : stop[side]],
                    meetings[side].highs[first[side] : stop[side]],
                    decides,
                )
            ]
            pairs = FoundPairs.concatenated(fitting_pairs(node, sides, found, decides))
            if len(pairs.left):
                yield rows_at(node, sides, pairs.left, pairs.right, pairs.times)

    def _encoded(
        self, sides: tuple[HeldTuples, HeldTuples], tree: Tree, codes: TextCodes
    ) -> tuple[list[TupleArrays], bool]:
        """What loops read of the tuples of each side, in the order of keys; and whether loops can decide the predicate."""
        found, sizes = [], dict[Column, int]()
        for side, tuples in zip(SIDES, sides, strict=True):
            columns = columns_of(tree, side)
            rows = tuples.table.select([column.name for column in columns]).take(pa.array(tuples.order))
            arrays, own = arrays_read(columns, rows, tuples.times[tuples.order], codes)
            found.append(replace(arrays, arrivals=tuples.order))
            sizes |= own
        traced = self.node.where is None or self.node.where.tree is not None
        return found, traced and fits_int64(tree, sizes)

    def _meetings(self, stored: TupleArrays, own: HeldTuples, other: HeldTuples, side: Side) -> Meetings:
        """What the tuples of a side that have settled meet; of one time, the left ones are before the right ones."""
        from tidegate.operators.keyed_loops import last_before

        ends = other.starts[:-1] + np.bincount(other.codes[: other.held], minlength=len(other.starts) - 1)
        lows, highs = last_before(
            own.times[own.held :],
            own.codes[own.held :],
            other.times[other.held :],
            other.codes[other.held :],
            other.starts,
            ends,
            self.node.size,
            side == RIGHT,
        )
        return Meetings(stored.take(own.places), lows, highs)


def _cuts(meetings: Sequence[Meetings]) -> Iterator[tuple[list[int], list[int]]]:
    """From where to where the tuples of each side are handled together, in the order of time."""
    sizes = [each.highs - each.lows for each in meetings]
    lengths = [len(each) for each in sizes]
    if sum(int(each.sum()) for each in sizes) <= MOST_PAIRS:
        yield [0, 0], lengths
        return
    order = np.argsort(np.concatenate([each.new.times for each in meetings]), kind="stable")
    tried = np.cumsum(np.concatenate(sizes)[order])
    cuts = np.searchsorted(tried, np.arange(MOST_PAIRS, int(tried[-1]), MOST_PAIRS)) + 1
    lefts = np.concatenate([[0], np.cumsum(order < lengths[0])])
    first = [0, 0]
    for cut in (*np.unique(cuts).tolist(), len(order)):
        stop = [int(lefts[cut]), cut - int(lefts[cut])]
        yield first, stop
        first = stop
