"""Generated joins over the last tuples, alone or beside other steps."""

from __future__ import annotations

import warnings
from typing import Any

import narwhals as nw
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.drawn_streams import DISORDERS_US, counts_of, cut_batches, two_streams
from tests.kit.join_cases import PREDICATES
from tests.kit.keyed_apply_cases import KeyedApplyCase
from tidegate.errors import SlowWarning

ON: list[Any] = [None, None, "k", "x", ["k", "n"], [("k", "k2")]]
LAST = [1, 1, 2, 3, 7, 100]


@st.composite
def count_join_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    of_right = draw(st.sampled_from(["another", "another", "itself", "filtered", "counts"]))
    after = draw(st.sampled_from(["nothing", "nothing", "select", "aggregate", "again"]))
    disorder = draw(st.sampled_from(DISORDERS_US))
    if of_right == "counts" or after == "again":
        # Where a stream is read by steps behind one another in one process, how far each has come is a matter of threads.
        disorder = 10_000_000
    first, second = two_streams(disorder)
    on, last = draw(st.sampled_from(ON)), draw(st.sampled_from(LAST))
    right = {
        "another": lambda: second,
        "itself": lambda: first,
        "filtered": lambda: first.filter(nw.col("n") > 0),
        "counts": lambda: counts_of(second),
    }[of_right]()
    right = right.with_columns(m=nw.col("n"), y=nw.col("x"))
    if on == [("k", "k2")]:
        right = right.with_columns(k2=nw.col("k"))
    predicate = draw(st.sampled_from(sorted(PREDICATES)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowWarning)
        query = first.join(right, on=on, last=last, where=PREDICATES[predicate], name="met")
    if after == "select":
        query = query.select("ts", "k", "ts_right")
    elif after == "aggregate":
        query = query.key_by("k").window("7ms", every="2ms").aggregate(c=tg.count(), all=tg.collect("ts_right"))
    elif after == "again":
        query = query.select("ts", "k", "n").join(second, on="k", last=2, name="again")
    batches = draw(cut_batches())
    return KeyedApplyCase(query, batches, f"{of_right}, on {on}, last {last}, {predicate}, {after}")
