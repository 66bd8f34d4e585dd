"""The windowed aggregate over Arrow batches, with slices: O+ in its columnar form.

A *pane table* has one row per slice and key: the slice, the key columns and the state columns of every aggregate. Tuples
are lifted into pane tables, pane tables merge into smaller ones, and the results of windows are computed from the panes of
their slices. A tuple is touched once, however many windows it lies in, and never copied, however many keys it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tidegate.operators.aggregates.shared_states import lifted_states, merged_states
from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.emit_windows import AT_ONCE, Spans, emit_windows, finished, window_columns
from tidegate.operators.keyed_states import KeyedStates
from tidegate.operators.keys import distinct, group, key_sets
from tidegate.query.nodes import WindowAggregate
from tidegate.state import chunks
from tidegate.state.chunks import Piece

SLICE = "__tg_slice"


@dataclass(frozen=True)
class Panes(KeyedStates):
    """How one aggregate is computed over windows: its pane tables have a slice, the keys and the states."""

    node: WindowAggregate
    leading: ClassVar[tuple[str, ...]] = (SLICE,)

    def lift(self, rows: pa.Table) -> pa.Table:
        """The pane table of some tuples, in the order of slices."""
        sets = self._encoded(key_sets(self.node.keys, rows))
        if len(sets) == 0:
            return self.empty
        seen, slots = self._slices(as_numpy(rows.column(self.node.time)))
        codes, bound = sets.codes()
        entries = sets.entries(codes, bound)
        take = sets.rows if entries is None or sets.rows is None else sets.rows[entries]
        codes = codes if entries is None else codes[entries]
        if slots is None and sets.slots is not None:
            grouped = sets.slots
        else:
            if slots is not None:
                codes = (slots if take is None else slots[take]) * bound + codes
            # One integer type, or the loop would be compiled twice.
            grouped = group(codes.astype(np.int64, copy=False), len(seen) * bound)
        states = lifted_states(self.logics, rows, take, grouped.groups, grouped.size)
        keys = self._keys(sets, grouped.first if entries is None else entries[grouped.first])
        return self._table(seen[grouped.ids // bound], keys, states)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """One pane table of several, in the order of slices."""
        if len(tables) == 1:
            return tables[0]
        joined = self.unify(tables)
        seen, slots = distinct(as_numpy(joined.column(SLICE)))
        codes, bound = self._codes(joined)
        grouped = group(slots * bound + codes, len(seen) * bound)
        keys = self._key_columns(joined, grouped.first)
        states = merged_states(self.logics, self._states(joined), None, grouped.groups, grouped.size)
        return self.compacted(self._table(seen[grouped.ids // bound], keys, states))

    def piece(self, panes: pa.Table, low: int, high: int) -> Piece:
        """Encode panes of the slices ``low`` to ``high``, in their order; those of one slice do not repeat which."""
        table = panes.drop_columns([SLICE]) if low == high else panes
        return Piece(low, high, panes.num_rows, chunks.encode(self.compacted(table)))

    def decode(self, data: bytes | pa.Buffer, low: int) -> pa.Table:
        """The pane table of an encoded run that begins with the slice ``low``."""
        table = chunks.decode(data)
        if SLICE in table.column_names:
            return table
        return pa.table([pa.array(np.full(table.num_rows, low)), *table.columns], schema=self.schema)

    def with_keys_of(self, panes: pa.Table, others: pa.Table) -> pa.Table:
        """The panes whose keys also occur in other panes."""
        codes, bound = self._codes(self.unify([panes, others]))
        wanted = np.zeros(bound, np.bool_)
        wanted[codes[panes.num_rows :]] = True
        return panes.filter(pa.array(wanted[codes[: panes.num_rows]]))

    def results(self, panes: pa.Table, first: int, last: int) -> Iterator[pa.Table]:
        """The results of windows ``first`` to ``last``, in their order, a bounded number at a time (`emit_windows`)."""
        if panes.num_rows == 0:
            return
        panes = self.unify([panes], last=True)
        codes, bound = self._codes(panes)
        slices, slots = distinct(as_numpy(panes.column(SLICE)))
        begins = np.maximum(self.node.window.first_window(slices), first)
        ends = np.minimum(self.node.window.last_window(slices), last)
        if first == last and (begins == first).all() and (ends == first).all():
            # One window, and every pane is in it: nothing has to be repeated.
            grouped = group(codes.astype(np.int64, copy=False), bound)
            states = merged_states(self.logics, self._states(panes), None, grouped.groups, grouped.size)
            values = finished(self.logics, states)
            yield self._finish(np.full(grouped.size, first, np.int64), panes, grouped.first, values)
            return
        spans = Spans(self._states(panes), np.arange(panes.num_rows), codes, bound, begins[slots], ends[slots])
        for emitted in emit_windows(self.logics, spans, first, last, AT_ONCE):
            yield self._finish(emitted.windows, panes, emitted.rows, emitted.values)

    def results_apart(self, panes: pa.Table) -> Iterator[pa.Table]:
        """The results of windows of one slice each, in the order of panes, no two of which are of one window and key."""
        for at in range(0, panes.num_rows, AT_ONCE):
            some = panes.slice(at, AT_ONCE)
            windows = self.node.window.last_window(as_numpy(some.column(SLICE)))
            yield self._finish(windows, some, None, finished(self.logics, self._states(some)))

    def begins(self, panes: pa.Table) -> Array:
        """When the slices of panes begin."""
        found: Array = self.node.window.slice_start(as_numpy(panes.column(SLICE)))
        return found

    def _finish(self, windows: Array, panes: pa.Table, rows: Array | None, values: list[pa.Array]) -> pa.Table:
        """Result columns in the node's order, each with the key of a pane, of all in turn if ``rows`` is None."""
        columns = window_columns(self.node, windows)
        for field, key in zip(self.node.key_schema, self._key_columns(panes, rows), strict=True):
            columns[field.name] = key.cast(field.type) if key.type != field.type else key
        for (name, _), value in zip(self.node.aggregates, values, strict=True):
            columns[name] = value
        if self.node.window.lateness:
            columns["revision"] = pa.array(np.zeros(len(windows), np.int64))
        return pa.table([columns[name] for name in self.node.schema.names], schema=self.node.schema)

    def _slices(self, times: Array) -> tuple[Array, Array | None]:
        """The slices that tuples fall in, ascending; and for each tuple which of them, None if all are in one."""
        slice_of = self.node.window.slice_of
        low, high = int(slice_of(times.min())), int(slice_of(times.max()))
        return (np.array([low]), None) if low == high else distinct(slice_of(times))

    def _table(self, slices: Array, keys: list[pa.Array], states: list[pa.Array]) -> pa.Table:
        return pa.table([pa.array(slices), *keys, *states], schema=self.schema)
