"""Bags, what the multi-output Aggregate works on: all tuples of one key in one window, of all its inputs.

"On the Semantic Overlap of Operators in Stream Processing Engines" (Gulisano, Margara, Papatriantafilou, 2024) shows that an
Aggregate which is a function of such bags carries the semantics of Map, Filter and Join. Its f_O is a `BagFunction` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Bags:
    """Bags side by side: bag i is that of the key ``keys[i]`` in the window from ``starts[i]`` to before ``ends[i]``.

    They are in the order of their windows.
    ``tuples[side]`` are tuples of an input. Entry j of a side says that its tuple ``rows[side][j]`` is in the bag
    ``bags[side][j]``; entries are in the order of bags. A tuple is not copied for its keys and windows.
    """

    keys: pa.Table
    starts: Array
    ends: Array
    tuples: tuple[pa.Table, ...]
    rows: tuple[Array, ...]
    bags: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.starts)

    def entries(self, side: int = 0) -> pa.Table:
        """The tuple of each entry of a side."""
        tuples, rows = self.tuples[side], self.rows[side]
        if len(rows) == tuples.num_rows and (rows[1:] > rows[:-1]).all():
            return tuples
        return tuples.take(pa.array(rows))

    def sizes(self, side: int = 0) -> Array:
        """How many entries of a side each bag has."""
        return np.bincount(self.bags[side], minlength=len(self))

    def take(self, chosen: Array) -> Bags:
        """Some of the bags, by a mask."""
        number = np.cumsum(chosen) - 1
        kept = [chosen[bags] for bags in self.bags]
        return Bags(
            self.keys.filter(pa.array(chosen)),
            self.starts[chosen],
            self.ends[chosen],
            self.tuples,
            tuple(rows[keep] for rows, keep in zip(self.rows, kept, strict=True)),
            tuple(number[bags[keep]] for bags, keep in zip(self.bags, kept, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class BagRows:
    """The rows that a function gives for bags, any number for each: the columns without the event time, and whose they are.

    Row i belongs to the bag ``of[i]`` and so carries the end of its window − 1 µs.
    """

    rows: pa.Table
    of: Array


class BagFunction(Protocol):
    """What an Aggregate computes of bags (the papers' f_O). How bags are cut into calls must not matter.

    Where ``per_tuple`` it is a union over single tuples, so it does not matter either which tuples of a window share a bag;
    then it may get bags without keys.
    """

    @property
    def per_tuple(self) -> bool: ...

    def __call__(self, bags: Bags) -> BagRows: ...
