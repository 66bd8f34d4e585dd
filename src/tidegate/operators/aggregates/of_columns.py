"""Aggregates whose state is a few columns: counts, sums and means, least and greatest values, users' monoids.

Integers are added as two halves of 32 bits: neither can overflow in any order of addition, so whether a sum fits int64
is decided once, on the result, and never depends on how tuples were batched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import DataError
from tidegate.operators.aggregates import taken
from tidegate.operators.columns import Array, as_numpy, order_codes, valid_mask
from tidegate.query.aggregates import Monoid
from tidegate.query.schema import contiguous


class AdditiveLogic(ABC):
    """State: columns that are added up."""

    __slots__ = ()

    @abstractmethod
    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        """The aggregate's value for each state."""

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import add_up

        return [pa.array(add_up(as_numpy(taken(state, take), state.type), groups, size)) for state in states]

    def over_stretches(self, states: Sequence[pa.Array], starts: Array, stops: Array) -> pa.Array:
        from tidegate.operators.stretches import sum_stretches

        return self.finish([pa.array(sum_stretches(as_numpy(state, state.type), starts, stops)) for state in states])


@dataclass(frozen=True, slots=True)
class CountLogic(AdditiveLogic):
    """State: how many."""

    fields: tuple[pa.Field, ...] = (pa.field("count", pa.int64()),)

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return [pa.array(np.bincount(groups, minlength=size))]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0]


@dataclass(frozen=True, slots=True)
class IntegerSum(AdditiveLogic):
    """State: the high and low halves of the sum, and how many values were not null."""

    column: str
    mean: bool
    fields: tuple[pa.Field, ...] = tuple(pa.field(name, pa.int64()) for name in ("high", "low", "present"))

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import sum_halves

        values = taken(contiguous(rows.column(self.column)), take)
        halves = sum_halves(as_numpy(values), valid_mask(values), groups, size)
        return [pa.array(half) for half in halves]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        high, low, present = (as_numpy(state) for state in states)
        absent = pa.array(present == 0)
        upper = high + (low >> 32)
        if self.mean:
            total = upper.astype(np.float64) * 2.0**32 + (low & 0xFFFFFFFF)
            fits = (upper >= -(2**31)) & (upper < 2**31)
            exact = (np.where(fits, upper, 0) << 32) | (low & 0xFFFFFFFF)
            mean = np.where(fits, exact.astype(np.float64), total) / np.maximum(present, 1)
            return pc.if_else(absent, pa.scalar(None, pa.float64()), pa.array(mean))
        if ((upper < -(2**31)) | (upper >= 2**31)).any():
            raise DataError(
                f"a sum of '{self.column}' does not fit int64; cast the column to float64 to allow rounding instead"
            )
        return pc.if_else(absent, pa.scalar(None, pa.int64()), pa.array((upper << 32) | (low & 0xFFFFFFFF)))


@dataclass(frozen=True, slots=True)
class FloatSum(AdditiveLogic):
    """State: the sum, and how many values were not null."""

    column: str
    mean: bool
    fields: tuple[pa.Field, ...] = (pa.field("total", pa.float64()), pa.field("present", pa.int64()))

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import sum_floats

        values = taken(contiguous(rows.column(self.column)), take)
        sums = sum_floats(as_numpy(values, pa.float64()), valid_mask(values), groups, size)
        return [pa.array(part) for part in sums]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        total, present = as_numpy(states[0], pa.float64()), as_numpy(states[1])
        value = total / np.maximum(present, 1) if self.mean else total
        return pc.if_else(pa.array(present == 0), pa.scalar(None, pa.float64()), pa.array(value))


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

    def over_stretches(self, states: Sequence[pa.Array], starts: Array, stops: Array) -> pa.Array:
        from tidegate.operators.stretches import extreme_in_stretches

        (values,) = states
        best = extreme_in_stretches(order_codes(values), valid_mask(values), starts, stops, self.sign)
        return values.take(pa.array(best, mask=best < 0))


@dataclass(frozen=True, slots=True)
class MonoidLogic:
    """State: the columns the user declared. ``merge`` runs on whole columns, in rounds that halve what each slot has."""

    monoid: Monoid

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return tuple(self.monoid.state)

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        lifted = self.monoid.lift_rows(rows.select(list(self.monoid.reads)))
        return self.merge([contiguous(column) for column in lifted.columns], take, groups, size)

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        order = np.argsort(groups, kind="stable")
        table = pa.table([taken(state, take).take(pa.array(order)) for state in states], schema=self.monoid.state)
        owners = groups[order]
        while len(owners) > size:
            # Neighbours of one slot merge in pairs; the position within the slot decides who is left of whom.
            position = np.arange(len(owners)) - np.searchsorted(owners, owners)
            right = np.flatnonzero(position % 2 == 1)
            merged = self.monoid.merged(table.take(pa.array(right - 1)), table.take(pa.array(right)))
            alone = np.flatnonzero((position % 2 == 0) & ~np.isin(np.arange(len(owners)) + 1, right))
            table = pa.concat_tables([merged, table.take(pa.array(alone))])
            owners = np.concatenate([owners[right], owners[alone]])
            order = np.argsort(owners, kind="stable")
            table, owners = table.take(pa.array(order)), owners[order]
        return [contiguous(column) for column in table.columns]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return self.monoid.finished(pa.table(list(states), schema=self.monoid.state))
