"""Exact numbers of distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.aggregates.logic import Array, taken
from tidegate.operators.columns import canonical_floats, identity_codes, numbers
from tidegate.query.schema import whole


@dataclass(frozen=True, slots=True)
class DistinctLogic:
    """State: the list of values seen. It grows with their number: this is an exact count."""

    column: str
    kind: pa.DataType

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field("values", pa.list_(self.kind)),)

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return [self._lists(taken(whole(rows.column(self.column)), take), groups, size)]

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        lists = taken(states[0], take)
        owners = np.repeat(groups, numbers(pc.list_value_length(lists), pa.int64()))
        return [self._lists(lists.flatten(), owners, size)]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return pc.list_value_length(states[0]).cast(pa.int64())

    def _lists(self, values: pa.Array, groups: Array, size: int) -> pa.Array:
        present = np.flatnonzero(np.asarray(values.is_valid()))
        values, groups = canonical_floats(values.take(pa.array(present))), groups[present]
        codes, bound = identity_codes(values)
        _, first = np.unique(groups.astype(np.int64) * bound + codes, return_index=True)
        lengths = np.bincount(groups[first], minlength=size)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(first)))
