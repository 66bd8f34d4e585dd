"""Least and greatest values of any ordered type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.operators.aggregates.logic import Array, taken
from tidegate.operators.columns import order_codes, valid_mask
from tidegate.query.schema import contiguous


@dataclass(frozen=True, slots=True)
class ExtremeLogic:
    """State: the value that leads so far, null for none."""

    column: str
    sign: int
    kind: pa.DataType

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field("value", self.kind),)

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return self.merge([contiguous(rows.column(self.column))], take, groups, size)

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import extreme_row

        values = taken(states[0], take)
        best = extreme_row(order_codes(values), valid_mask(values), groups, size, self.sign)
        return [values.take(pa.array(best, mask=best < 0))]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0]
