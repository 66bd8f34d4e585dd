"""Generated queries with running state: functions that depend on order as much as they can, keys that retire and return."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pyarrow as pa
from hypothesis import strategies as st

import tidegate as tg
from tests.kit.cases import SCHEMA
from tests.kit.drawn_streams import DISORDERS_US, cut_batches
from tests.kit.keyed_apply_cases import KEYS, OTHER, THREE, KeyedApplyCase, digest, renamed_second

STATE = {"hash": pa.int64(), "seen": pa.int64(), "last": pa.list_(pa.int64())}
RESULT = {"value": pa.int64(), "seen": pa.int64()}
PERIODS_US = [500, 1_000, 4_000, 7_001, 1_000_000]


def _made(one: Any, before: int, seen: int) -> dict[str, Any]:
    return {"hash": digest([list(one.values()), one.input], before), "seen": seen, "last": [one.input, seen]}


def create(one: Any) -> Any:
    return _made(one, 0, 1)


def add(state: Any, one: Any) -> Any:
    return _made(one, state["hash"], state["seen"] + 1)


def merge(carried: Any, period: Any) -> Any:
    value = digest([period["hash"], list(period["last"])], carried["hash"])
    return {"hash": value, "seen": carried["seen"] + period["seen"], "last": [*carried["last"][-3:], value]}


def one_row(state: Any) -> Any:
    return {"value": state["hash"], "seen": state["seen"]}


def many_rows(state: Any) -> Any:
    """None, one or two."""
    return [{"value": state["hash"] + at, "seen": state["seen"]} for at in range(state["hash"] % 3)]


def retiring(state: Any) -> Any:
    """Two of three keys retire sooner or later, some without a row."""
    return tg.updated(rows=many_rows(state), retire=state["hash"] % 5 < 2)


OUTPUTS = {"one row": one_row, "many rows": many_rows, "retiring": retiring}


def running(keyed: Any, every_us: int, output: str, name: str) -> tg.Stream:
    """Running state over streams with keys."""
    made: tg.Stream = keyed.running(
        create, add, merge, OUTPUTS[output], every=f"{every_us}us", state=STATE, returns=RESULT, name=name
    )
    return made


@st.composite
def running_queries(draw: st.DrawFn, disorder: int) -> tuple[tg.Stream, str]:
    """A query with running state, alone or between others, and what it is about."""
    key, output = draw(st.sampled_from(sorted(KEYS))), draw(st.sampled_from(sorted(OUTPUTS)))
    every = draw(st.sampled_from(PERIODS_US))
    sides = draw(st.sampled_from(["one", "filtered", "filtered", "two", "self-union", "diamond", "counts"]))
    after = draw(st.sampled_from(["nothing", "nothing", "filter", "aggregate", "again"]))
    first, second, third = (
        tg.stream(schema, time=time, disorder=f"{disorder}us", name=name)
        for name, schema, time in (("s0", SCHEMA, "ts"), ("s1", OTHER, "at"), ("s2", SCHEMA, "ts"))
    )
    keys, keys2 = KEYS[key]
    counts = first.filter(nw.col("n") > 0).key_by("k").window("3ms").aggregate(n=tg.count(), x=tg.last("x"))
    keyed = {
        "one": lambda: first.key_by(*keys),
        "filtered": lambda: first.filter(nw.col("n") > 0).key_by(*keys),
        "two": lambda: tg.gather(first.key_by(*keys), second.filter(nw.col("n2") > 0).key_by(*keys2)),
        "self-union": lambda: first.union(first).key_by(*keys),
        "diamond": lambda: first.with_columns(n=1).union(first, third).key_by(*keys),
        "counts": lambda: counts.filter(nw.col("n") > 1).key_by("k", "n"),
    }[sides]()
    query = running(keyed, every, output, "running")
    if after == "filter":
        query = query.filter(nw.col("seen") > 1)
    elif after == "aggregate":
        query = query.key_by("seen").window("7ms", every="2ms").aggregate(n=tg.count(), last=tg.last("value"))
    elif after == "again":
        # Results have keys, and tuples of some are dropped: what is last for the second step is not in its input.
        query = running(
            query.filter(nw.col("seen") > 1).with_columns(count=nw.col("seen")).key_by("count"),
            5_000,
            "one row",
            "again",
        )
    return query, f"{key}, {output}, every {every}, {sides}, {after}"


@st.composite
def running_cases(draw: st.DrawFn) -> KeyedApplyCase:
    """A query, its data, and how they are cut."""
    query, told = draw(running_queries(draw(st.sampled_from(DISORDERS_US))))
    batches = draw(cut_batches(THREE, most=4, rows=(0, 2, 4, 7), shaped=renamed_second))
    return KeyedApplyCase(query, batches, told)
