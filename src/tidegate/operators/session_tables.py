"""Sessions over Arrow batches: tuples become stretches of time with states of the aggregates, and those merge into sessions.

A *stretch* is a row: the times of its first and last tuple, the key, and the state columns of every aggregate. It is what
tuples of a key that follow one another closely are combined into before anything else is known of their session. Stretches
that overlap merge, in any order, into the same session. Where a session lasts at most so long, what belongs to it depends
on what is before; so a stretch has one time until its tuples are settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tidegate.operators.aggregates import taken
from tidegate.operators.aggregates.shared_states import lifted_states, merged_states
from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.emit_windows import AT_ONCE, finished
from tidegate.operators.keyed_states import KeyedStates
from tidegate.operators.keys import key_sets
from tidegate.query.nodes import SessionAggregate
from tidegate.watermark import END, START, Watermark

FIRST, LAST = "__tg_first", "__tg_last"


@dataclass(frozen=True, slots=True)
class MergedStretches:
    """Sessions that stretches were merged into: that of each, and of each session a stretch, its first and last times."""

    groups: Array
    stretch: Array
    first: Array
    last: Array


@dataclass(frozen=True)
class SessionTables(KeyedStates):
    """How one aggregate is computed over sessions."""

    node: SessionAggregate
    leading: ClassVar[tuple[str, ...]] = (FIRST, LAST)

    def lift(self, rows: pa.Table) -> pa.Table:
        """The stretches of some tuples."""
        from tidegate.operators.kernels import chain_in_time

        sets = self._encoded(key_sets(self.node.keys, rows))
        if len(sets) == 0:
            return self.empty
        codes, bound = sets.codes()
        entries = sets.entries(codes, bound)
        take = sets.rows if entries is None or sets.rows is None else sets.rows[entries]
        codes = (codes if entries is None else codes[entries]).astype(np.int64, copy=False)
        times = as_numpy(rows.column(self.node.time))
        times = times if take is None else times[take]
        in_order = bool((times[1:] >= times[:-1]).all())
        order = np.arange(len(times)) if in_order else np.argsort(times, kind="stable")
        groups, of, first, last = chain_in_time(codes, times, order, bound, self.node.session.joins_within_us)
        states = lifted_states(self.logics, rows, take, groups, len(of))
        keys = self._keys(sets, of if entries is None else entries[of])
        return self._table(first, last, keys, states)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """One table of several, of stretches none of which is settled."""
        if len(tables) == 1:
            return tables[0]
        stretches = self.unify(tables)
        return self.compacted(self.merged(stretches, self.sessions(stretches, START)))

    def sessions(self, stretches: pa.Table, settled: Watermark) -> MergedStretches:
        """Which stretches are one session, those that start before a time being settled."""
        from tidegate.operators.kernels import merge_sessions, sort_slots

        session = self.node.session
        codes, bound = self._codes(stretches)
        codes = codes.astype(np.int64, copy=False)
        first, last = self.begins(stretches), as_numpy(stretches.column(LAST))
        order = np.argsort(first, kind="stable")
        order = order[sort_slots(codes[order], bound)[0]]
        until = END if session.most_us is None else settled
        return MergedStretches(*merge_sessions(codes, first, last, order, session.gap_us, session.limit_us, until))

    def merged(self, stretches: pa.Table, sessions: MergedStretches, rows: Array | None = None) -> pa.Table:
        """One stretch for each session; all of them have one. ``rows`` are those of the stretches, None for all."""
        size = len(sessions.stretch)
        if size == len(sessions.groups):
            return stretches if rows is None else stretches.take(pa.array(rows))
        states = merged_states(self.logics, self._states(stretches), rows, sessions.groups, size)
        keys = self._key_columns(stretches, sessions.stretch)
        return self._table(sessions.first, sessions.last, keys, states)

    def begins(self, stretches: pa.Table) -> Array:
        """The times of the first tuples of stretches."""
        return as_numpy(stretches.column(FIRST))

    def ends(self, stretches: pa.Table) -> Array:
        """When stretches end."""
        found: Array = self.node.session.end(self.begins(stretches), as_numpy(stretches.column(LAST)))
        return found

    def results(self, sessions: pa.Table) -> Iterator[pa.Table]:
        """The results of sessions, in the order of their ends, a bounded number at a time."""
        node, moment = self.node, self.node.schema.field(self.node.time).type
        begins, ends = self.begins(sessions), self.ends(sessions)
        order = np.argsort(ends, kind="stable")
        for at in range(0, len(order), AT_ONCE):
            some = order[at : at + AT_ONCE]
            times = {node.time: ends[some] - 1, "window_start": begins[some], "window_end": ends[some]}
            columns = {name: pa.array(each).view(moment) for name, each in times.items()}
            for field, key in zip(node.key_schema, self._key_columns(sessions, some), strict=True):
                columns[field.name] = key.cast(field.type) if key.type != field.type else key
            values = finished(self.logics, [taken(state, some) for state in self._states(sessions)])
            columns |= {name: value for (name, _), value in zip(node.aggregates, values, strict=True)}
            yield pa.table([columns[name] for name in node.schema.names], schema=node.schema)

    def _table(self, first: Array, last: Array, keys: list[pa.Array], states: list[pa.Array]) -> pa.Table:
        return pa.table([pa.array(first), pa.array(last), *keys, *states], schema=self.schema)
