"""The first tuples of each slot in canonical order or by a column: first, last, collect and top_k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.aggregates.logic import Array, taken
from tidegate.operators.columns import as_numpy, list_offsets, order_codes, valid_mask
from tidegate.query.aggregates import Ranked
from tidegate.query.schema import contiguous


@dataclass(frozen=True, slots=True)
class RankedLogic:
    """State: the list of leading tuples, in order; as many as the limit, with the columns that decide ties."""

    ranked: Ranked
    tuple_fields: tuple[pa.Field, ...]
    time: str

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field("tuples", pa.list_(pa.struct(self.tuple_fields))),)

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        columns = [taken(contiguous(rows.column(field.name)), take) for field in self.tuple_fields]
        return [self._lead(columns, groups, size)]

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        lists = taken(states[0], take)
        owners = np.repeat(groups, as_numpy(pc.list_value_length(lists)))
        tuples = lists.flatten()
        return [self._lead([tuples.field(i) for i in range(len(self.tuple_fields))], owners, size)]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        tuples = states[0].flatten()
        position = [field.name for field in self.tuple_fields].index(self.ranked.take)
        values = tuples.field(position)
        if self.ranked.single:
            return values
        lengths = as_numpy(pc.list_value_length(states[0]))
        return pa.ListArray.from_arrays(pa.array(list_offsets(lengths).astype(np.int32)), values)

    def _lead(self, columns: list[pa.Array], groups: Array, size: int) -> pa.Array:
        """One list per slot with its first tuples in order."""
        names = [field.name for field in self.tuple_fields]
        if self.ranked.by is not None:
            kept = np.flatnonzero(valid_mask(columns[names.index(self.ranked.by)]))
            columns, groups = [column.take(pa.array(kept)) for column in columns], groups[kept]
        elif self.ranked.limit == 1:
            columns, groups = self._only_extreme_time(columns, groups, size)
        order = np.lexsort([*reversed(self._order(columns, names)), groups])
        ordered = groups[order]
        starts = np.searchsorted(ordered, np.arange(size))
        if self.ranked.limit is not None:
            order = order[np.arange(len(order)) - starts[ordered] < self.ranked.limit]
        lengths = np.bincount(groups[order], minlength=size)
        offsets = list_offsets(lengths).astype(np.int32)
        tuples = [column.take(pa.array(order)) for column in columns]
        return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(tuples, fields=self.tuple_fields))

    def _order(self, columns: list[pa.Array], names: list[str]) -> list[Array]:
        """Sort keys, the most significant first."""
        keys = []
        if self.ranked.by is not None:
            keys.append(-dense(order_codes(columns[names.index(self.ranked.by)])))
        if self.time in names:
            keys.append(order_codes(columns[names.index(self.time)]))
            keys.extend(order_codes(column) for column in columns)
        return [-dense(key) for key in keys] if self.ranked.descending else keys

    def _only_extreme_time(self, columns: list[pa.Array], groups: Array, size: int) -> tuple[list[pa.Array], Array]:
        """Drop tuples that the event time alone rules out, before the costly comparison of whole tuples."""
        from tidegate.operators.kernels import extreme_row

        times = as_numpy(columns[[field.name for field in self.tuple_fields].index(self.time)])
        everywhere = np.ones(len(times), np.bool_)
        best = extreme_row(times, everywhere, groups, size, -1 if self.ranked.descending else 1)
        kept = np.flatnonzero(times == times[best[groups]])
        return [column.take(pa.array(kept)) for column in columns], groups[kept]


def dense(codes: Array) -> Array:
    """Codes from 0 on in the same order, which can be negated without overflow."""
    return np.unique(codes, return_inverse=True)[1]
