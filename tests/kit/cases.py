"""Generated queries, data, batch boundaries and mishaps, and the features each case has."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.spark_driver import Batch, faults

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [("ts", TIME), ("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))]
)
# Window shapes: (size, every) in microseconds; times lie in a range that holds several of each.
WINDOWS = {
    "tumbling": (4_000, 4_000),
    "sliding": (6_000, 2_000),
    "two slices an advance": (5_000, 2_000),
    "one step": (1, 1),
    "long": (30_000, 1_000),
}


def _pairs(batch: pa.RecordBatch) -> pa.ListArray:
    """Every tag beside the next one, dictionary-encoded, as in the paircount of STRETCH."""
    rows = [list(pairwise(tags)) if tags else None for tags in batch.column("tags").to_pylist()]
    flat = [pair for row in rows for pair in row or ()]
    sides = [pa.array([pair[i] for pair in flat], pa.string()).dictionary_encode() for i in (0, 1)]
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row or ()))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(sides, ["a", "b"]))


def _parity(batch: pa.RecordBatch) -> pa.ListArray:
    """One key, or none where n is null."""
    values = batch.column("n").to_pylist()
    return pa.array([None if n is None else [n % 2] for n in values], pa.list_(pa.int64()))


KEYS: dict[str, Any] = {
    "none": None,
    "one column": "k",
    "float column": "x",
    "composite": ("k", "n"),
    "each": tg.each("tags", name="tag"),
    "each, repeated": tg.each("tags", name="tag", distinct=False),
    "function, composite": tg.keys(_pairs, columns={"a": pa.string(), "b": pa.string()}),
    "function, pruned": tg.keys(_parity, columns={"odd": pa.int64()}, reads=["n"]),
}
SPREAD = tg.monoid(
    "n",
    state={"low": pa.int64(), "high": pa.int64()},
    lift=lambda n: {"low": n, "high": n},
    merge=lambda a, b: {
        "low": pc.min_element_wise(a["low"], b["low"]),
        "high": pc.max_element_wise(a["high"], b["high"]),
    },
    finish=lambda low, high: pc.subtract(high, low),
    returns=pa.int64(),
    name="spread",
)
AGGREGATES: dict[str, Any] = {
    "count": tg.count(),
    "sum of integers": tg.sum("n"),
    "sum of floats": tg.sum("x"),
    "mean of integers": tg.mean("n"),
    "mean of floats": tg.mean("x"),
    "min": tg.min("x"),
    "max": tg.max("k"),
    "min of integers": tg.min("n"),
    "first": tg.first("n"),
    "last": tg.last("k"),
    "collect": tg.collect("x"),
    "top_k": tg.top_k("n", 2),
    "top_k, taking": tg.top_k("x", 3, take="k"),
    "distinct": tg.distinct("x"),
    "monoid": SPREAD,
}
LATENESS = {"none": 0, "some": "3 ms"}


def _doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    twice = pa.Table.from_batches([batch, batch]).combine_chunks()
    return twice.to_batches()[0] if twice.num_rows else batch


PREFIXES: dict[str, Any] = {
    "nothing": lambda s: s,
    "filter": lambda s: s.filter(nw.col("n") > -2),
    "two filters": lambda s: s.filter(~nw.col("n").is_null()).filter(nw.col("n") < 3),
    "columns": lambda s: s.with_columns(n=nw.col("n") * 2),
    "select": lambda s: s.select("ts", "k", "n", "x", "tags"),
    "batches": lambda s: s.map_batches(_doubled),
    "batches and filter": lambda s: s.map_batches(_doubled).filter(nw.col("n") != 1),
    "list made late": lambda s: s.with_columns(tags=nw.col("k").str.split("b")),
}
SUFFIXES: dict[str, Any] = {
    "nothing": lambda s: s,
    "filter": lambda s: s.filter(nw.col("window_start") != nw.col("window_end")),
    "columns": lambda s: s.with_columns(c=nw.lit(1)),
}


@dataclass(frozen=True)
class Features:
    """What a case is about; the rest of it is drawn freely."""

    key: str
    window: str
    aggregates: tuple[str, ...]
    lateness: str
    boundary: str


@dataclass(frozen=True)
class Case:
    """One generated case."""

    query: tg.Stream
    keys: list[str]
    batches: list[Batch]
    no_data_after: list[bool]
    cells: int
    instances: int
    features: Features


_FLOATS = st.one_of(
    st.none(), st.integers(-16, 16).map(lambda i: i / 8), st.sampled_from([-0.0, float("nan"), float("inf")])
)
_ROW = st.tuples(
    st.one_of(st.none(), st.sampled_from(["a", "b", "ab", "", "é"])),
    st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**62, -(2**62)])),
    _FLOATS,
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c"])), max_size=4)),
)
BOUNDARIES = {"one batch": (1, 1), "few": (2, 3), "many": (4, 8)}


@st.composite
def tables(draw: st.DrawFn, rows: int, base: int) -> pa.Table:
    """Rows whose times mostly move forward, with ties, and now and then go far back."""
    times, now = [], base
    for _ in range(rows):
        now += draw(st.sampled_from([0, 0, 1, 500, 1_000, 2_000, 7_000]))
        times.append(max(now - draw(st.sampled_from([0, 0, 0, 1, 1_000, 9_000, 40_000])), base - 5_000))
    cells = draw(st.lists(_ROW, min_size=rows, max_size=rows))
    columns = [pa.array(times, pa.int64()).cast(TIME)]
    columns += [pa.array([cell[i] for cell in cells], SCHEMA.types[i + 1]) for i in range(4)]
    return pa.table(columns, schema=SCHEMA)


def any_features() -> st.SearchStrategy[Features]:
    """Any combination of features."""
    return st.builds(
        Features,
        st.sampled_from(sorted(KEYS)),
        st.sampled_from(sorted(WINDOWS)),
        st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True).map(tuple),
        st.sampled_from(sorted(LATENESS)),
        st.sampled_from(sorted(BOUNDARIES)),
    )


@st.composite
def cases(draw: st.DrawFn, features: Features) -> Case:
    """A query with data, cut into batches and partitions."""
    prefix, suffix = draw(st.sampled_from(sorted(PREFIXES))), draw(st.sampled_from(sorted(SUFFIXES)))
    sources = draw(st.sampled_from([1, 1, 1, 2]))
    # Times before 1970 too: Spark knows no watermark there.
    base = draw(st.sampled_from([1_700_000_000_000_000, 1_700_000_000_000_000, -20_000, 3]))
    disorder = draw(st.sampled_from([0, 0, 999, 5_000, 100_000]))

    streams = [tg.stream(SCHEMA, time="ts", disorder=f"{disorder}us", name=f"s{i}") for i in range(sources)]
    merged = streams[0].union(streams[1]) if sources == 2 else streams[0]
    names = KEYS[features.key] if isinstance(KEYS[features.key], tuple) else (KEYS[features.key],)
    size, every = (f"{length}us" for length in WINDOWS[features.window])
    keyed = PREFIXES[prefix](merged) if names == (None,) else PREFIXES[prefix](merged).key_by(*names)
    windowed = keyed.window(size, every=every, lateness=LATENESS[features.lateness])
    query = windowed.aggregate(**{f"a{i}": AGGREGATES[name] for i, name in enumerate(features.aggregates)})
    keys = [name for name in query.node.key_schema.names if name in query.schema.names]

    batches = []
    for _ in range(draw(st.integers(*BOUNDARIES[features.boundary]))):
        parts: dict[str, list[pa.Table]] = {}
        for stream in streams:
            table = draw(tables(draw(st.integers(0, 8)), base))
            cut = draw(st.integers(0, table.num_rows))
            parts[stream.node.name] = [table.slice(0, cut), table.slice(cut)]
        base += draw(st.sampled_from([0, 1_000, 6_000]))
        asked = draw(st.sampled_from([(), (), (1,), (2,), (3,), (7,), (4, 2)]))
        batches.append(Batch(parts, draw(st.sampled_from([1, 1, 1, 2, 3])), asked, **draw(faults())))
    return Case(
        SUFFIXES[suffix](query),
        keys,
        batches,
        draw(st.lists(st.booleans(), min_size=len(batches), max_size=len(batches))),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        features,
    )


LARGE = ("distinct", "collect", "monoid")
"""The generated aggregates whose keys are split."""


def split_features() -> st.SearchStrategy[Features]:
    """Aggregates that are split, some of them beside others that alone would not be; windows are not revised."""

    def split(features: Features, large: str, alone: bool) -> Features:
        chosen = (large,) if alone else tuple(dict.fromkeys((*features.aggregates, large)))
        return Features(features.key, features.window, chosen, "none", features.boundary)

    return st.builds(split, any_features(), st.sampled_from(LARGE), st.booleans())
