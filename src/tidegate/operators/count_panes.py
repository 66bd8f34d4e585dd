"""Windows in number of tuples over columns: the tuples of a key are numbered, and slices of numbers share their states.

A *count pane* is a row for a slice and a key: how many tuples it has, the times of the first and the last, the key columns
and the state columns of every aggregate. The number of a key's next tuple follows from its last pane. Panes that no open
window needs do not count. Only what a number leaves when it is divided by ``every`` matters: where no window is open the
key is forgotten in the end, and its numbers begin again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tidegate.operators.aggregates import Logic, OverStretches
from tidegate.operators.aggregates.shared_states import lifted_states, merged_states
from tidegate.operators.columns import Array, as_numpy, canonical_floats, expand_ranges, is_first
from tidegate.operators.emit_windows import AT_ONCE, Spans, emit_windows, of_each
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
    """Settled tuples by key, then number: those of slot s begin at ``starts[s]``, and it had ``before[s]`` earlier ones.

    ``order[i]`` is the place of tuple i among those that arrived, ``rows[i]`` its row.
    """

    slots: Array
    order: Array
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
        slots = self._by_hash(keys)
        before = np.zeros(slots.size, np.int64)
        np.maximum.at(before, slots.groups[: held.num_rows], self._ends(held))
        order, starts = sort_slots(slots.groups[held.num_rows :], slots.size)
        rows = found.rows[mine][order]
        numbered = NumberedTuples(slots.groups[held.num_rows :][order], order, rows, times[rows], starts, before)
        panes, owners, is_changed = self._panes(held, slots, keys, tuples, numbered)
        slices = as_numpy(panes.column(SLICE))
        # The last pane of a key says of older ones that they do not count.
        needed = slices >= 2 * self.node.counted.first_open(numbered.after)[owners]
        had = np.bincount(slots.groups[: held.num_rows], minlength=slots.size) > 0
        needed |= np.append(owners[1:] != owners[:-1], True) & had[owners]
        changed = panes.take(pa.array(np.flatnonzero(is_changed & needed)))
        return Handled(changed, (self._results(panes, owners, slices, numbered, arrived),))

    def current(self, rows: pa.Table, watermark: Watermark, whole: bool) -> pa.Table:
        if rows.num_rows == 0:
            return rows
        owners, slices, ends = _grouped(rows.select(self.key_names)), as_numpy(rows.column(SLICE)), self._ends(rows)
        order = _by_slice(owners.groups, slices, owners.size)  # rows of one pane stay in the order of their age
        of, slices = owners.groups[order], slices[order]
        newest = np.append((of[1:] != of[:-1]) | (slices[1:] != slices[:-1]), True)
        order, of, slices = order[newest], of[newest], slices[newest]
        is_last = np.append(of[1:] != of[:-1], True)
        kept = slices >= 2 * self.node.counted.first_open(ends[order[is_last]])[of]
        if not whole:
            kept |= is_last
        return rows.take(pa.array(order[kept]))

    def unfilled(self, tables: Iterable[pa.Table]) -> int:
        # The number that a key has come to is in its newest row; older ones say less.
        named = [*self.key_names, SLICE, TUPLES]
        rows = pa.concat_tables([self.states.empty.select(named), *(table.select(named) for table in tables)])
        if rows.num_rows == 0:
            return 0
        rows = rows.unify_dictionaries().combine_chunks()
        owners = _grouped(rows.select(self.key_names))
        ends = np.zeros(owners.size, np.int64)
        np.maximum.at(ends, owners.groups, self._ends(rows))
        return int(self.node.counted.unfilled(ends).sum())

    def _ends(self, panes: pa.Table) -> Array:
        """The number of the next tuple after each pane."""
        found: Array = self.window.slice_start(as_numpy(panes.column(SLICE))) + as_numpy(panes.column(TUPLES))
        return found

    def _by_hash(self, keys: pa.Table) -> Grouped:
        """The slots of keys in the order of their hashes, which is that of runs."""
        found = _grouped(keys)
        by_hash = np.argsort(self.hashes(keys.take(pa.array(found.first))), kind="stable")
        place = np.empty(found.size, np.int64)
        place[by_hash] = np.arange(found.size)
        return Grouped(place[found.groups], found.ids[by_hash], found.first[by_hash])

    def _panes(
        self, held: pa.Table, slots: Grouped, keys: pa.Table, tuples: pa.Table, numbered: NumberedTuples
    ) -> tuple[pa.Table, Array, Array]:
        """The panes of keys after some tuples, by slot and slice, the slot of each, and whether it has changed."""
        slices, logics = self.window.slice_of(numbered.numbers), self.states.logics
        begins = is_first(numbered.slots) | is_first(slices)
        heads = np.flatnonzero(begins)
        tails = np.append(heads[1:], len(slices)) - 1
        pane_of = np.cumsum(begins) - 1
        lifted = lifted_states(logics, tuples, numbered.rows, pane_of, len(heads))
        numbers = [slices[heads], tails - heads + 1, numbered.times[heads], numbered.times[tails]]
        own = keys.take(pa.array(held.num_rows + numbered.order[heads])).columns
        fresh = pa.table([*map(pa.array, numbers), *own, *lifted], schema=self.schema)
        owners = numbered.slots[heads]
        if held.num_rows == 0:
            return fresh, owners, np.ones(len(owners), np.bool_)
        rows = self.joined([held, fresh])
        owners = np.concatenate([slots.groups[: held.num_rows], owners])
        # Of one pane what is held comes first.
        by_slice = _by_slice(owners, as_numpy(rows.column(SLICE)), slots.size)
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

    def _results(
        self, panes: pa.Table, owners: Array, slices: Array, numbered: NumberedTuples, keys: Sequence[pa.Array]
    ) -> pa.Table:
        """The windows that some tuples fill, in the order of those tuples, each of which fills one at most."""
        window, counted, node = self.window, self.node.counted, self.node
        # Windows are numbered from the first that a key had open: keys that have had more tuples are no further.
        first = counted.first_open(numbered.before)
        full = counted.first_open(numbered.after) - first
        of, offsets = expand_ranges(np.zeros_like(full), full)
        if not len(of):
            return node.schema.empty_table()
        windows = offsets + first[of]
        last = windows * window.every + window.size - 1
        filling = numbered.starts[of] + last - numbered.before[of]
        # Panes of a key have no gaps, and a window begins with a slice.
        pane, step = np.searchsorted(owners, np.arange(len(first))), 1 if window.remainder else 2
        begin = pane[of] + (2 * windows - slices[pane][of]) // step
        end = pane[of] + (window.slice_of(last) - slices[pane][of]) // step
        values = self._values(panes, owners, slices, first, full, begin, end + 1)
        by_time = np.full(len(numbered.order), -1, np.int64)
        by_time[numbered.order[filling]] = np.arange(len(of))
        order = by_time[by_time >= 0]
        chosen = pa.array(order)
        filling, moment = filling[order], node.schema.field(node.time).type
        filled, began = numbered.times[filling], as_numpy(panes.column(FIRST))[begin[order]]
        columns = {node.time: filled, "window_start": began, "window_end": filled}
        made = {name: pa.array(each).view(moment) for name, each in columns.items()}
        arrived = pa.array(numbered.order[filling])
        for field, key in zip(node.key_schema, keys, strict=True):
            own = canonical_floats(key.take(arrived))
            made[field.name] = own.cast(field.type) if own.type != field.type else own
        made |= {name: value.take(chosen) for (name, _), value in zip(node.aggregates, values, strict=True)}
        return pa.table([made[name] for name in node.schema.names], schema=node.schema)

    def _values(
        self, panes: pa.Table, owners: Array, slices: Array, first: Array, full: Array, begin: Array, end: Array
    ) -> list[pa.Array]:
        """The values of all aggregates for the windows that are full, of slot after slot.

        Panes ``begin[i]`` to before ``end[i]`` are those of window i. Each slot has ``full`` of them, from its ``first`` on.
        """
        found: dict[int, pa.Array] = {}
        others: list[tuple[int, Logic, Sequence[pa.Array]]] = []
        for number, (logic, states) in enumerate(of_each(self.states.logics, self.states.columns_of(panes))):
            if isinstance(logic, OverStretches):
                found[number] = logic.over_stretches(states, begin, end)
            else:
                others.append((number, logic, states))
        if others:
            opens = np.maximum(self.window.first_window(slices) - first[owners], 0)
            closes = np.minimum(self.window.last_window(slices) - first[owners], full[owners] - 1)
            states = [state for _, _, own in others for state in own]
            spans = Spans(states, np.arange(len(owners)), owners, len(first), opens, closes)
            logics = [logic for _, logic, _ in others]
            parts = list(emit_windows(logics, spans, 0, int(full.max()) - 1, AT_ONCE))
            places = np.concatenate([(np.cumsum(full) - full)[owners[each.rows]] + each.windows for each in parts])
            order = np.empty(len(places), np.int64)
            order[places] = np.arange(len(places))
            for at, (number, _, _) in enumerate(others):
                found[number] = pa.concat_arrays([each.values[at] for each in parts]).take(pa.array(order))
        return [found[number] for number in range(len(self.states.logics))]


def _by_slice(owners: Array, slices: Array, size: int) -> Array:
    """The order of panes by owner, then slice; those that are equal in both stay as they are."""
    from tidegate.operators.kernels import sort_slots

    order = sort_slots(owners, size)[0]
    of, found = owners[order], slices[order]
    # Of one owner those that are newer are further, as a rule.
    return order if ((of[1:] > of[:-1]) | (found[1:] >= found[:-1])).all() else np.lexsort((slices, owners))


def _grouped(keys: pa.Table) -> Grouped:
    codes, bound = key_codes([contiguous(column) for column in keys.columns])
    return group(codes.astype(np.int64, copy=False), bound)
