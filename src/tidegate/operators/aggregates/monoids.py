"""A user's monoid: its merge runs on whole columns, in rounds that halve the contributions of each slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.operators.aggregates.logic import Array, taken
from tidegate.query.aggregates import Monoid
from tidegate.query.schema import contiguous


@dataclass(frozen=True, slots=True)
class MonoidLogic:
    """State: the columns the user declared."""

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
