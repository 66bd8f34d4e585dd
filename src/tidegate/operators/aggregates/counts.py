"""The number of tuples per slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.operators.aggregates.logic import Array, taken
from tidegate.operators.columns import as_numpy


@dataclass(frozen=True, slots=True)
class CountLogic:
    """State: how many."""

    fields: tuple[pa.Field, ...] = (pa.field("count", pa.int64()),)

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        return [pa.array(np.bincount(groups, minlength=size))]

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        from tidegate.operators.kernels import sum_integers

        return [pa.array(sum_integers(as_numpy(taken(states[0], take)), groups, size))]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0]
