"""How the tuples of a join that has no keys are routed to cells that share no memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import Array
from tidegate.operators.exchange import Routing
from tidegate.operators.keys import key_hashes
from tidegate.query.predicates.tree import Side
from tidegate.query.schema import contiguous


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells in rows and columns: a left tuple goes to all cells of a row, a right one to all of a column.

    So each pair meets in exactly one cell, and each cell tries its share of all pairs (StreamCloud §IV.A.b, fig. 4).

    >>> Grid.of(6), Grid.of(7)
    (Grid(rows=2, columns=3), Grid(rows=1, columns=7))
    """

    rows: int
    columns: int

    @classmethod
    def of(cls, cells: int) -> Grid:
        """The most square grid of so many cells: there fewest copies travel."""
        rows = next(rows for rows in range(math.isqrt(cells), 0, -1) if cells % rows == 0)
        return cls(rows, cells // rows)

    def cells(self, side: Side, buckets: Array) -> Array:
        """The cells of tuples by their buckets, a row of cells for each tuple."""
        if side == 0:
            return (buckets % self.rows)[:, None] * self.columns + np.arange(self.columns)
        return (buckets % self.columns)[:, None] + self.columns * np.arange(self.rows)


@dataclass(frozen=True, slots=True)
class RouteOnGrid:
    """By what a tuple holds, so that a task that is run again routes the same tuples to the same cells."""

    side: Side
    grid: Grid

    def __call__(self, tuples: pa.Table) -> Routing:
        # Lists and structs are left out; the event time is always there.
        columns = [contiguous(column) for column in tuples.columns if not pa.types.is_nested(column.type)]
        buckets = (key_hashes(columns) >> np.uint64(1)).astype(np.int64)
        cells = self.grid.cells(self.side, buckets)
        return Routing(np.repeat(np.arange(len(cells)), cells.shape[1]), cells.ravel())
