"""Queries that hold as much state as they are given tuples, and those tuples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

import tidegate as tg
from benchmarks.inputs import START_US
from benchmarks.options import MOVED

TUPLES = 18_000_000
"""About 1 GB of windows."""
LOADED_ROWS = 1_000_000
STATE_SECONDS, WINDOW_SECONDS, STEP_SECONDS = 3_600, 60, 30
KEY_BYTES = 60
COLUMNS = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("key", pa.string()), ("side", pa.int64())])


@dataclass(frozen=True, slots=True)
class Kind:
    """A query; whether its tuples come from anywhere in the hour before, and whether their keys were there before."""

    query: Callable[[tg.Stream], tg.Stream]
    disorderly: bool = False
    known_keys: bool = False


def _windows(rows: tg.Stream) -> tg.Stream:
    return rows.key_by("key").window(f"{WINDOW_SECONDS} seconds").aggregate(n=tg.count())


def _join(rows: tg.Stream) -> tg.Stream:
    left, right = (rows.filter(nw.col("side") == side) for side in (0, 1))
    return left.join(right, on="key", within=f"{STATE_SECONDS} seconds")


def _apply(rows: tg.Stream) -> tg.Stream:
    def update(window: Any, row: Any) -> Any:
        seen = window.state["n"] + 1
        return tg.updated({"n": seen}, rows={"n": seen} if seen % 1_000 == 0 else None)

    state = {"n": pa.int64()}
    return rows.key_by("key").unbounded().apply(update=update, state=state, initial={"n": 0}, returns=state)


KINDS = dict(zip(MOVED, (Kind(_windows, disorderly=True), Kind(_join), Kind(_apply, known_keys=True)), strict=True))


class Tuples:
    """Draws batches of tuples with keys that nothing compresses; time moves on by half a window with each."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self._kind, self._random = kind, np.random.default_rng(seed)
        self._keys: list[pa.Array] = []
        self._now_us = START_US + STATE_SECONDS * 1_000_000

    def stored(self, rows: int, first: int, of: int) -> pa.Table:
        """A part of what is in state at first: so many tuples `of` all, from the `first` on."""
        span = STATE_SECONDS * 1_000_000
        width = span if self._kind.disorderly else span * rows // of
        begin = START_US if self._kind.disorderly else START_US + span * first // of
        keys = self._new_keys(rows)
        if self._kind.known_keys:
            self._keys.append(keys.slice(0, 20_000))
        return self._table(keys, begin, width)

    def next(self, rows: int) -> pa.Table:
        """A batch under load."""
        step, begin, width = STEP_SECONDS * 1_000_000, self._now_us, STEP_SECONDS * 1_000_000
        if self._kind.disorderly:
            begin, width = self._now_us - (STATE_SECONDS - STEP_SECONDS) * 1_000_000, STATE_SECONDS * 1_000_000
        self._now_us += step
        if not self._kind.known_keys:
            return self._table(self._new_keys(rows), begin, width)
        known = pa.concat_arrays(self._keys)
        return self._table(known.take(pa.array(self._random.integers(0, len(known), rows))), begin, width)

    def _new_keys(self, rows: int) -> pa.Array:
        letters = self._random.integers(32, 127, rows * KEY_BYTES, dtype=np.uint8)
        offsets = np.arange(0, (rows + 1) * KEY_BYTES, KEY_BYTES, dtype=np.int32)
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))

    def _table(self, keys: pa.Array, begin_us: int, width_us: int) -> pa.Table:
        times = begin_us + np.sort(self._random.integers(0, width_us, len(keys)))
        times[-1] = begin_us + width_us - 1  # so that each batch moves the watermark by as much
        sides = self._random.integers(0, 2, len(keys))
        return pa.table([pa.array(times).cast(COLUMNS.field("ts").type), keys, pa.array(sides)], schema=COLUMNS)
