"""The tuples of an Aggregate of bags until their last window has expired, and the bags of those that do.

Tuples are held as they come. Bags are put together when windows expire, from what is held then, so nothing has to be handed
over when the owner of a shard changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array, as_numpy, expand_ranges, in_time_order
from tidegate.operators.emit_windows import AT_ONCE, runs_of_windows
from tidegate.operators.keys import Grouped, distinct, group, key_codes, key_hashes, key_sets, shards_of, step_shards
from tidegate.operators.readers import BEFORE
from tidegate.operators.settling import WaitingTuples
from tidegate.query.bag_functions import Iterate
from tidegate.query.bags import Bags
from tidegate.query.nodes import BagAggregate
from tidegate.state.epochs import ALL, ShardSet, members
from tidegate.state.snapshot import SnapshotStore
from tidegate.watermark import END, START, Watermark

_FURTHEST = 2**62
"""More than the number of any window that holds a tuple."""


@dataclass(frozen=True, slots=True)
class KeyedTuples:
    """Tuples of one input and their keys: entry i is a key of tuple ``rows[i]`` and lies in the shard ``shards[i]``."""

    tuples: pa.Table
    times: Array
    rows: Array
    keys: tuple[pa.Array, ...]
    shards: Array


@dataclass(frozen=True, slots=True)
class Expiring:
    """The windows ``first`` to ``last``, which expire, and the tuples of each input in them; ``before`` is the watermark."""

    before: Watermark
    watermark: Watermark
    first: int
    last: int
    tuples: tuple[pa.Table, ...]
    times: tuple[Array, ...]
    shards: tuple[tuple[ShardSet, ...], ...] = ()
    """Of each input the shards of the step whose keys count, for each run of its tuples; all where there are none."""
    runs: tuple[Array, ...] = ()

    @property
    def size(self) -> int:
        """How many tuples they hold."""
        return sum(map(len, self.times))


@dataclass(frozen=True, slots=True)
class HeldCut:
    """The tuples that are held at a marker."""

    parts: tuple[WaitingTuples, ...]

    def write(self, store: SnapshotStore) -> None:
        """Put all of them into a snapshot; see `StateCut`."""
        for part in self.parts:
            store.put_table(part.tuples, part.side, shards=part.shards)


@dataclass(slots=True, eq=False)
class HeldBags:
    """The state of one Aggregate. `hold` may be called from any thread; `expire` once per segment, in order."""

    node: BagAggregate
    _parts: list[WaitingTuples] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        """How many tuples are held."""
        return sum(len(part.times) for part in tuple(self._parts))

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return sum(part.tuples.nbytes for part in tuple(self._parts))

    def hold(self, segment: int, side: int, tuples: pa.Table, shards: ShardSet = ALL) -> None:
        """Keep the tuples of a segment, none of which is late.

        Where a tuple with several keys goes to several cells, its keys in ``shards`` of the step count here.
        """
        if tuples.num_rows:
            times = as_numpy(tuples.column(self.node.inputs[side].time))
            part = WaitingTuples(segment, side, *in_time_order(tuples, times), shards)
            with self._lock:
                self._parts.append(part)

    def cut(self) -> HeldCut:
        """All that is held, between two segments."""
        with self._lock:
            return HeldCut(tuple(self._parts))

    def restore(self, store: SnapshotStore) -> None:
        """Begin with what a snapshot holds."""
        for chunk, tuples in store.tables():
            self.hold(BEFORE, chunk.side, tuples, chunk.shards)

    def expires(self, before: Watermark, watermark: Watermark) -> bool:
        """Whether some window ends as the watermark moves."""
        window = self.node.window
        return bool(window.first_open(before) < window.first_open(watermark))

    def expire(self, segment: int, before: Watermark, watermark: Watermark) -> Expiring | None:
        """Take out what expires after a segment; None for nothing."""
        window = self.node.window
        first, after = max(window.first_open(before), -_FURTHEST), min(window.first_open(watermark), _FURTHEST)
        # Where the first and last window that expire begin and end, and where the first begins that stays open.
        edges = [max(first * window.every, START), min(after * window.every, END), min(window.end(after - 1), END)]
        taken: list[list[WaitingTuples]] = [[] for _ in self.node.inputs]
        with self._lock:
            kept = []
            for part in self._parts:
                if part.segment > segment:
                    kept.append(part)
                    continue
                begin, gone, ready = np.searchsorted(part.times, edges).tolist()
                if begin < ready:
                    taken[part.side].append(part.rows(begin, ready))
                if gone < len(part.times):
                    kept.append(part.rows(gone, len(part.times)))
            self._parts = kept
        if not any(taken):
            return None
        tables = tuple(
            pa.concat_tables([part.tuples for part in parts]) if parts else upstream.schema.empty_table()
            for parts, upstream in zip(taken, self.node.inputs, strict=True)
        )
        times = tuple(np.concatenate([np.empty(0, np.int64), *(part.times for part in parts)]) for parts in taken)
        shards = tuple(tuple(part.shards for part in parts) for parts in taken)
        runs = tuple(np.repeat(np.arange(len(parts)), [len(part.times) for part in parts]) for parts in taken)
        return Expiring(before, watermark, first, after - 1, tables, times, shards, runs)

    def keyed(self, expiring: Expiring, shared: bool) -> tuple[KeyedTuples, ...]:
        """The keys of tuples that expire and, where they are ``shared`` among owners, the shards of those."""
        pairs = zip(expiring.tuples, expiring.times, strict=True)
        if self.ignores_keys and not shared and all(shards == ALL for side in expiring.shards for shards in side):
            return tuple(KeyedTuples(tuples, times, np.arange(len(times)), (), times) for tuples, times in pairs)
        return tuple(self._keyed(side, expiring) for side in range(len(expiring.tuples)))

    def bags(self, expiring: Expiring, keyed: Sequence[KeyedTuples], owned: Array | None) -> Iterator[Bags]:
        """The bags that expire, an owner's share, in the order of their windows and some at a time."""
        window = self.node.window
        if owned is not None:
            keyed = [owned_part(each, owned) for each in keyed]
        times = [each.times[each.rows] for each in keyed]
        every = np.concatenate(times)
        begin = np.maximum((every - window.size) // window.every + 1, expiring.first)
        end = np.minimum(every // window.every, expiring.last)
        sides = np.repeat(np.arange(len(keyed)), [len(each) for each in times])
        rows = np.concatenate([each.rows for each in keyed])
        columns = (
            []
            if self.ignores_keys
            else [pa.concat_arrays(parts) for parts in zip(*(each.keys for each in keyed), strict=True)]
        )
        codes, bound = key_codes(columns) if len(every) and columns else (np.zeros(len(every), np.int64), 1)
        tuples = tuple(each.tuples for each in keyed)
        for which, low, high in runs_of_windows(begin, end, AT_ONCE):
            lowest = np.maximum(begin[which], low)
            take, windows = expand_ranges(lowest, np.minimum(end[which], high) - lowest + 1)
            entries = which[take]
            # Windows may lie far apart: their ranks do not.
            seen, ranks = distinct(windows)
            grouped = group(ranks * bound + codes[entries], len(seen) * bound)
            starts = seen[grouped.ids // bound] * window.every
            first = pa.array(entries[grouped.first])
            keys = pa.table(
                [column.take(first) for column in columns], schema=self.node.key_schema if columns else pa.schema([])
            )
            sorted_ = [_sorted(np.flatnonzero(sides[entries] == side), grouped) for side in range(len(keyed))]
            yield Bags(
                keys,
                starts,
                starts + window.size,
                tuples,
                tuple(rows[entries[mine]] for mine in sorted_),
                tuple(grouped.groups[mine].astype(np.int64, copy=False) for mine in sorted_),
            )

    @property
    def ignores_keys(self) -> bool:
        """Whether it does not matter which tuples of a window share a bag; then bags have no keys."""
        function = self.node.function
        return not isinstance(function, Iterate) and function.per_tuple

    def _keyed(self, side: int, expiring: Expiring) -> KeyedTuples:
        tuples, times = expiring.tuples[side], expiring.times[side]
        kinds = self.node.key_schema.types
        if tuples.num_rows == 0:
            none = np.empty(0, np.int64)
            return KeyedTuples(tuples, times, none, tuple(pa.array([], kind) for kind in kinds), none)
        found = key_sets(self.node.keys[side], tuples)
        rows = np.arange(tuples.num_rows) if found.rows is None else found.rows
        columns = found.columns
        chosen = found.entries(*found.codes()) if found.may_repeat else None
        if chosen is not None:
            rows, columns = rows[chosen], tuple(column.take(pa.array(chosen)) for column in columns)
        typed = zip(columns, kinds, strict=True)
        columns = tuple(column if column.type == kind else column.cast(kind) for column, kind in typed)
        hashes = key_hashes(columns)
        if expiring.shards and any(shards != ALL for shards in expiring.shards[side]):
            counting = np.stack([members(shards) for shards in expiring.shards[side]])
            mine = np.flatnonzero(counting[expiring.runs[side][rows], step_shards(hashes)])
            rows, hashes = rows[mine], hashes[mine]
            columns = tuple(column.take(pa.array(mine)) for column in columns)
        return KeyedTuples(tuples, times, rows, columns, shards_of(hashes, SHARDS))


def _sorted(entries: Array, grouped: Grouped) -> Array:
    """Entries in the order of their groups."""
    groups = grouped.groups[entries]
    if (groups[1:] >= groups[:-1]).all():
        return entries
    # Small numbers are sorted in a fraction of the time.
    return entries[np.argsort(groups.astype(np.uint16) if grouped.size <= 1 << 16 else groups, kind="stable")]


def owned_part(keyed: KeyedTuples, owned: Array) -> KeyedTuples:
    """The keys that lie in owned shards."""
    mine = np.flatnonzero(owned[keyed.shards])
    columns = tuple(column.take(pa.array(mine)) for column in keyed.keys)
    return KeyedTuples(keyed.tuples, keyed.times, keyed.rows[mine], columns, keyed.shards[mine])
