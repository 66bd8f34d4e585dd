"""Tuples held back until they are settled, and then put in canonical order with their keys and shards.

Operators whose functions see one tuple after the other get settled tuples only (τ before the watermark), in canonical
order: by τ, then input, then columns from left to right. So the cut of a stream into segments cannot show.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array, as_numpy, in_time_order, sort_rows
from tidegate.operators.keys import key_hashes, key_sets, shards_of, step_shards
from tidegate.query.nodes import InOrder
from tidegate.query.schema import contiguous
from tidegate.state.epochs import ALL, ShardSet, members
from tidegate.watermark import START, Watermark


@dataclass(frozen=True, slots=True)
class WaitingTuples:
    """Tuples of one input from one segment, in non-decreasing τ; their keys in some shards of the step count."""

    segment: int
    side: int
    tuples: pa.Table
    times: Array
    shards: ShardSet = ALL

    def rows(self, low: int, high: int) -> WaitingTuples:
        """Some of them."""
        tuples, times = self.tuples.slice(low, high - low), self.times[low:high]
        return WaitingTuples(self.segment, self.side, tuples, times, self.shards)


@dataclass(frozen=True, slots=True)
class Entries:
    """The keys of settled tuples of one input: entry i is a key of tuple ``rows[i]``; entries are in the order of tuples."""

    rows: Array
    columns: tuple[pa.Array, ...]
    hashes: Array
    shards: Array


@dataclass(frozen=True, slots=True)
class Settled:
    """What one advance of the watermark settles, from ``since`` on.

    ``tuples[i]`` and ``times[i]`` are those of input i in canonical order.
    ``turn`` counts advances from 0, ``newest`` is the latest time of a tuple that was settled so far.
    """

    turn: int
    since: Watermark
    watermark: Watermark
    newest: Watermark
    tuples: tuple[pa.Table, ...]
    times: tuple[Array, ...]
    entries: tuple[Entries, ...]

    @property
    def places(self) -> tuple[Array, ...]:
        """Of each input the position of its tuples among those of all; worked out when it is asked for."""
        return _places(self.times)

    @property
    def size(self) -> int:
        """How many keys the tuples have in all."""
        return sum(len(entries.rows) for entries in self.entries)


@dataclass(slots=True, eq=False)
class Settling:
    """The tuples of one operator that wait. `hold` may be called from any thread; `settle` once per segment, in order.

    ``reached`` is the watermark of the last `settle`, ``newest`` the latest time of a tuple that it, or one before it, has
    settled.
    """

    node: InOrder
    shards: int
    reached: Watermark = START
    newest: Watermark = START
    _parts: list[WaitingTuples] = field(default_factory=list)
    _turn: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        """How many tuples wait."""
        return sum(len(part.times) for part in tuple(self._parts))

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return sum(part.tuples.nbytes for part in tuple(self._parts))

    @property
    def turn(self) -> int:
        """The turn that the next `settle` gives."""
        return self._turn

    def held(self) -> tuple[list[WaitingTuples], Watermark]:
        """The tuples that wait, and the latest time of one that was settled."""
        with self._lock:
            return list(self._parts), self.newest

    def hold(self, segment: int, side: int, tuples: pa.Table, time: str, shards: ShardSet = ALL) -> None:
        """Keep the tuples of a segment, none of which is late.

        Where a tuple with several keys goes to several cells, its keys in ``shards`` of the step count here.
        """
        if tuples.num_rows:
            part = WaitingTuples(segment, side, *in_time_order(tuples, as_numpy(tuples.column(time))), shards)
            with self._lock:
                self._parts.append(part)

    def settle(self, segment: int, watermark: Watermark) -> Settled:
        """Take out what is settled after a segment, by a watermark."""
        taken: list[list[WaitingTuples]] = [[] for _ in self.node.inputs]
        with self._lock:
            kept = []
            for part in self._parts:
                ready = int(np.searchsorted(part.times, watermark)) if part.segment <= segment else 0
                if ready:
                    taken[part.side].append(part.rows(0, ready))
                if ready < len(part.times):
                    kept.append(part.rows(ready, len(part.times)))
            self._parts = kept
            turn, self._turn = self._turn, self._turn + 1
        ordered = [_ordered(parts, source.schema) for parts, source in zip(taken, self.node.inputs, strict=True)]
        tuples, times = tuple(one for one, _, _ in ordered), tuple(when for _, when, _ in ordered)
        entries = tuple(
            self._entries(side, table, parts, part_of)
            for side, ((table, _, part_of), parts) in enumerate(zip(ordered, taken, strict=True))
        )
        since, self.reached = self.reached, watermark
        self.newest = max([self.newest, *(int(when[-1]) for when in times if len(when))])
        return Settled(turn, since, watermark, self.newest, tuples, times, entries)

    def _entries(self, side: int, tuples: pa.Table, parts: Sequence[WaitingTuples], part_of: Array) -> Entries:
        kinds = self.node.key_schema.types
        if tuples.num_rows == 0:
            none = np.empty(0, np.int64)
            return Entries(none, tuple(pa.array([], kind) for kind in kinds), none.view(np.uint64), none)
        found = key_sets(self.node.keys[side], tuples)
        columns = found.columns
        rows = np.arange(tuples.num_rows) if found.rows is None else found.rows
        chosen = found.entries(*found.codes()) if found.may_repeat else None
        if chosen is not None:
            rows, columns = rows[chosen], tuple(column.take(pa.array(chosen)) for column in columns)
        hashes = key_hashes(columns)
        if any(part.shards != ALL for part in parts):
            counting = np.stack([members(part.shards) for part in parts])
            mine = np.flatnonzero(counting[part_of[rows], step_shards(hashes)])
            rows, hashes = rows[mine], hashes[mine]
            columns = tuple(column.take(pa.array(mine)) for column in columns)
        typed = zip(columns, kinds, strict=True)
        plain = tuple(column if column.type == kind else column.cast(kind) for column, kind in typed)
        return Entries(rows, plain, hashes, shards_of(hashes, self.shards))


def _ordered(parts: Sequence[WaitingTuples], schema: pa.Schema) -> tuple[pa.Table, Array, Array]:
    """Parts as one table in canonical order, the times of its rows, and which part each row comes from."""
    if not parts:
        none = np.empty(0, np.int64)
        return schema.empty_table(), none, none
    tuples = parts[0].tuples
    if len(parts) > 1:
        tuples = pa.concat_tables([part.tuples for part in parts]).combine_chunks()
    times = np.concatenate([part.times for part in parts])
    part_of = np.repeat(np.arange(len(parts)), [len(part.times) for part in parts])
    if (times[1:] > times[:-1]).all():
        return tuples, times, part_of
    order = sort_rows(times, [contiguous(column) for column in tuples.columns])
    if (order[1:] < order[:-1]).any():
        tuples, times, part_of = tuples.take(pa.array(order)).combine_chunks(), times[order], part_of[order]
    return tuples, times, part_of


def _places(times: tuple[Array, ...]) -> tuple[Array, ...]:
    """Where the tuples of each input stand when all are put in order by time, then input."""
    if sum(1 for each in times if len(each)) <= 1:
        return tuple(np.arange(len(each)) for each in times)
    order = np.argsort(np.concatenate(times), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return tuple(np.split(place, np.cumsum([len(each) for each in times])[:-1]))
