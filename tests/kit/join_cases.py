"""Generated joins: sides, nearness, keys and predicates, with data cut into batches."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA, tables
from tests.kit.spark_driver import Batch, faults
from tidegate.errors import SlowWarning
from tidegate.query.nodes import JoinHow

# Each compiles, so there are few; between them they have every kind of column, branch and comparison.
PREDICATES: dict[str, Any] = {
    "none": None,
    "theta": lambda l, r: (l.n < r.n) | (l.x == r.x),
    "text": lambda l, r: l.k != r.k and not l.k == "a",  # noqa: SIM201 - has a not
    "band of whole numbers": lambda l, r: abs(l.n - r.n) <= 1,
    "band of floats": lambda l, r: r.x - 0.5 <= l.x <= r.x + 0.5 and l.k != "b",
    "division": lambda l, r: (l.x / r.x >= 1) | ~(l.n != r.n),
    "may fail": lambda l, r: l.n % r.n == 0 if r.n != 1 else l.x == None,  # noqa: E711 - asks for null
    "interpreted": lambda l, r: l.k is not None and l.k.startswith("a"),
    "expression": (nw.col("n") - nw.col("m") < 2) & (nw.col("x") >= nw.col("y")),
    "expression on columns": nw.col("k").str.starts_with("a") & ~nw.col("y").is_null(),
}
KEYS: dict[str, Any] = {
    "none": None,
    "text": "k",
    "float": "x",
    "composite": ["k", "n"],
    "other names": [("n", "m")],
}
NEAR: dict[str, dict[str, Any]] = {
    "at once": {"within": 0},
    "near": {"within": "1 ms"},
    "far": {"within": "6 ms"},
    "tumbling": {"window": "4 ms"},
    "two slices an advance": {"window": "5 ms", "every": "2 ms"},
}
SIDES = ("two streams", "one stream", "one stream, filtered", "two unions")
HOWS: tuple[JoinHow, ...] = ("inner", "inner", "left", "right", "full", "semi", "anti")
AFTER = ("nothing", "aggregate", "aggregate before", "join again")


@dataclass(frozen=True)
class JoinCase:
    """One generated case."""

    query: tg.Stream
    batches: list[dict[str, list[pa.Table]]]
    features: tuple[str, ...]


@dataclass(frozen=True)
class SparkJoinCase:
    """One generated case as Spark runs it; ``remembers`` if a worker may keep the decoded state of several cells."""

    query: tg.Stream
    batches: list[Batch]
    no_data_after: list[bool]
    cells: int
    instances: int
    remembers: bool
    features: tuple[str, ...]


def query_of(sides: str, near: str, keys: str, predicate: str, how: JoinHow, after: str, disorder: int) -> tg.Stream:
    """A join with some features."""
    one, two = (tg.stream(SCHEMA, time="ts", disorder=f"{disorder}us", name=name) for name in ("one", "two"))
    left, right = {
        "two streams": (one, two),
        "one stream": (one, one),
        "one stream, filtered": (one.filter(nw.col("n") > -2), one),
        "two unions": (one.union(two), two.union(one.filter(nw.col("n") > 0))),
    }[sides]
    right = right.with_columns(m=nw.col("n"), y=nw.col("x"))
    if after == "aggregate before":
        left = left.key_by("k", "n").window("3ms").aggregate(x=tg.max("x"), name="before").select("ts", "k", "n", "x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)
        made = left.join(right, on=KEYS[keys], where=PREDICATES[predicate], how=how, name="joined", **NEAR[near])
    if after == "aggregate":
        return made.key_by("k").window("7ms", every="3500us").aggregate(pairs=tg.count(), most=tg.max("x"))
    if after == "join again":
        return made.select("ts", "n", "k").join(one, on="n", within="500us", where=lambda l, r: l.k != r.k)
    return made


@st.composite
def join_cases(
    draw: st.DrawFn,
    *,
    in_steps: bool = False,
    hows: Sequence[JoinHow] = HOWS,
    sides: Sequence[str] = SIDES,
    keys: Sequence[str] = tuple(KEYS),
    predicates: Sequence[str] = tuple(PREDICATES),
    after: Sequence[str] = (*AFTER, "nothing"),
) -> JoinCase:
    """Any join over any data; ``in_steps`` if results of a region meet sources at a watermark that is known."""
    pools = (sides, NEAR, keys, predicates, hows, after)
    features = tuple(draw(st.sampled_from(sorted(pool))) for pool in pools)
    # Where a source meets results of a region, which watermark they meet at depends on timing: there nothing is late.
    mixed = features[-1] in ("aggregate before", "join again") and not in_steps
    query = query_of(*features, 10**9 if mixed else draw(st.sampled_from([0, 0, 999, 5_000, 100_000])))
    base = draw(st.sampled_from([1_700_000_000_000_000, -20_000, 3]))
    names = ["one"] if features[0].startswith("one") else ["one", "two"]
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        batches.append({name: [draw(tables(draw(st.integers(0, 8)), base))] for name in names})
        base += draw(st.sampled_from([0, 1_000, 6_000]))
    return JoinCase(query, batches, features)


@st.composite
def kept_pair_cases(draw: st.DrawFn) -> JoinCase:
    """Joins in which tuples leave alone, or once for all their pairs, over sorted streams of many small batches.

    A tuple that has been in a pair is kept for some batches more; a run that begins between has to know of the pair.
    """
    hows: Sequence[JoinHow] = ("left", "right", "full", "semi", "anti")
    features = (
        "two streams",
        "far",
        "text",
        draw(st.sampled_from(["none", "theta"])),
        draw(st.sampled_from(hows)),
        "nothing",
    )
    batches: list[dict[str, list[pa.Table]]] = []
    for number in range(draw(st.integers(8, 10))):
        counts = {name: draw(st.integers(0, 2)) for name in ("one", "two")}
        batches.append({name: [draw(sorted_tables(count, 1_000 * number, 999))] for name, count in counts.items()})
    return JoinCase(query_of(*features, 0), batches, features)


@st.composite
def sorted_tables(draw: st.DrawFn, rows: int, base: int, spread: int) -> pa.Table:
    """Rows of two keys, in the order of their times."""
    times = sorted(base + draw(st.integers(0, spread)) for _ in range(rows))
    keys = [draw(st.sampled_from(["a", "b"])) for _ in times]
    numbers = [draw(st.integers(0, 2)) for _ in times]
    columns = [times, keys, numbers, [float(number) for number in numbers], [[]] * rows]
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


@st.composite
def spark_join_cases(draw: st.DrawFn, **pools: Sequence[Any]) -> SparkJoinCase:
    """Any join over any data, cut into partitions, in batches of which some are tried again."""
    case = draw(join_cases(in_steps=True, **pools))
    batches = [
        Batch(
            {name: [part for table in given for part in cut(draw, table)] for name, given in batch.items()},
            draw(st.sampled_from([1, 1, 1, 2, 3])),
            tuple(draw(st.lists(st.integers(1, 4), max_size=2))) if draw(st.booleans()) else (),
            **draw(faults()),
        )
        for batch in case.batches
    ]
    return SparkJoinCase(
        case.query,
        batches,
        [draw(st.booleans()) for _ in batches],
        draw(st.sampled_from([1, 2, 3, 4, 6])),
        draw(st.integers(1, 3)),
        draw(st.booleans()),
        case.features,
    )


def cut(draw: st.DrawFn, table: pa.Table) -> list[pa.Table]:
    """One table as it is, or as two partitions."""
    at = draw(st.integers(0, table.num_rows))
    return [table.slice(0, at), table.slice(at)] if at else [table]
