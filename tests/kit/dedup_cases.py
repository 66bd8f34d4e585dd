"""Generated queries with dedup, alone or beside other steps."""

from __future__ import annotations

from hypothesis import strategies as st

import tidegate as tg
from tests.kit.drawn_streams import BEFORE, DISORDERS_US, cut_batches, stream_behind
from tests.kit.keyed_apply_cases import KeyedApplyCase

BY = ["k", "x", ["k", "n"], "n"]
WITHIN_US = [1, 500, 3_000, 7_001, 1_000_000]


@st.composite
def dedup_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    disorder, before = draw(st.sampled_from(DISORDERS_US)), draw(st.sampled_from(BEFORE))
    after = draw(st.sampled_from(["nothing", "nothing", "select", "aggregate", "again"]))
    by, within = draw(st.sampled_from(BY)), draw(st.sampled_from(WITHIN_US))
    query = stream_behind(before, disorder)
    query = query.dedup(by, within=f"{within}us", name="once")
    if after == "select":
        query = query.select("ts", "k")
    elif after == "aggregate":
        query = query.key_by("k").window("7ms", every="2ms").aggregate(c=tg.count(), all=tg.collect("n"))
    elif after == "again":
        query = query.dedup("n", within="2ms", name="again")
    batches = draw(cut_batches())
    return KeyedApplyCase(query, batches, f"{before}, by {by}, within {within}, {after}")
