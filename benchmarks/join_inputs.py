"""Inputs of the join benchmarks: two sorted streams, and how many pairs of them are near."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]

STEP_US = 1_000
LEFT = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64()), ("y", pa.float64())])
RIGHT = pa.schema(
    [("ts", pa.timestamp("us")), ("a", pa.int64()), ("b", pa.float64()), ("c", pa.float64()), ("d", pa.bool_())]
)
KEYED = pa.schema([("ts", pa.timestamp("us")), ("key", pa.int64()), ("value", pa.float64())])


@dataclass(frozen=True, slots=True)
class Sides:
    """Two streams of so many tuples each, one a millisecond, and windows that hold ``window`` tuples of a side."""

    left: pa.Table
    right: pa.Table
    window: int

    @property
    def within_us(self) -> int:
        return self.window * STEP_US

    @property
    def tuples(self) -> int:
        return self.left.num_rows + self.right.num_rows

    def few(self, rows: int) -> Sides:
        """The first tuples of both, to warm up with."""
        return Sides(self.left.slice(0, rows), self.right.slice(0, rows), self.window)

    @property
    def near_pairs(self) -> int:
        """How many pairs are at most the window apart: what a join of all pairs has to compare."""
        left, right = (np.asarray(side.column("ts").cast(pa.int64())) for side in (self.left, self.right))
        low = np.searchsorted(right, left - self.within_us, "left")
        high = np.searchsorted(right, left + self.within_us, "right")
        return int((high - low).sum())


def scalejoin_sides(tuples: int, window: int, seed: int) -> Sides:
    """The benchmark of STRETCH §8.3: x, y, a and b uniform from 1 to 10,000."""
    random = np.random.default_rng(seed)

    def side(schema: pa.Schema, offset: int) -> pa.Table:
        columns = [pa.array(np.arange(tuples) * STEP_US + offset).cast(schema.field("ts").type)]
        columns += [pa.array(random.integers(1, 10_001, tuples)), pa.array(random.uniform(1, 10_000, tuples))]
        if len(schema) > 3:
            columns += [pa.array(random.random(tuples)), pa.array(random.random(tuples) < 0.5)]
        return pa.table(columns, schema=schema)

    return Sides(side(LEFT, 0), side(RIGHT, STEP_US // 2), window)


@cache
def keyed_sides(tuples: int, window: int, keys: int, exponent: float, seed: int) -> Sides:
    """Keys with Zipf's distribution of an exponent, 0 being uniform."""
    random = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, keys + 1) ** exponent
    names = random.permutation(keys)

    def side(offset: int) -> pa.Table:
        chosen = names[random.choice(keys, tuples, p=shares / shares.sum())]
        times = pa.array(np.arange(tuples) * STEP_US + offset).cast(KEYED.field("ts").type)
        return pa.table([times, pa.array(chosen), pa.array(random.random(tuples))], schema=KEYED)

    return Sides(side(0), side(STEP_US // 2), window)


def batches(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    """A table in batches."""
    return iter(table.combine_chunks().to_batches(rows))
