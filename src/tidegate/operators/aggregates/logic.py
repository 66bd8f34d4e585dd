"""What the columnar form of an aggregate does; one implementation a file beside this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]


class Logic(Protocol):
    """An aggregate as state columns, one row per group.

    ``take[i]`` is the row of contribution ``i`` (None: every row once, in order) and ``groups[i]`` its slot, one of
    ``size``. A tuple with many keys contributes several times without being copied. Every slot gets a contribution.
    """

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The state's columns."""
        ...

    def lift(self, rows: pa.Table, take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        """Reduce tuples to one state per slot."""
        ...

    def merge(self, states: Sequence[pa.Array], take: Array | None, groups: Array, size: int) -> list[pa.Array]:
        """Reduce states to one state per slot."""
        ...

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        """The aggregate's value for each state."""
        ...


def taken(array: pa.Array, take: Array | None) -> pa.Array:
    """The contributions of a column."""
    return array if take is None else array.take(pa.array(take))
