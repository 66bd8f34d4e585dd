"""How the tuples of a join are routed to cells that share no memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import hashes, mix
from tidegate.operators.exchange import Routing, cells_of
from tidegate.query.predicates.tree import Side
from tidegate.query.schema import contiguous

Array = np.ndarray[Any, Any]


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
        buckets = (_hash(tuples, tuples.column_names) >> np.uint64(1)).astype(np.int64)
        cells = self.grid.cells(self.side, buckets)
        return Routing(np.repeat(np.arange(len(cells)), cells.shape[1]), cells.ravel())


@dataclass(frozen=True, slots=True)
class RouteByEqualKeys:
    """By the hash of the keys, alike on both sides; a tuple with a null among them meets none."""

    columns: tuple[str, ...]
    cells: int

    def __call__(self, tuples: pa.Table) -> Routing:
        cells = cells_of(_hash(tuples, list(self.columns)), self.cells)
        return Routing(np.arange(len(cells)), cells)


def _hash(tuples: pa.Table, columns: list[str]) -> Array:
    """A hash of some columns, the same for equal numbers of any width; lists and structs are left out."""
    mixed = np.zeros(tuples.num_rows, np.uint64)
    for name in columns:
        column = contiguous(tuples.column(name))
        if pa.types.is_nested(column.type):
            continue
        with np.errstate(over="ignore"):
            mixed = mix(mixed * np.uint64(31) + hashes(column))
    return mixed
