"""Generated queries with as-of joins and lookups, alone or beside other steps."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA, tables
from tests.kit.keyed_apply_cases import KeyedApplyCase

ON: list[Any] = [None, "k", "x", ["k", "n"], [("k", "k2")]]
TOLERANCES = [None, None, "0us", "700us", "3ms", "1 second"]


@st.composite
def as_of_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    of_right = draw(st.sampled_from(["another", "itself", "filtered", "counts"]))
    after = draw(st.sampled_from(["nothing", "nothing", "select", "aggregate", "again"]))
    disorder = draw(st.sampled_from([0, 0, 999, 5_000, 100_000]))
    if of_right == "counts" or after == "again":
        # Where a stream is read by steps behind one another in one process, how far each has come is a matter of threads.
        disorder = 10_000_000
    first, second = (tg.stream(SCHEMA, time="ts", disorder=f"{disorder}us", name=name) for name in ("s0", "s1"))
    on, tolerance = draw(st.sampled_from(ON)), draw(st.sampled_from(TOLERANCES))
    how: Any = draw(st.sampled_from(["inner", "left"]))
    right = {
        "another": lambda: second,
        "itself": lambda: first,
        "filtered": lambda: first.filter(nw.col("n") > 0),
        "counts": lambda: (
            second.key_by("k")
            .window("3ms", every="1ms")
            .aggregate(n=tg.count(), x=tg.last("x"))
            .select("ts", "k", "n", "x")
        ),
    }[of_right]()
    if on == [("k", "k2")]:
        right = right.with_columns(k2=nw.col("k"))
    if on is not None and draw(st.booleans()):
        gone = draw(st.sampled_from([None, nw.col("n") > 0, nw.col("n").is_null()]))
        tolerance = None if gone is None else "deletions"
        query = first.lookup(right, on=on, how=how, deleted=gone, name="found")
    else:
        query = first.join_asof(right, on=on, tolerance=tolerance, how=how, name="found")
    if after == "select":
        query = query.select("ts", "k", "n_right" if on != ["k", "n"] else "ts_right")
    elif after == "aggregate":
        query = query.key_by("k").window("7ms", every="2ms").aggregate(c=tg.count(), all=tg.collect("ts_right"))
    elif after == "again":
        query = query.select("ts", "k", "n").join_asof(second, on="k", tolerance="2ms", name="again")
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
    return KeyedApplyCase(query, batches, f"{of_right}, on {on}, tolerance {tolerance}, {how}, {after}")
