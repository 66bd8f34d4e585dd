"""Generated queries with dedup, alone or beside other steps."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA, tables
from tests.kit.keyed_apply_cases import KeyedApplyCase

BY = ["k", "x", ["k", "n"], "n"]
WITHIN_US = [1, 500, 3_000, 7_001, 1_000_000]


@st.composite
def dedup_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    disorder = draw(st.sampled_from([0, 0, 999, 5_000, 100_000]))
    first, second = (tg.stream(SCHEMA, time="ts", disorder=f"{disorder}us", name=name) for name in ("s0", "s1"))
    before = draw(st.sampled_from(["nothing", "filter", "union", "self-union", "counts"]))
    after = draw(st.sampled_from(["nothing", "nothing", "select", "aggregate", "again"]))
    by, within = draw(st.sampled_from(BY)), draw(st.sampled_from(WITHIN_US))
    query = {
        "nothing": lambda: first,
        "filter": lambda: first.filter(nw.col("n") > 0),
        "union": lambda: first.union(second),
        "self-union": lambda: first.union(first),
        "counts": lambda: (
            first.key_by("k")
            .window("3ms", every="1ms")
            .aggregate(n=tg.count(), x=tg.last("x"))
            .select("ts", "k", "n", "x")
        ),
    }[before]()
    query = query.dedup(by, within=f"{within}us", name="once")
    if after == "select":
        query = query.select("ts", "k")
    elif after == "aggregate":
        query = query.key_by("k").window("7ms", every="2ms").aggregate(c=tg.count(), all=tg.collect("n"))
    elif after == "again":
        query = query.dedup("n", within="2ms", name="again")
    base = draw(st.sampled_from([1_700_000_000_000_000, -20_000, 3]))
    batches: list[dict[str, list[pa.Table]]] = []
    for _ in range(draw(st.integers(1, 5))):
        parts = {}
        for name in ("s0", "s1"):
            table = draw(tables(draw(st.sampled_from([0, 2, 4, 9])), base))
            cut = draw(st.integers(0, table.num_rows))
            parts[name] = [table.slice(0, cut), table.slice(cut)]
        base += draw(st.sampled_from([0, 1_000, 6_000, 40_000]))
        batches.append(parts)
    return KeyedApplyCase(query, batches, f"{before}, by {by}, within {within}, {after}")
