"""Aggregates that keep tuples: the first ones in some order, for first, last, collect, top_k, top_n and extremes of text.

The state of a slot is a list of places in a *pool*, the dictionary of the column, which holds every tuple once, however many
keys and windows it counts for. A pool is in the aggregate's own order, so places compare as tuples do: whatever is merged
compares whole numbers, and columns are compared only where pools are built or joined. Only what is emitted is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.aggregates import taken
from tidegate.operators.aggregates.of_lists import lists_of
from tidegate.operators.columns import Array, as_numpy, expand_ranges, order_codes, rough_codes, sort_rows, valid_mask
from tidegate.query.aggregates import Ranked
from tidegate.query.schema import contiguous, is_text

MOST_COMPARED = 16
"""Where a slot keeps more tuples than this, they are sorted without a look at which of them may lead."""


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
        contributed = np.arange(rows.num_rows) if take is None else take
        kept = self._candidates(columns, contributed, groups, size)
        contributed, groups = contributed[kept], groups[kept]
        used, contributed = _renumbered(contributed, rows.num_rows)
        columns = columns if len(used) == rows.num_rows else [column.take(pa.array(used)) for column in columns]
        pool, ranks = self._pool(columns, contributed, self.tuple_fields)
        return [_places_in(pool, *self._lead(ranks, groups, size, len(pool)))]

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        places, lengths, pool = _parts(taken(states[0], take))
        return [_places_in(pool, *self._lead(places, np.repeat(groups, lengths), size, len(pool)))]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        places, lengths, pool = _parts(states[0])
        values = pool if self.ranked.take is None else pool.field(self.ranked.take)
        if not self.ranked.single:
            return lists_of(lengths, values.take(pa.array(places)))
        only = np.zeros(len(lengths), np.int64)
        only[lengths > 0] = places
        return values.take(pa.array(only, mask=lengths == 0))

    def joined(self, states: Sequence[pa.Array], emitted: Collection[str] = ()) -> pa.Array:
        """States one after the other, over one pool of the tuples that they use.

        Where columns are ``emitted``, states will be joined with no others: of tuples those columns alone are kept.
        """
        pools: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        parts = [_parts(state) for state in states]
        for number, (_, _, pool) in enumerate(parts):
            pools.setdefault(_identity(pool), []).append(number)
        found, kept, start = [np.empty(0, np.int64)] * len(parts), [], 0
        for numbers in pools.values():
            used, places = _worth_keeping(
                np.concatenate([parts[number][0] for number in numbers]), parts[numbers[0]][2]
            )
            kept.append(used.flatten())
            for number in numbers:
                count = len(parts[number][0])
                found[number], places = places[:count] + start, places[count:]
            start += len(used)
        columns = [pa.chunked_array(chunks) for chunks in zip(*kept, strict=True)]
        fields = [field for field in self.tuple_fields if field.name in emitted] or self.tuple_fields
        pool, places = self._pool(columns, np.concatenate(found), fields)
        return _places_in(pool, places, np.concatenate([lengths for _, lengths, _ in parts]))

    def _candidates(self, columns: Sequence[pa.Array], rows: Array, groups: Array, size: int) -> Array:
        """Which contributions of rows may lead their slot: what is cheap to leave out is not sorted, and not copied."""
        from tidegate.operators.leading import may_lead

        by, limit = self.ranked.by, self.ranked.limit
        column = columns[self._index(self.time if by is None else by)]
        kept = np.arange(len(rows))
        if by is not None and column.null_count:
            kept = np.flatnonzero(valid_mask(column)[rows])
        if limit is None or limit > MOST_COMPARED:
            return kept
        codes = rough_codes(column)
        codes = codes if (by is None) != self.ranked.descending else ~codes
        return kept[may_lead(codes, rows[kept], groups[kept], size, limit)]

    def _lead(self, places: Array, groups: Array, size: int, bound: int) -> tuple[Array, Array]:
        """The leading places, below a bound, of each slot, slot by slot, and how many each has."""
        from tidegate.operators.kernels import extreme_row, sort_slots

        if self.ranked.limit == 1:
            best = extreme_row(places, np.ones(len(places), np.bool_), groups, size, 1)
            found = best >= 0
            return places[best[found]], found.astype(np.int64)
        if not (places[1:] >= places[:-1]).all():
            few = bound > 8 * len(places)
            order = np.argsort(places, kind="stable") if few else sort_slots(places, bound)[0]
            places, groups = places[order], groups[order]
        order, starts = sort_slots(groups, size)
        places, lengths = places[order], np.diff(starts)
        if self.ranked.limit is not None and (lengths > self.ranked.limit).any():
            kept = np.minimum(lengths, self.ranked.limit)
            places, lengths = places[expand_ranges(starts[:-1], kept)[1]], kept
        return places, lengths

    def _pool(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], places: Array, fields: Sequence[pa.Field]
    ) -> tuple[pa.StructArray, Array]:
        """Some columns of tuples as a pool in order, and where places of them are in it."""
        order = self._order(columns)
        kept = [columns[self._index(field.name)] for field in fields]
        if order is not None:
            kept = [column.take(pa.array(order)) for column in kept]
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            places = rank[places]
        return pa.StructArray.from_arrays([contiguous(column) for column in kept], fields=list(fields)), places

    def _order(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Array | None:
        """Which tuple is first, second, and so on, None if they are in order; those whose `by` is null may be anywhere."""
        descending = self.ranked.descending
        if self.ranked.by is None:
            times = as_numpy(columns[self._index(self.time)])
            in_order = not descending and bool((times[1:] > times[:-1]).all())
            return None if in_order else sort_rows(times, columns, descending)
        by = contiguous(columns[self._index(self.ranked.by)])
        if len(columns) == 1:
            return sort_rows(rough_codes(by), [by] if is_text(by.type) else (), not descending)
        codes = order_codes(by)
        return sort_rows(codes if descending else ~codes, [columns[self._index(self.time)], *columns])

    def _index(self, column: str) -> int:
        return [field.name for field in self.tuple_fields].index(column)


class LeadingTuple(RankedLogic):
    """State: the tuple that leads, of which one column is the value; a list of none or one."""

    __slots__ = ()

    def over_stretches(self, states: Sequence[pa.Array], starts: Array, stops: Array) -> pa.Array:
        from tidegate.operators.stretches import extreme_in_stretches

        found, lengths, pool = _parts(states[0])
        valid = lengths > 0
        places = np.zeros(len(lengths), np.int64)
        places[valid] = found
        best = extreme_in_stretches(places, valid, starts, stops, 1)
        return pool.field(self.ranked.take).take(pa.array(places[best], mask=best < 0))


def is_pooled(kind: pa.DataType) -> bool:
    """Whether a column of this type is lists of places in a pool of tuples."""
    return bool(pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type))


def without_unused(states: pa.Array) -> pa.Array:
    """States over a pool most of whose tuples they use."""
    places, lengths, pool = _parts(states)
    kept, places = _worth_keeping(places, pool)
    return states if kept is pool else _places_in(kept, places, lengths)


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
    return lists_of(lengths, pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), pool, safe=False))


def _worth_keeping(places: Array, pool: pa.StructArray) -> tuple[pa.StructArray, Array]:
    """The tuples of a pool that are at some places, and where those are among them; the pool itself if they are most."""
    used, renumbered = _renumbered(places, len(pool))
    return (pool, places) if 2 * len(used) > len(pool) else (pool.take(pa.array(used)), renumbered)


def _renumbered(places: Array, bound: int) -> tuple[Array, Array]:
    """The places that occur, ascending, and each place as one of them."""
    occurs = np.zeros(bound, np.bool_)
    occurs[places] = True
    if occurs.all():
        return np.arange(bound), places
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[places]


def _identity(pool: pa.StructArray) -> tuple[tuple[int, ...], ...]:
    """What is equal for pools that are the same memory in every column: two views of one stream may share some."""
    found = []
    for column in map(pool.field, range(pool.type.num_fields)):
        buffers = (0 if buffer is None or buffer.size == 0 else buffer.address for buffer in column.buffers())
        found.append((column.offset, *buffers))
    return ((pool.offset, len(pool)), *found)
