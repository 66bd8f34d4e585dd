"""Sessions that are open, as a log of runs: what a batch has changed is a run, and the newest row of a session counts.

A session is known by its key and the time of its first tuple. When it takes more tuples a newer row has a later end; when it
becomes part of one that began earlier, a row that is not ``alive`` says so. A row that has ended by the watermark counts no
more, and neither do older ones of that session, so nothing has to be written when sessions expire. Rows of a run are in the
order of the hashes of their keys: what a batch does not touch is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy, expand_ranges
from tidegate.operators.keys import key_codes
from tidegate.operators.session_tables import FIRST, MergedStretches, SessionTables
from tidegate.query.schema import contiguous
from tidegate.query.sessions import SessionWindow
from tidegate.watermark import Watermark

ALIVE = "alive"


@dataclass(frozen=True, eq=False)
class SessionRun:
    """Rows in the order of ``hashes``, each with the times at which it begins and ends. Never changed."""

    table: pa.Table
    hashes: Array
    begins: Array
    ends: Array

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return int(self.table.nbytes) + 4 * self.hashes.nbytes

    @property
    def last_end(self) -> int:
        """When the last of its rows ends."""
        return int(self._by_end[1][-1])

    def first_due(self, session: SessionWindow) -> int:
        """The least watermark at which something happens to one of its rows."""
        return int(self._by_end[1][0] if session.most_us is None else self._by_begin[1][0])

    @cached_property
    def _by_end(self) -> tuple[Array, Array]:
        order = np.argsort(self.ends)
        return order, self.ends[order]

    @cached_property
    def _by_begin(self) -> tuple[Array, Array]:
        order = np.argsort(self.begins)
        return order, self.begins[order]

    def ending(self, before: Watermark, after: Watermark) -> Array:
        """The hashes of rows that end after one watermark and by the next."""
        order, ends = self._by_end
        start, stop = np.searchsorted(ends, [before, after], side="right").tolist()
        return self.hashes[order[start:stop]]

    def beginning(self, before: Watermark, after: Watermark) -> Array:
        """The hashes of rows that begin from one watermark on and before the next."""
        order, begins = self._by_begin
        start, stop = np.searchsorted(begins, [before, after]).tolist()
        return self.hashes[order[start:stop]]

    def of(self, touched: Array) -> pa.Table:
        """The rows of keys with some hashes."""
        low = np.searchsorted(self.hashes, touched)
        _, places = expand_ranges(low, np.searchsorted(self.hashes, touched, side="right") - low)
        return self.table.take(pa.array(places))


@dataclass(frozen=True, slots=True)
class Advanced:
    """What an advance of the watermark does: sessions that expire, and the rows of what has changed, None if nothing has."""

    expired: pa.Table | None
    changed: SessionRun | None


@dataclass(frozen=True)
class OpenSessions:
    """Computes what becomes of sessions from runs; holds none itself."""

    tables: SessionTables

    def run(self, table: pa.Table) -> SessionRun:
        """Rows as a run."""
        hashes = self.tables.hashes(table)
        order = np.argsort(hashes, kind="stable")
        table = table.take(pa.array(order)).combine_chunks()
        return SessionRun(table, hashes[order], self.tables.begins(table), self.tables.ends(table))

    def advance(
        self, runs: Sequence[SessionRun], fresh: Sequence[pa.Table], before: Watermark, after: Watermark
    ) -> Advanced:
        """Merge stretches that came under a watermark with open sessions, then let sessions expire by the next.

        ``runs`` are from old to new.
        """
        parts = [hashes for hashes in self._due(runs, before, after) if len(hashes)]
        parts += [self.tables.hashes(stretches) for stretches in fresh]
        if not parts:
            return Advanced(None, None)
        touched = np.unique(np.concatenate(parts))
        held = self._open(self.latest([run.of(touched) for run in runs]), before)
        number = sum(table.num_rows for table in held)
        stretches = self.tables.unify([*held, *fresh] or [self.tables.empty])
        sessions = self.tables.sessions(stretches, after)
        ends = self.tables.node.session.end(sessions.first, sessions.last)
        expired = ends <= after
        size = len(ends)
        fresh_ones = np.bincount(sessions.groups[number:], minlength=size) > 0
        changed = ~expired & (fresh_ones | (np.bincount(sessions.groups, minlength=size) > 1))
        gone = self._absorbed(stretches.slice(0, number), sessions, after)
        rows = [self._marked(self._part(stretches, sessions, changed), True)] if changed.any() else []
        rows += [self._marked(gone, False)] if gone.num_rows else []
        return Advanced(
            self._part(stretches, sessions, expired) if expired.any() else None,
            self.run(self.tables.compacted(self.tables.unify(rows))) if rows else None,
        )

    def latest(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """Of each session its last row in tables from old to new; states are left where they are."""
        tables = [table for table in tables if table.num_rows]
        if len(tables) < 2:
            return tables
        apart = pa.concat_tables([table.select([*self.tables.key_names, FIRST]) for table in tables])
        apart = apart.unify_dictionaries().combine_chunks()
        codes, _ = key_codes([contiguous(apart.column(name)) for name in self.tables.key_names])
        begins = self.tables.begins(apart)
        order = np.lexsort((begins, codes))  # stable: rows of one session stay in the order of their age
        codes, begins = codes[order], begins[order]
        kept = np.empty(len(order), np.bool_)
        kept[order] = np.append((codes[1:] != codes[:-1]) | (begins[1:] != begins[:-1]), True)
        parts = np.split(kept, np.cumsum([table.num_rows for table in tables[:-1]]))
        return [_where(table, part) for table, part in zip(tables, parts, strict=True)]

    def compacted(self, runs: Sequence[SessionRun], watermark: Watermark, whole: bool) -> SessionRun | None:
        """One run of several that follow one another, without what has ended; ``whole`` says that none is older.

        None if nothing is left.
        """
        tables = self.latest([run.table for run in runs])
        tables = [_where(table, self.tables.ends(table) > watermark) for table in tables]
        if whole:
            tables = [_where(table, _alive(table)) for table in tables]
        tables = [table for table in tables if table.num_rows]
        return self.run(self.tables.compacted(self.tables.unify(tables))) if tables else None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a run."""
        return self.tables.schema.append(pa.field(ALIVE, pa.bool_()))

    def _due(self, runs: Sequence[SessionRun], before: Watermark, after: Watermark) -> Iterator[Array]:
        """The hashes of sessions that end as the watermark moves and, where order counts, of what is settled."""
        for run in runs if after > before else ():
            yield run.ending(before, after)
            if self.tables.node.session.most_us is not None:
                yield run.beginning(before, after)

    def _open(self, tables: Sequence[pa.Table], watermark: Watermark) -> list[pa.Table]:
        """The rows of sessions that are open at a watermark."""
        tables = [_where(rows, _alive(rows) & (self.tables.ends(rows) > watermark)) for rows in tables]
        return [rows.drop_columns([ALIVE]) for rows in tables if rows.num_rows]

    def _absorbed(self, held: pa.Table, sessions: MergedStretches, watermark: Watermark) -> pa.Table:
        """The rows of sessions that are part of one which began earlier, and that would not end by a watermark."""
        begins = self.tables.begins(held)
        absorbed = begins != sessions.first[sessions.groups[: held.num_rows]]
        return held.take(pa.array(np.flatnonzero(absorbed & (self.tables.ends(held) > watermark))))

    def _part(self, stretches: pa.Table, sessions: MergedStretches, chosen: Array) -> pa.Table:
        """One row for each of the chosen sessions."""
        if chosen.all():
            return self.tables.merged(stretches, sessions)
        rows = np.flatnonzero(chosen[sessions.groups])
        number = np.cumsum(chosen) - 1
        some = MergedStretches(
            number[sessions.groups[rows]], sessions.stretch[chosen], sessions.first[chosen], sessions.last[chosen]
        )
        return self.tables.merged(stretches, some, rows)

    def _marked(self, rows: pa.Table, alive: bool) -> pa.Table:
        return rows.append_column(ALIVE, pa.array(np.full(rows.num_rows, alive))).cast(self.schema)


def _alive(rows: pa.Table) -> Array:
    alive: Array = as_numpy(rows.column(ALIVE), pa.uint8()) > 0
    return alive


def _where(rows: pa.Table, kept: Array) -> pa.Table:
    return rows if kept.all() else rows.take(pa.array(np.flatnonzero(kept)))
