"""State as rows by key, for operators that handle settled tuples on whole columns: a log of runs.

What settles together reads the rows of the keys it touches and appends those that have changed as one run; of several rows
about the same thing the newest counts, and the operator says which do not count any more. Rows of a run are in the order of
the hashes of their keys: what is not touched is not looked at. In process runs are held in memory (`logged_slots`), on
Spark they are the chunks of a cell (`keyed_rows_cell`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.operators.cells import SHARDS, worth_merging
from tidegate.operators.columns import Array, expand_ranges, valid_mask
from tidegate.operators.keys import key_hashes, shards_of
from tidegate.operators.settling import Settled
from tidegate.query.keys import OneForAll
from tidegate.query.nodes import AsOf, CountJoin, InOrder
from tidegate.query.predicates.tree import Side
from tidegate.query.schema import contiguous
from tidegate.watermark import END, Watermark

FAR_FEWER = 16
"""To search for a hash among others takes about as long as to look at so many of them."""


@dataclass(frozen=True, eq=False)
class KeyedRun:
    """Rows in the order of the ``hashes`` of their keys. Never changed.

    None of them counts from the watermark ``until`` on.
    """

    table: pa.Table
    hashes: Array
    until: Watermark

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return int(self.table.nbytes) + self.hashes.nbytes

    def of(self, touched: Array) -> pa.Table:
        """The rows of keys with some hashes, and maybe of others."""
        from tidegate.operators.keyed_loops import places_of_hashes

        if FAR_FEWER * len(touched) > len(self.hashes):
            return self.table.take(pa.array(places_of_hashes(self.hashes, touched)))
        touched = np.unique(touched)
        low = np.searchsorted(self.hashes, touched)
        _, places = expand_ranges(low, np.searchsorted(self.hashes, touched, side="right") - low)
        return self.table.take(pa.array(places))

    def in_shards(self, owned: Array) -> pa.Table:
        """The rows of keys in owned shards."""
        return self.table.filter(pa.array(owned[shards_of(self.hashes, SHARDS)]))


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of settled tuples: rows that have changed, and results in the order of time, made when asked for."""

    changed: pa.Table
    results: Iterable[pa.Table]


def owned_entries(settled: Settled, owned: Array | None) -> tuple[Array, ...]:
    """Of each input the settled entries in owned shards (None: all of them)."""
    return tuple(
        np.arange(len(each.rows)) if owned is None else np.flatnonzero(owned[each.shards]) for each in settled.entries
    )


def entries_with_keys(node: AsOf | CountJoin, settled: Settled, side: Side, chosen: Array | None = None) -> Array:
    """Some settled entries of an input, None for all, without those whose key is null: it equals nothing."""
    entries = settled.entries[side]
    chosen = np.arange(len(entries.rows)) if chosen is None else chosen
    if not isinstance(node.keys[side], OneForAll):
        for column in entries.columns:
            if column.null_count:
                chosen = chosen[valid_mask(column)[chosen]]
    return chosen


@dataclass(frozen=True)
class KeyedRows(ABC):
    """How one operator is computed: the layout of its rows, which have the columns ``key_names``, and what changes them."""

    node: InOrder

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of rows."""

    @property
    def key_names(self) -> list[str]:
        """Those of their keys."""
        return [f"k{position}" for position in range(len(self.node.key_schema))]

    @abstractmethod
    def handle(self, held: pa.Table, settled: Settled, entries: Sequence[Array]) -> Handled:
        """Handle some settled entries of each input, given the rows that count of their keys, and maybe of others."""

    @abstractmethod
    def current(self, rows: pa.Table, watermark: Watermark, whole: bool) -> pa.Table:
        """Of rows from old to new those that count at a watermark, or that say of older ones that they do not.

        ``whole`` says that there are no older rows of their keys, and that what is left out is gone.
        """

    def until(self, rows: pa.Table) -> Watermark:
        """The watermark from which on none of some rows counts, one or more."""
        return END

    def unfilled(self, tables: Iterable[pa.Table]) -> int:
        """How many windows are not full at the end of input, by all rows, from old to new."""
        return 0

    def hashes(self, rows: pa.Table) -> Array:
        """The hash of each row's key."""
        return key_hashes([contiguous(rows.column(name)) for name in self.key_names])

    def run(self, rows: pa.Table) -> KeyedRun:
        """Rows as a run; those of one key stay in their order."""
        hashes = self.hashes(rows)
        # Where nothing is left of a table it may have no chunks; what is taken has one.
        if not len(hashes) or not (hashes[1:] >= hashes[:-1]).all():
            order = np.argsort(hashes, kind="stable")
            rows, hashes = rows.take(pa.array(order)), hashes[order]
        return KeyedRun(self.kept(rows), hashes, self.until(rows))

    def joined(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Rows of several tables in whole columns."""
        return pa.concat_tables([self.schema.empty_table(), *tables]).combine_chunks()

    def kept(self, rows: pa.Table) -> pa.Table:
        """Rows as they are kept."""
        return rows.combine_chunks()

    def advance(self, runs: Sequence[KeyedRun], settled: Settled, entries: Sequence[Array]) -> Handled:
        """Handle some settled entries of each input; ``runs`` are from old to new."""
        held = self.current(self.touched(runs, settled, entries), settled.since, whole=False)
        return self.handle(held, settled, entries)

    def touched(self, runs: Sequence[KeyedRun], settled: Settled, entries: Sequence[Array]) -> pa.Table:
        """The rows of runs, from old to new, that are of the keys of some entries, and maybe others."""
        hashes = np.concatenate([each.hashes[own] for each, own in zip(settled.entries, entries, strict=True)])
        return self.joined([run.of(hashes) for run in runs])

    def merged(self, runs: Sequence[KeyedRun], watermark: Watermark, most: int) -> tuple[int, KeyedRun | None]:
        """How many of some runs, the last ones, are worth merging where there are more than ``most``, and what they become.

        None if nothing is left of them.
        """
        if len(runs) <= most:
            return 0, None
        chosen = worth_merging(runs[::-1], 0, most)[::-1]
        rows = self.current(self.joined([run.table for run in chosen]), watermark, whole=len(chosen) == len(runs))
        return len(chosen), self.run(rows) if rows.num_rows else None
