"""The cells of the matrix: aggregates × keys × windows. They are fixed here, whatever they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

import numpy as np
import polars as pl
import pyarrow as pa

import tidegate as tg

SECOND = 1_000_000
SPAN_SECONDS = 3_600
INT_KEYS, STRING_KEYS, WORDS, MOST_WORDS = 1_000, 10_000, 5_000, 12


@dataclass(frozen=True, slots=True)
class AggregateForms:
    """An aggregate in the words of each engine; ``native`` is Spark's SQL."""

    ours: tg.Aggregate
    sql: str
    polars: pl.Expr
    native: str


@dataclass(frozen=True, slots=True)
class WindowForm:
    """A window of ``size`` every ``every`` microseconds, or a session with a gap of ``size``."""

    size: int
    every: int = 0

    @property
    def is_session(self) -> bool:
        return self.every == 0


AGGREGATES: Mapping[str, AggregateForms] = MappingProxyType(
    {
        "count": AggregateForms(tg.count(), "count(*)", pl.len(), "count(*)"),
        "sum": AggregateForms(tg.sum("x"), "sum(x)", pl.col("x").sum(), "sum(x)"),
        "mean": AggregateForms(tg.mean("f"), "avg(f)", pl.col("f").mean(), "avg(f)"),
        "min": AggregateForms(tg.min("x"), "min(x)", pl.col("x").min(), "min(x)"),
        "max of text": AggregateForms(tg.max("s"), "max(s)", pl.col("s").max(), "max(s)"),
        "first": AggregateForms(tg.first("s"), "arg_min(s, ts)", pl.col("s").sort_by("ts").first(), "min_by(s, ts)"),
        "last": AggregateForms(tg.last("x"), "arg_max(x, ts)", pl.col("x").sort_by("ts").last(), "max_by(x, ts)"),
        "collect": AggregateForms(
            tg.collect("x"), "list(x order by ts)", pl.col("x").sort_by("ts"), "sort_array(collect_list((ts, x))).x"
        ),
        "top_k": AggregateForms(
            tg.top_k("f", 3),
            "max(f, 3)",
            pl.col("f").top_k(3).sort(descending=True),
            "slice(sort_array(collect_list(f), false), 1, 3)",
        ),
        "distinct": AggregateForms(
            tg.distinct("x"), "count(distinct x)", pl.col("x").n_unique(), "size(collect_set(x))"
        ),
    }
)
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"one key": ("k",), "string key": ("name",), "two keys": ("k", "name"), "many keys": ("word",)}
)
WINDOWS: Mapping[str, WindowForm] = MappingProxyType(
    {
        "tumbling": WindowForm(60 * SECOND, 60 * SECOND),
        "sliding": WindowForm(60 * SECOND, 10 * SECOND),
        "long sliding": WindowForm(600 * SECOND, 10 * SECOND),
        "session": WindowForm(2 * SECOND),
    }
)
FEWER_TUPLES = {"long sliding": 10, "many keys": 4}
"""A tuple in 60 windows, or with many keys, is many rows for those who copy it: such inputs are so many times smaller."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One aggregate over one kind of key and of window."""

    aggregate: str
    keys: str
    window: str

    @property
    def name(self) -> str:
        return f"{self.aggregate} · {self.keys} · {self.window}"

    @property
    def columns(self) -> tuple[str, ...]:
        """What is compared."""
        return (*KEYS[self.keys], "window_start", "value")

    def tuples(self, most: int) -> int:
        """How many tuples it is run on."""
        return most // FEWER_TUPLES.get(self.window, 1) // FEWER_TUPLES.get(self.keys, 1)


CELLS = tuple(MatrixCell(*names) for names in product(AGGREGATES, KEYS, WINDOWS))


def generated(tuples: int, seed: int) -> pa.Table:
    """Tuples in the order of time, no two at the same; keys are Zipf, texts and words repeat."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.choice(SPAN_SECONDS * SECOND, tuples, replace=False))
    popular = (draw.zipf(1.2, tuples) - 1) % STRING_KEYS
    lengths = draw.integers(1, MOST_WORDS + 1, tuples)
    vocabulary = np.array([f"word{number}" for number in range(WORDS)])
    words = vocabulary[(draw.zipf(1.2, int(lengths.sum())) - 1) % WORDS]
    names = np.array([f"customer-{number}" for number in range(STRING_KEYS)])
    texts = np.array([f"a text of some length, number {number}" for number in range(50_000)])
    return pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us")),
            "k": pa.array(draw.integers(0, INT_KEYS, tuples)),
            "name": pa.array(names[popular]),
            "words": pa.ListArray.from_arrays(
                np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), pa.array(words)
            ),
            "x": pa.array(draw.integers(0, 1_000, tuples)),
            "f": pa.array(draw.integers(0, 1_000_000, tuples) / 8),
            "s": pa.array(texts[draw.integers(0, len(texts), tuples)]),
        }
    )
