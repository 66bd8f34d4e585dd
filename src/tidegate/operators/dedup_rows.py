"""The state of `dedup` over columns: a row is a key and when a tuple of it was last kept, as long as that can matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy
from tidegate.operators.keyed_rows import Handled, KeyedRows, KeyedRun
from tidegate.operators.keys import key_codes
from tidegate.operators.settling import Settled
from tidegate.query.nodes import Dedup
from tidegate.query.schema import contiguous
from tidegate.watermark import START, Watermark

LAST = "last"


@dataclass(frozen=True)
class DedupRows(KeyedRows):
    """How one dedup is computed."""

    node: Dedup

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([(LAST, pa.int64()), *zip(self.key_names, self.node.key_schema.types, strict=True)])

    def advance(self, runs: Sequence[KeyedRun], settled: Settled, entries: Sequence[Array]) -> Handled:
        # Of several rows of a key the newest has the latest time; those that do not matter do no harm.
        return self.handle(self.touched(runs, settled, entries), settled, entries)

    def handle(self, held: pa.Table, settled: Settled, entries: Sequence[Array]) -> Handled:
        from tidegate.operators.keyed_loops import far_enough

        (tuples,), (times,), (found,), (mine,) = settled.tuples, settled.times, settled.entries, entries
        keys, rows = found.columns, found.rows
        if len(mine) < len(rows):
            keys, rows = tuple(key.take(pa.array(mine)) for key in keys), rows[mine]
        when = times[rows]
        before = [contiguous(held.column(name)) for name in self.key_names]
        codes, bound = key_codes([pa.concat_arrays(both) for both in zip(before, keys, strict=True)])
        codes, last = codes.astype(np.int64, copy=False), np.full(bound, START, np.int64)
        np.maximum.at(last, codes[: held.num_rows], as_numpy(held.column(LAST)))
        keep, newest = far_enough(when, codes[held.num_rows :], last, self.node.within_us)
        kept = tuples if keep.all() and len(rows) == tuples.num_rows else tuples.take(pa.array(rows[keep]))
        some = pa.array(newest)
        changed = pa.table([pa.array(when[newest]), *(key.take(some) for key in keys)], schema=self.schema)
        return Handled(changed, (kept,))

    def current(self, rows: pa.Table, watermark: Watermark, whole: bool) -> pa.Table:
        if rows.num_rows == 0:
            return rows
        codes, bound = key_codes([contiguous(rows.column(name)) for name in self.key_names])
        newest = np.full(bound, -1, np.int64)
        newest[codes] = np.arange(len(codes))
        newest = np.sort(newest[newest >= 0])
        return rows.take(pa.array(newest[as_numpy(rows.column(LAST))[newest] > watermark - self.node.within_us]))

    def until(self, rows: pa.Table) -> Watermark:
        return int(as_numpy(rows.column(LAST)).max()) + self.node.within_us if rows.num_rows else START
