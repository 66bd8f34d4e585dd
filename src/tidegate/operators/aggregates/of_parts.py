"""Aggregates whose value is a state, and aggregates over such values: a key's state in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.aggregates import Logic, taken
from tidegate.operators.aggregates.of_tuples import RankedLogic
from tidegate.operators.columns import Array, as_numpy
from tidegate.query.schema import contiguous


@dataclass(frozen=True, slots=True)
class PartialLogic:
    """An aggregate that gives its state, as a struct, in place of its value."""

    whole: Logic

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return self.whole.fields

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return self.whole.lift(rows, take, groups, size)

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return self.whole.merge(states, take, groups, size)

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return pa.StructArray.from_arrays(list(states), fields=list(self.fields))


@dataclass(frozen=True, slots=True)
class MergedLogic:
    """An aggregate over the states of parts, each a struct in a column."""

    column: str
    whole: Logic

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return self.whole.fields

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return self.whole.merge(contiguous(rows.column(self.column)).flatten(), take, groups, size)

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return self.whole.merge(states, take, groups, size)

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return self.whole.finish(states)


@dataclass(frozen=True, slots=True)
class MergedTuples(RankedLogic):
    """The first tuples among those that parts have kept, which are lists of tuples in a column."""

    column: str

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        lists = taken(contiguous(rows.column(self.column)), take)
        tuples = pa.Table.from_struct_array(lists.flatten())
        owners = np.repeat(groups, as_numpy(pc.list_value_length(lists)))
        return RankedLogic.lift(self, tuples, None, owners, size)
