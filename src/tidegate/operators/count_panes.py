"""Windows in number of tuples over columns: the tuples of a key are numbered, and slices of numbers share their states.

A *count pane* is a row for a slice and a key: how many tuples it has, the times of the first and the last, the key columns
and the state columns of every aggregate. The number of a key's next tuple follows from its last pane. Panes that no open
window needs do not count. Only what a number leaves when it is divided by ``every`` matters: where no window is open the
key is forgotten in the end, and its numbers begin again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy, in_time_order, is_first
from tidegate.operators.emit_windows import AT_ONCE, Emitted, Spans, emit_windows, merged_states
from tidegate.operators.keyed_rows import Handled, KeyedRows
from tidegate.operators.keyed_states import KeyedStates, as_kind
from tidegate.operators.keys import Grouped, group, key_codes
from tidegate.operators.settling import Settled
from tidegate.query.nodes import CountAggregate
from tidegate.query.schema import contiguous
from tidegate.query.windows import Window
from tidegate.watermark import Watermark

SLICE, TUPLES, FIRST, LAST = "slice", "tuples", "first", "last"


@dataclass(frozen=True)
class PaneStates(KeyedStates):
    """The layout of count panes."""

    node: CountAggregate
    leading: ClassVar[tuple[str, ...]] = (SLICE, TUPLES, FIRST, LAST)

    def columns_of(self, panes: pa.Table) -> list[pa.Array]:
        """The states of panes."""
        return self._states(panes)


@dataclass(frozen=True, slots=True)
class NumberedTuples:
    """Settled tuples by key, then number: those of slot s begin at ``starts[s]``, and it had ``before[s]`` earlier ones."""

    slots: Array
    rows: Array
    times: Array
    starts: Array
    before: Array

    @property
    def numbers(self) -> Array:
        """The number of each."""
        found: Array = (self.before - self.starts[:-1])[self.slots] + np.arange(len(self.slots))
        return found

    @property
    def after(self) -> Array:
        """How many tuples each slot has had with them."""
        found: Array = self.before + np.diff(self.starts)
        return found


@dataclass(frozen=True)
class CountPanes(KeyedRows):
    """How one aggregate is computed over count windows."""

    node: CountAggregate

    @cached_property
    def states(self) -> PaneStates:
        """The layout of its rows."""
        return PaneStates(self.node)

    @property
    def schema(self) -> pa.Schema:
        return self.states.schema

    @property
    def window(self) -> Window:
        """The windows over numbers."""
        return self.node.counted.numbers

    def joined(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self.states.unify([self.states.empty, *tables])

    def kept(self, rows: pa.Table) -> pa.Table:
        return self.states.compacted(rows)

    def handle(self, held: pa.Table, settled: Settled, entries: Sequence[Array]) -> Handled:
        from tidegate.operators.kernels import sort_slots

        (tuples,), (times,), (found,), (mine,) = settled.tuples, settled.times, settled.entries, entries
        kinds = [self.schema.field(name).type for name in self.key_names]
        some = pa.array(mine)
        arrived = [as_kind(column.take(some), kind) for column, kind in zip(found.columns, kinds, strict=True)]
        arrived_keys = pa.table(arrived, names=self.key_names)
        keys = pa.concat_tables([held.select(self.key_names), arrived_keys]).unify_dictionaries().combine_chunks()
        slots = _grouped(keys)
        before = np.zeros(slots.size, np.int64)
        np.maximum.at(before, slots.groups[: held.num_rows], self._ends(held))
        order, starts = sort_slots(slots.groups[held.num_rows :], slots.size)
        rows = found.rows[mine][order]
        numbered = NumberedTuples(slots.groups[held.num_rows :][order], rows, times[rows], starts, before)
        panes, owners, is_changed = self._panes(held, slots, keys, order, tuples, numbered)
        slices = as_numpy(panes.column(SLICE))
        # The last pane of a key says of older ones that they do not count.
        needed = slices >= 2 * self.node.counted.first_open(numbered.after)[owners]
        had = np.bincount(slots.groups[: held.num_rows], minlength=slots.size) > 0
        needed |= np.append(owners[1:] != owners[:-1], True) & had[owners]
        changed = panes.take(pa.array(np.flatnonzero(is_changed & needed)))
        return Handled(changed, self._results(panes, owners, slices, numbered))

    def current(self, rows: pa.Table, watermark: Watermark, whole: bool) -> pa.Table:
        if rows.num_rows == 0:
            return rows
        owners, slices, ends = _grouped(rows.select(self.key_names)), as_numpy(rows.column(SLICE)), self._ends(rows)
        order = _by_slice(owners.groups, slices)  # rows of one pane stay in the order of their age
        of, slices = owners.groups[order], slices[order]
        newest = np.append((of[1:] != of[:-1]) | (slices[1:] != slices[:-1]), True)
        order, of, slices = order[newest], of[newest], slices[newest]
        is_last = np.append(of[1:] != of[:-1], True)
        kept = slices >= 2 * self.node.counted.first_open(ends[order[is_last]])[of]
        if not whole:
            kept |= is_last
        return rows.take(pa.array(order[kept]))

    def unfilled(self, rows: pa.Table) -> int:
        if rows.num_rows == 0:
            return 0
        owners = _grouped(rows.select(self.key_names))
        ends = np.zeros(owners.size, np.int64)
        np.maximum.at(ends, owners.groups, self._ends(rows))
        return int(self.node.counted.unfilled(ends).sum())

    def _ends(self, panes: pa.Table) -> Array:
        """The number of the next tuple after each pane."""
        found: Array = self.window.slice_start(as_numpy(panes.column(SLICE))) + as_numpy(panes.column(TUPLES))
        return found

    def _panes(
        self, held: pa.Table, slots: Grouped, keys: pa.Table, order: Array, tuples: pa.Table, numbered: NumberedTuples
    ) -> tuple[pa.Table, Array, Array]:
        """The panes of keys after some tuples, by slot and slice, the slot of each, and whether it has changed."""
        slices, logics = self.window.slice_of(numbered.numbers), self.states.logics
        begins = is_first(numbered.slots) | is_first(slices)
        heads = np.flatnonzero(begins)
        tails = np.append(heads[1:], len(slices)) - 1
        pane_of = np.cumsum(begins) - 1
        lifted = [state for each in logics for state in each.lift(tuples, numbered.rows, pane_of, len(heads))]
        numbers = [slices[heads], tails - heads + 1, numbered.times[heads], numbered.times[tails]]
        own = keys.take(pa.array(held.num_rows + order[heads])).columns
        fresh = pa.table([*map(pa.array, numbers), *own, *lifted], schema=self.schema)
        rows = self.joined([held, fresh])
        owners = np.concatenate([slots.groups[: held.num_rows], numbered.slots[heads]])
        by_slice = _by_slice(owners, as_numpy(rows.column(SLICE)))  # of one pane what is held comes first
        rows, owners = rows.take(pa.array(by_slice)).combine_chunks(), owners[by_slice]
        is_fresh = by_slice >= held.num_rows
        begins = is_first(owners) | is_first(as_numpy(rows.column(SLICE)))
        if begins.all():
            return rows, owners, is_fresh
        heads, groups = np.flatnonzero(begins), np.cumsum(begins) - 1
        tails = np.append(heads[1:], len(owners)) - 1
        states = merged_states(logics, self.states.columns_of(rows), None, groups, len(heads))
        first = rows.take(pa.array(heads))
        numbers = [
            as_numpy(first.column(SLICE)),
            np.add.reduceat(as_numpy(rows.column(TUPLES)), heads),
            as_numpy(first.column(FIRST)),
            as_numpy(rows.column(LAST))[tails],
        ]
        merged = pa.table([*map(pa.array, numbers), *first.select(self.key_names).columns, *states], schema=self.schema)
        return merged, owners[heads], np.logical_or.reduceat(is_fresh, heads)

    def _results(self, panes: pa.Table, owners: Array, slices: Array, numbered: NumberedTuples) -> pa.Table:
        """The windows that some tuples fill, in the order of time."""
        window, counted = self.window, self.node.counted
        # Windows are numbered from the first that a key had open: keys that have had more tuples are no further.
        first = counted.first_open(numbered.before)
        full = (counted.first_open(numbered.after) - first)[owners]
        begin = np.maximum(window.first_window(slices) - first[owners], 0)
        end = np.minimum(window.last_window(slices) - first[owners], full - 1)
        spans = Spans(self.states.columns_of(panes), np.arange(len(owners)), owners, len(first), begin, end)
        parts = [
            self._table(panes, owners, first, emitted, numbered)
            for emitted in emit_windows(self.states.logics, spans, 0, int(full.max(initial=0)) - 1, AT_ONCE)
        ]
        if not parts:
            return self.node.schema.empty_table()
        results = pa.concat_tables(parts).combine_chunks()
        return in_time_order(results, as_numpy(results.column(self.node.time)))[0]

    def _table(
        self, panes: pa.Table, owners: Array, first: Array, emitted: Emitted, numbered: NumberedTuples
    ) -> pa.Table:
        """Results in columns."""
        node, window, moment = self.node, self.window, self.node.schema.field(self.node.time).type
        of = owners[emitted.rows]
        places = emitted.windows + first[of]
        last = places * window.every + window.size - 1
        filled = numbered.times[numbered.starts[of] + last - numbered.before[of]]
        # Panes of a key have no gaps, and a window begins with a slice.
        pane = np.searchsorted(owners, of)
        skipped = 2 * places - as_numpy(panes.column(SLICE))[pane]
        pane += skipped if window.remainder else skipped // 2
        began = as_numpy(panes.column(FIRST))[pane]
        columns = {node.time: filled, "window_start": began, "window_end": filled}
        made = {name: pa.array(each).view(moment) for name, each in columns.items()}
        rows = panes.select(self.key_names).take(pa.array(emitted.rows))
        for field, key in zip(node.key_schema, map(contiguous, rows.columns), strict=True):
            made[field.name] = key.cast(field.type) if key.type != field.type else key
        made |= {name: value for (name, _), value in zip(node.aggregates, emitted.values, strict=True)}
        return pa.table([made[name] for name in node.schema.names], schema=node.schema)


def _by_slice(owners: Array, slices: Array) -> Array:
    """The order of panes by owner, then slice; those that are equal in both stay as they are."""
    low = int(slices.min(initial=0))
    span = int(slices.max(initial=0)) - low + 1
    if span * (int(owners.max(initial=0)) + 1) >= 2**62:
        return np.lexsort((slices, owners))
    # One number is sorted faster than two, all the more where what is held is in order already.
    return np.argsort(owners * span + (slices - low), kind="stable")


def _grouped(keys: pa.Table) -> Grouped:
    codes, bound = key_codes([contiguous(column) for column in keys.columns])
    return group(codes.astype(np.int64, copy=False), bound)
