"""Inputs of the join benchmarks: two sorted streams, and how many pairs of them are near."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.real_trades import read_trades
from examples.inputs.trades import trades

Array = np.ndarray[Any, Any]

STEP_US = 1_000
HEDGE_US = 30_000_000
DENSER = 20
"""By how much generated trades are moved together: to 1,000 a second, in bursts, as at an exchange."""
LEFT = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64()), ("y", pa.float64())])
RIGHT = pa.schema(
    [("ts", pa.timestamp("us")), ("a", pa.int64()), ("b", pa.float64()), ("c", pa.float64()), ("d", pa.bool_())]
)
TRADES = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("id", pa.string()), ("price", pa.float64()), ("average", pa.float64())]
)
KEYED = pa.schema([("ts", pa.timestamp("us")), ("key", pa.int64()), ("value", pa.float64())])


@dataclass(frozen=True, slots=True)
class Sides:
    """Two streams in the order of time, as many tuples each, and how near in time their pairs are."""

    left: pa.Table
    right: pa.Table
    within_us: int
    window: int
    """How many tuples of a side a full window holds."""

    @property
    def tuples(self) -> int:
        return self.left.num_rows + self.right.num_rows

    def few(self, rows: int) -> Sides:
        """The first tuples of both, to warm up with."""
        return Sides(self.left.slice(0, rows), self.right.slice(0, rows), self.within_us, self.window)

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

    return Sides(side(LEFT, 0), side(RIGHT, STEP_US // 2), window * STEP_US, window)


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

    return Sides(side(0), side(STEP_US // 2), window * STEP_US, window)


def trade_sides(data: Path | None, rows: int | None, seed: int) -> Sides:
    """Trades, to be joined with themselves (STRETCH §8.6): real ones from a folder, else generated.

    ``nd`` is for the bare loop alone: a query works it out. Trades come in bursts, so the window's size is the median.
    """
    if data is not None:
        made = read_trades(data)
    else:
        made = pq.read_table(trades(rows=rows or 1, seed=seed))
        times = np.array(made.column("ts").cast(pa.int64()))
        times = times[0] + (times - times[0]) // DENSER
        made = made.set_column(0, "ts", pa.array(times).cast(TRADES.field("ts").type))
    made = made.select(TRADES.names).cast(TRADES).slice(0, rows)
    distance = pc.divide(pc.subtract(made.column("price"), made.column("average")), made.column("average"))
    moves = made.append_column("nd", distance)
    times = np.array(made.column("ts").cast(pa.int64()))
    held = np.arange(len(times)) - np.searchsorted(times, times - HEDGE_US)
    return Sides(moves, moves, HEDGE_US, int(np.median(held)))


def batches(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    """A table in batches."""
    return iter(table.combine_chunks().to_batches(rows))
