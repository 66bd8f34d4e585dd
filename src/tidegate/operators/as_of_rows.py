"""As-of joins over columns: what is kept of the right side is the last tuple of each key, as long as it is in reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.keyed_rows import Handled, KeyedRows, entries_with_keys
from tidegate.operators.keys import key_codes
from tidegate.operators.settling import Settled
from tidegate.query import expressions
from tidegate.query.nodes import AsOf
from tidegate.query.predicates.tree import LEFT, RIGHT, Side
from tidegate.query.schema import contiguous
from tidegate.watermark import END, START, Watermark

TIME, ALIVE = "time", "alive"
SIDES: tuple[Side, Side] = (LEFT, RIGHT)


@dataclass(frozen=True)
class AsOfRows(KeyedRows):
    """How one as-of join is computed: a row is a right tuple, one that is not ``alive`` says that there is none."""

    node: AsOf

    @cached_property
    def schema(self) -> pa.Schema:
        keys = zip(self.key_names, self.node.key_schema.types, strict=True)
        right = self.node.inputs[RIGHT].schema
        columns = [(name, right.field(of).type) for name, of in zip(self.kept_names, self._kept, strict=True)]
        return pa.schema([(TIME, pa.int64()), (ALIVE, pa.bool_()), *keys, *columns])

    def handle(self, held: pa.Table, settled: Settled, entries: Sequence[Array]) -> Handled:
        from tidegate.operators.as_of_loops import last_before

        lefts, rights = (entries_with_keys(self.node, settled, side, entries[side]) for side in SIDES)
        rows = self.joined([held, self.arrived(settled, rights)])
        left_keys = [column.take(pa.array(lefts)) for column in settled.entries[LEFT].columns]
        columns = [
            pa.concat_arrays([contiguous(rows.column(name)), key])
            for name, key in zip(self.key_names, left_keys, strict=True)
        ]
        codes, bound = key_codes(columns)
        codes = codes.astype(np.int64, copy=False)
        times, when = as_numpy(rows.column(TIME)), settled.times[LEFT][settled.entries[LEFT].rows[lefts]]
        match, last = last_before(when, codes[rows.num_rows :], times, codes[: rows.num_rows], bound, held.num_rows)
        found = np.maximum(match, 0)
        matched = match >= 0
        if rows.num_rows:
            matched &= np.asarray(rows.column(ALIVE).to_numpy())[found]
            if self.node.tolerance_us is not None:
                matched &= when - times[found] <= self.node.tolerance_us
        changed = rows.take(pa.array(np.sort(last[last >= held.num_rows])))
        places, partner = lefts[matched], match[matched]
        if self.node.keeps_unmatched:
            every = np.full(len(settled.entries[LEFT].rows), -1, np.int64)
            every[places] = partner
            places, partner = entries[LEFT], every[entries[LEFT]]
        matches = rows.select(self.kept_names).take(pa.array(partner, mask=partner < 0))
        return Handled(changed, (self.results(settled, places, matches),))

    def current(self, rows: pa.Table, watermark: Watermark, whole: bool) -> pa.Table:
        if rows.num_rows == 0:
            return rows
        codes, bound = key_codes([contiguous(rows.column(name)) for name in self.key_names])
        last = np.full(bound, -1, np.int64)
        last[codes] = np.arange(len(codes))
        kept = last[last >= 0]
        if self.node.tolerance_us is not None:
            kept = kept[as_numpy(rows.column(TIME))[kept] >= watermark - self.node.tolerance_us]
        if whole:
            kept = kept[np.asarray(rows.column(ALIVE).to_numpy())[kept]]
        return rows.take(pa.array(np.sort(kept)))

    def until(self, rows: pa.Table) -> Watermark:
        tolerance = self.node.tolerance_us
        if tolerance is None:
            return END
        return int(as_numpy(rows.column(TIME)).max()) + tolerance + 1 if rows.num_rows else START

    @cached_property
    def _kept(self) -> list[str]:
        """The columns of the right side that are in the result."""
        return list(dict.fromkeys(made.column for made in self.node.columns if made.side == RIGHT))

    @cached_property
    def kept_names(self) -> list[str]:
        """What these are called in rows."""
        return [f"c{at}" for at in range(len(self._kept))]

    def arrived(self, settled: Settled, rights: Array) -> pa.Table:
        """Right tuples as rows."""
        found, tuples = settled.entries[RIGHT], settled.tuples[RIGHT]
        rows = found.rows[rights]
        if len(rows) < tuples.num_rows:
            tuples = tuples.take(pa.array(rows))
        alive = np.ones(len(rows), np.bool_)
        if self.node.deleted is not None:
            told = contiguous(expressions.select(tuples, (self.node.deleted.alias(ALIVE),)).column(ALIVE))
            alive = ~np.asarray(told.fill_null(False).to_numpy(zero_copy_only=False))
        whole = len(rights) == len(found.rows)
        keys = [column if whole else column.take(pa.array(rights)) for column in found.columns]
        columns = [contiguous(tuples.column(name)) for name in self._kept]
        return pa.table([pa.array(settled.times[RIGHT][rows]), pa.array(alive), *keys, *columns], schema=self.schema)

    def results(self, settled: Settled, places: Array, matches: pa.Table) -> pa.Table:
        """Left tuples by their entries, in their order, each with the row that it matches."""
        of_left, tuples = settled.entries[LEFT].rows[places], settled.tuples[LEFT]
        if len(of_left) < tuples.num_rows:
            tuples = tuples.take(pa.array(of_left))
        named = dict(zip(self._kept, self.kept_names, strict=True))
        columns = [
            tuples.column(made.column) if made.side == LEFT else matches.column(named[made.column])
            for made in self.node.columns
        ]
        return pa.table(columns, schema=self.node.schema)
