"""Generated queries over sessions, alone or beside other steps."""

from __future__ import annotations

import narwhals as nw
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import AGGREGATES
from tests.kit.drawn_streams import BEFORE, DISORDERS_US, cut_batches, stream_behind
from tests.kit.keyed_apply_cases import KEYS, KeyedApplyCase

GAPS_US = [1, 500, 1_001, 2_000, 7_001, 1_000_000]
COMPUTED = sorted(AGGREGATES.keys() - {"sum of integers"})  # a session may hold more of them than fit int64
MOST_US = [None, None, 1, 700, 3_000, 9_000, 2_000_000]


@st.composite
def session_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    disorder, before = draw(st.sampled_from(DISORDERS_US)), draw(st.sampled_from(BEFORE))
    after = draw(st.sampled_from(["nothing", "nothing", "filter", "aggregate", "again"]))
    gap, most = draw(st.sampled_from(GAPS_US)), draw(st.sampled_from(MOST_US))
    key = draw(st.sampled_from([None, *sorted(KEYS)])) if before != "counts" else draw(st.sampled_from([None, "k"]))
    chosen = draw(st.lists(st.sampled_from(COMPUTED), min_size=1, max_size=3, unique=True))
    query = stream_behind(before, disorder)
    names = () if key is None else ("k",) if key == "k" else KEYS[key][0]
    keyed = query.key_by(*names) if names else query
    limit = None if most is None else f"{most}us"
    wanted = {"c": tg.count()} if before == "counts" else {f"a{at}": AGGREGATES[name] for at, name in enumerate(chosen)}
    query = keyed.session(f"{gap}us", most=limit, name="visits").aggregate(c_all=tg.count(), **wanted)
    if after == "filter":
        query = query.filter(nw.col("c_all") > 1)
    elif after == "aggregate":
        query = query.key_by("c_all").window("7ms", every="2ms").aggregate(c=tg.count())
    elif after == "again":
        query = query.select("ts", "c_all").key_by("c_all").session("2ms").aggregate(c=tg.count())
    batches = draw(cut_batches())
    return KeyedApplyCase(query, batches, f"{before}, by {key}, gap {gap}, most {most}, {after}")
