"""Generated queries over windows in number of tuples, alone or beside other steps."""

from __future__ import annotations

import narwhals as nw
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import AGGREGATES
from tests.kit.drawn_streams import BEFORE, DISORDERS_US, cut_batches, stream_behind
from tests.kit.keyed_apply_cases import KEYS, KeyedApplyCase

COMPUTED = sorted(AGGREGATES.keys() - {"sum of integers"})  # a window may hold more of them than fit int64
SHAPES = [(1, None), (2, None), (3, 1), (3, 2), (4, 2), (5, 3), (7, 7), (11, 4), (200, 1)]


@st.composite
def count_window_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    disorder, before = draw(st.sampled_from(DISORDERS_US)), draw(st.sampled_from(BEFORE))
    after = draw(st.sampled_from(["nothing", "nothing", "filter", "aggregate", "again"]))
    size, every = draw(st.sampled_from(SHAPES))
    key = draw(st.sampled_from([None, *sorted(KEYS)])) if before != "counts" else draw(st.sampled_from([None, "k"]))
    chosen = draw(st.lists(st.sampled_from(COMPUTED), min_size=1, max_size=3, unique=True))
    query = stream_behind(before, disorder)
    names = () if key is None else ("k",) if key == "k" else KEYS[key][0]
    keyed = query.key_by(*names) if names else query
    wanted = (
        {"c": tg.sum("n")} if before == "counts" else {f"a{at}": AGGREGATES[name] for at, name in enumerate(chosen)}
    )
    query = keyed.count_window(size, every=every, name="some").aggregate(c_all=tg.count(), **wanted)
    if after == "filter":
        query = query.filter(nw.col("window_start") != nw.col("window_end"))
    elif after == "aggregate":
        query = query.key_by("c_all").window("7ms", every="2ms").aggregate(c=tg.count())
    elif after == "again":
        query = query.select("ts", "c_all").count_window(2).aggregate(c=tg.sum("c_all"))
    batches = draw(cut_batches())
    return KeyedApplyCase(query, batches, f"{before}, by {key}, {size} every {every}, {after}")
