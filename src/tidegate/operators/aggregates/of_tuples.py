"""Aggregates that keep tuples: the first ones in some order, for first, last, collect, top_k, top_n and extremes of text.

The state of a slot is a list of places in a *pool*, the dictionary of the column, which holds every tuple once, however many
keys and windows it counts for. A pool is in the aggregate's own order, so places compare as tuples do: whatever is merged
compares whole numbers, and columns are compared only where pools are built or joined. Only what is emitted is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.aggregates import taken
from tidegate.operators.aggregates.of_lists import lists_of
from tidegate.operators.columns import Array, as_numpy, order_codes, sort_rows, valid_mask
from tidegate.query.aggregates import Ranked
from tidegate.query.schema import contiguous


@dataclass(frozen=True, slots=True)
class RankedLogic:
    """State: the list of leading tuples, in order, as many as the limit, with the columns that decide ties."""

    ranked: Ranked
    tuple_fields: tuple[pa.Field, ...]
    time: str

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field("tuples", pa.list_(pa.dictionary(pa.int32(), pa.struct(self.tuple_fields)))),)

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        columns = [contiguous(rows.column(field.name)) for field in self.tuple_fields]
        order = self._order(columns)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        ranks = rank if take is None else rank[take]
        if self.ranked.by is not None:
            present = valid_mask(columns[self._index(self.ranked.by)])
            kept = np.flatnonzero(present if take is None else present[take])
            ranks, groups = ranks[kept], groups[kept]
        leading, lengths = self._lead(ranks, groups, size)
        used, places = _renumbered(leading, len(order))
        rows_used = pa.array(order[used])
        pool = pa.StructArray.from_arrays([column.take(rows_used) for column in columns], fields=self.tuple_fields)
        return [_places_in(pool, places, lengths)]

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        places, lengths, pool = _parts(taken(states[0], take))
        return [_places_in(pool, *self._lead(places, np.repeat(groups, lengths), size))]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        places, lengths, pool = _parts(states[0])
        values = pool if self.ranked.take is None else pool.field(self._index(self.ranked.take))
        if not self.ranked.single:
            return lists_of(lengths, values.take(pa.array(places)))
        only = np.zeros(len(lengths), np.int64)
        only[lengths > 0] = places
        return values.take(pa.array(only, mask=lengths == 0))

    def joined(self, states: Sequence[pa.Array]) -> pa.Array:
        """States one after the other, over one pool of the tuples that they use."""
        pools: dict[tuple[int, int, int], list[int]] = {}
        parts = [_parts(state) for state in states]
        for number, (_, _, pool) in enumerate(parts):
            pools.setdefault(_identity(pool), []).append(number)
        found, kept, start = [np.empty(0, np.int64)] * len(parts), [], 0
        for numbers in pools.values():
            pool = parts[numbers[0]][2]
            places = np.concatenate([parts[number][0] for number in numbers])
            used, renumbered = _renumbered(places, len(pool))
            kept.append(pool.take(pa.array(used)))
            for number in numbers:
                count = len(parts[number][0])
                found[number], renumbered = renumbered[:count] + start, renumbered[count:]
            start += len(used)
        pool = pa.concat_arrays(kept)
        places, lengths = np.concatenate(found), np.concatenate([lengths for _, lengths, _ in parts])
        if len(kept) > 1:
            order = self._order([pool.field(at) for at in range(len(self.tuple_fields))])
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            pool, places = pool.take(pa.array(order)), rank[places]
        return _places_in(pool, places, lengths)

    def _lead(self, places: Array, groups: Array, size: int) -> tuple[Array, Array]:
        """The leading places of each slot, slot by slot, and how many each has."""
        from tidegate.operators.kernels import extreme_row

        if self.ranked.limit == 1:
            best = extreme_row(places, np.ones(len(places), np.bool_), groups, size, 1)
            found = best >= 0
            return places[best[found]], found.astype(np.int64)
        order = np.lexsort((places, groups))
        places, groups = places[order], groups[order]
        lengths = np.bincount(groups, minlength=size)
        if self.ranked.limit is not None and (lengths > self.ranked.limit).any():
            starts = np.cumsum(lengths) - lengths
            places = places[np.arange(len(places)) - starts[groups] < self.ranked.limit]
            lengths = np.minimum(lengths, self.ranked.limit)
        return places, lengths

    def _order(self, columns: Sequence[pa.Array]) -> Array:
        """Which tuple is first, second, and so on; those whose `by` is null may be anywhere."""
        if self.ranked.by is None:
            return sort_rows(as_numpy(columns[self._index(self.time)]), columns, self.ranked.descending)
        codes = order_codes(columns[self._index(self.ranked.by)])
        codes = codes if self.ranked.descending else ~codes
        if len(columns) == 1:
            return np.argsort(codes, kind="stable")
        return sort_rows(codes, [columns[self._index(self.time)], *columns])

    def _index(self, column: str) -> int:
        return [field.name for field in self.tuple_fields].index(column)


def is_pooled(kind: pa.DataType) -> bool:
    """Whether a column of this type is lists of places in a pool of tuples."""
    return bool(pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type))


def without_unused(states: pa.Array) -> pa.Array:
    """States over a pool of the tuples that they use."""
    places, lengths, pool = _parts(states)
    used, places = _renumbered(places, len(pool))
    return states if len(used) == len(pool) else _places_in(pool.take(pa.array(used)), places, lengths)


def concat_states(one: pa.Array, other: pa.Array) -> pa.Array:
    """States one after the other; those of tuples are over the same pool."""
    if not is_pooled(one.type):
        return pa.concat_arrays([one, other])
    # Arrow would compare the pools, tuple by tuple, and find those with NaN different.
    (places, lengths, pool), (others, more, _) = _parts(one), _parts(other)
    return _places_in(pool, np.concatenate([places, others]), np.concatenate([lengths, more]))


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table of no states."""
    none = np.empty(0, np.int64)
    return pa.table(
        [
            _places_in(pa.array([], field.type.value_type.value_type), none, none)
            if is_pooled(field.type)
            else pa.array([], field.type)
            for field in schema
        ],
        schema=schema,
    )


def _parts(states: pa.Array) -> tuple[Array, Array, pa.StructArray]:
    """The places of all states, how many each has, and the pool."""
    values = states.flatten()
    return np.asarray(values.indices).astype(np.int64), as_numpy(pc.list_value_length(states)), values.dictionary


def _places_in(pool: pa.StructArray, places: Array, lengths: Array) -> pa.ListArray:
    return lists_of(lengths, pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), pool))


def _renumbered(places: Array, bound: int) -> tuple[Array, Array]:
    """The places that occur, ascending, and each place as one of them."""
    occurs = np.zeros(bound, np.bool_)
    occurs[places] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[places]


def _identity(pool: pa.StructArray) -> tuple[int, int, int]:
    """What is equal for pools that are the same memory."""
    buffers = [buffer.address for buffer in pool.buffers() if buffer is not None and buffer.size]
    return (buffers[0] if buffers else 0), pool.offset, len(pool)
