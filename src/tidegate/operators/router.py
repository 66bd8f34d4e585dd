"""How tuples are routed to cells before an exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidegate.operators.grouping import key_hashes
from tidegate.operators.key_sets import key_sets_of
from tidegate.operators.windowed_aggregate import SHARDS
from tidegate.query.keys import Keys

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Routing:
    """Entry ``i``: tuple ``rows[i]`` goes to the cell ``cells[i]``; if ``primary[i]``, that cell counts it if it is late.

    A tuple goes to a cell once, and exactly one of its cells is its primary cell. One without any entry goes nowhere; the
    caller has it counted.
    """

    rows: Array
    cells: Array
    primary: Array


class Router(Protocol):
    """Routes the tuples of one input to cells; a value that is shipped to workers."""

    def __call__(self, tuples: pa.Table) -> Routing: ...


def cells_of(hashes: Array, cells: int) -> Array:
    """The cell of each key by its hash; the shard inside the cell is the hash modulo `SHARDS`."""
    made: Array = (hashes % np.uint64(cells * SHARDS)).astype(np.int64) // SHARDS
    return made


@dataclass(frozen=True, slots=True)
class RouteByKeys:
    """A tuple goes to every cell that owns a shard of one of its keys; its primary cell is that of its first key."""

    keys: Keys
    cells: int

    def __call__(self, tuples: pa.Table) -> Routing:
        found = key_sets_of(self.keys, tuples)
        cells = cells_of(key_hashes(found.columns), self.cells) if len(found) else np.empty(0, np.int64)
        if found.rows is None:
            return Routing(np.arange(len(cells)), cells, np.ones(len(cells), np.bool_))
        rows = found.rows
        # Entries are in the order of rows; of those that share row and cell the first stays.
        _, first = np.unique(rows * self.cells + cells, return_index=True)
        kept = np.sort(first)
        primary = np.concatenate([[True], rows[1:] != rows[:-1]])[: len(rows)]
        return Routing(rows[kept], cells[kept], primary[kept])
