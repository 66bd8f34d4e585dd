"""Aggregates whose state is a list of values for each slot: distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.aggregates import WindowSlots, taken
from tidegate.operators.columns import (
    Array,
    as_numpy,
    canonical_floats,
    identity_codes,
    is_first,
    list_offsets,
    order_codes,
    valid_mask,
)
from tidegate.operators.keys import group
from tidegate.query.schema import contiguous

HASHED = 65_536
"""Past so many values, numbers are sorted by their digits: a hash table that does not fit the cache takes far longer."""


@dataclass(frozen=True, slots=True)
class DistinctLogic:
    """State: the list of values seen. It grows with their number: this is an exact count."""

    column: str
    kind: pa.DataType

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field("values", pa.list_(self.kind)),)

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return [self._lists(taken(contiguous(rows.column(self.column)), take), groups, size)]

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        lists = taken(states[0], take)
        owners = np.repeat(groups, as_numpy(pc.list_value_length(lists)))
        return [self._lists(lists.flatten(), owners, size)]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return pc.list_value_length(states[0]).cast(pa.int64())

    def over(self, states: Sequence[pa.Array], slots: WindowSlots) -> pa.Array:
        """How many values differ in each window: a value counts from the first window it is in to the last one.

        States that follow one another repeat values, so of each only the windows count that none before it has covered.
        They are a stretch of the key's slots: up by one where it begins, down behind its end, and the running sum is the
        answer. It costs a sort of the values held, however many windows they are in.
        """
        in_order = np.argsort(slots.begin, kind="stable")
        lists = taken(states[0], in_order)
        owners = np.repeat(in_order, as_numpy(pc.list_value_length(lists)))
        codes, bound = _codes(lists.flatten())
        keys = slots.keys[owners]
        codes = keys * bound + codes
        order = np.argsort(codes, kind="stable")
        codes, keys, owners = codes[order], keys[order], owners[order]
        begin, end = slots.begin[owners], slots.end[owners]
        changes = is_first(codes)
        windows = int(slots.slot_windows.max()) + 1
        # The last window covered so far of each value; values are kept apart by steps that no window reaches.
        steps = np.cumsum(changes) * (windows + 1)
        covered = np.maximum.accumulate(end + steps) - steps
        begin[1:] = np.where(changes[1:], begin[1:], np.maximum(begin[1:], covered[:-1] + 1))
        fresh = begin <= end
        begin, end, keys = begin[fresh], end[fresh], keys[fresh]
        places = slots.slot_keys * windows + slots.slot_windows
        by_key = np.argsort(places)
        places = places[by_key]
        up = np.bincount(np.searchsorted(places, keys * windows + begin), minlength=slots.size + 1)
        down = np.bincount(np.searchsorted(places, keys * windows + end) + 1, minlength=slots.size + 1)
        counts = np.empty(slots.size, np.int64)
        counts[by_key] = np.cumsum(up - down)[:-1]
        return pa.array(counts)

    def _lists(self, values: pa.Array, groups: Array, size: int) -> pa.Array:
        if values.null_count:
            present = np.flatnonzero(valid_mask(values))
            values, groups = values.take(pa.array(present)), groups[present]
        values = canonical_floats(values)
        codes, bound = _codes(values)
        first = group(groups.astype(np.int64) * bound + codes, size * bound).first
        return lists_of(np.bincount(groups[first], minlength=size), values.take(pa.array(first)))


def lists_of(lengths: Array, values: pa.Array) -> pa.ListArray:
    """Lists of some lengths, one after the other."""
    return pa.ListArray.from_arrays(pa.array(list_offsets(lengths).astype(np.int32)), values)


def _codes(values: pa.Array) -> tuple[Array, int]:
    """Integers that are equal where values are, none of which is null, and a bound above them."""
    kind = values.type
    if len(values) > HASHED and (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)):
        from tidegate.operators.kernels import dense_ranks

        codes = order_codes(values)
        span = int(codes.max()) - int(codes.min())
        if span.bit_length() < 63:
            return dense_ranks(codes - codes.min(), span.bit_length())
    return identity_codes(values)
