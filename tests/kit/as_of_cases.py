"""Generated queries with as-of joins and lookups, alone or beside other steps."""

from __future__ import annotations

from typing import Any

import narwhals as nw
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.drawn_streams import DISORDERS_US, counts_of, cut_batches, two_streams
from tests.kit.keyed_apply_cases import KeyedApplyCase

ON: list[Any] = [None, "k", "x", ["k", "n"], [("k", "k2")]]
TOLERANCES = [None, None, "0us", "700us", "3ms", "1 second"]


@st.composite
def as_of_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    of_right = draw(st.sampled_from(["another", "itself", "filtered", "counts"]))
    after = draw(st.sampled_from(["nothing", "nothing", "select", "aggregate", "again"]))
    disorder = draw(st.sampled_from(DISORDERS_US))
    if of_right == "counts" or after == "again":
        # Where a stream is read by steps behind one another in one process, how far each has come is a matter of threads.
        disorder = 10_000_000
    first, second = two_streams(disorder)
    on, tolerance = draw(st.sampled_from(ON)), draw(st.sampled_from(TOLERANCES))
    how: Any = draw(st.sampled_from(["inner", "left"]))
    right = {
        "another": lambda: second,
        "itself": lambda: first,
        "filtered": lambda: first.filter(nw.col("n") > 0),
        "counts": lambda: counts_of(second),
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
    batches = draw(cut_batches())
    return KeyedApplyCase(query, batches, f"{of_right}, on {on}, tolerance {tolerance}, {how}, {after}")
