"""Mistakes that can be found when a query is built are found then, with the step and the valid choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg

STREAM = tg.stream(
    {"ts": pa.timestamp("us", tz="UTC"), "k": pa.string(), "x": pa.int64(), "words": pa.list_(pa.string())}, time="ts"
)
LATE = STREAM.key_by("k").window("1 minute", lateness="1 minute").aggregate(n=tg.count(), name="first")

MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: STREAM.filter(nw.col("zz") > 1),
        r"'filter_1': unknown column 'zz'; the stream has 'ts', 'k', 'x', 'words'",
    ),
    (lambda: STREAM.filter(nw.col("k") + 1 > 2), r"does not fit the stream's types"),
    (lambda: STREAM.filter(nw.col("x") + 1), r"a filter is true or false, and .* is int64"),
    (lambda: STREAM.with_columns(y=nw.col("x").sum(), name="total"), r"'total': .*'sum', which looks at other rows"),
    (lambda: STREAM.branch(lambda t: t.x > 1), r"there is no step 'branch'; a stream is parted with \.route\("),
    (lambda: STREAM.route(rest=True), r"route: name at least one part"),
    (lambda: STREAM.route(big=nw.col("x")), r"'big': a route is true or false, and .* is int64"),
    (lambda: STREAM.route(big=nw.col("zz") > 1), r"'big': unknown column 'zz'"),
    (lambda: STREAM.route(big=lambda t: t.x > 1), r"the part 'big' takes a Narwhals expression"),
    (lambda: STREAM.route(keys=nw.col("x") > 1), r"a part cannot be called 'keys'"),
    (lambda: STREAM.route(rest=nw.col("x") > 1, big=nw.col("x") > 2), r"rest is True for a part of what no"),
    (lambda: STREAM.route(big=nw.col("x") > 1).rest, r"there is no part 'rest'; there is 'big'; .* rest=True"),
    (lambda: tg.run({}), r"run: there is no result to compute"),
    (lambda: tg.start({"a": STREAM, "b": STREAM.key_by("k")}), r"start: the result 'b' .* got Keyed. Did you forget"),
    (lambda: tg.explain({"_a": STREAM}), r"explain: '_a' cannot name a result"),
    (lambda: tg.run({1: STREAM}), r"run: 1 cannot name a result"),  # type: ignore[dict-item]
    (
        lambda: tg.run({"a": STREAM.select("ts", name="s"), "b": STREAM.select("ts", "x", name="s")}),
        r"a select and another select are both called 's'",
    ),
    (lambda: STREAM.with_columns(ts=nw.col("ts")), r"'ts' is the event time and cannot be replaced"),
    (lambda: STREAM.select("k"), r"a stream needs its event time; select 'ts' too"),
    (lambda: STREAM.union(LATE), r"a union needs the same columns, types and event time"),
    (lambda: STREAM.key_by("q"), r"unknown column 'q'"),
    (lambda: STREAM.key_by(), r"key_by needs at least one column"),
    (lambda: STREAM.key_by("words"), r"'words' cannot be a key"),
    (lambda: STREAM.key_by(tg.each("k")), r"needs a list column, and it is string; lists: \['words'\]"),
    (
        lambda: STREAM.key_by("k").window("5 s", every="7 s"),
        r"advance \(7 seconds\) is longer than its size \(5 seconds\)",
    ),
    (lambda: STREAM.key_by("k").window("0 s"), r"must be longer than zero"),
    (lambda: STREAM.key_by("k").window("1 h").aggregate(), r"name at least one aggregate"),
    (lambda: STREAM.key_by("k").window("1 h").aggregate(n=3), r"n=3 is no aggregate; there are \('count'"),
    (lambda: STREAM.key_by("k").window("1 h").aggregate(n=tg.sum("k")), r"sum\('k'\) needs a number.*numbers: \['x'\]"),
    (lambda: STREAM.key_by("k").window("1 h").aggregate(k=tg.count()), r"two columns would be called 'k'"),
    (lambda: LATE.key_by("k").window("1 h").aggregate(n2=tg.count()), r"'first' allows lateness"),
    (lambda: tg.stream({"ts": pa.int64()}, time="ts"), r"time='ts' is int64, and event time is a timestamp"),
    (lambda: tg.stream({"ts": pa.timestamp("us"), "d": pa.duration("us")}, time="ts"), r"'d' has the type duration"),
    (lambda: tg.stream(7, time="ts"), r"got int"),
    (lambda: tg.top_k("x", 0), r"k is a whole number from 1"),
    (
        lambda: STREAM.key_by(tg.keys(lambda batch: batch.column("x"), columns={"a": pa.int64()})),
        r"must return a pyarrow ListArray",
    ),
    (lambda: STREAM.map_batches(lambda batch: 3), r"returned int, not Arrow data"),
]


@pytest.mark.parametrize(("build", "told"), MISTAKES)
def test_a_mistake_is_told_when_the_query_is_built(build: Callable[[], Any], told: str) -> None:
    with pytest.raises(tg.QueryError, match=told):
        build()
