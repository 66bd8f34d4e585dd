"""Building joins: what results are called, and what is refused with which words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import QueryError

TIME = pa.timestamp("us")
LEFT = {"ts": TIME, "id": pa.int64(), "k": pa.string(), "x": pa.float64()}
RIGHT = {"at": TIME, "id": pa.int64(), "k": pa.string(), "tags": pa.list_(pa.string())}


def streams() -> tuple[tg.Stream, tg.Stream]:
    return tg.stream(LEFT, time="ts", name="left"), tg.stream(RIGHT, time="at", name="right")


def test_results_have_both_tuples_columns() -> None:
    left, right = streams()
    assert left.join(right, on="k", within="5us").schema.names == [
        "ts", "ts_left", "id", "k", "x", "at_right", "id_right", "tags",
    ]  # fmt: skip
    shared = left.join(left, on=["k", ("id", "id")], window="5us", every="2us", suffixes=("_a", "_b"))
    assert shared.schema.names == ["ts", "window_start", "window_end", "ts_a", "id", "k", "x", "ts_b", "x_b"]
    assert shared.time == "ts"


def test_semi_and_anti_joins_have_the_left_tuples_columns() -> None:
    left, right = streams()
    for how in ("semi", "anti"):
        made = left.join(right, on="k", within="5us", where=nw.col("id") > nw.col("id_right"), how=how)
        assert made.schema.names == ["ts", "ts_left", "id", "k", "x"]
    assert left.join(right, on="k", window="5us", how="full").schema == left.join(right, on="k", window="5us").schema


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say which tuples may meet: within='30 seconds'"),
        ({"within": "5us", "window": "5us"}, "say which tuples may meet: within='30 seconds'"),
        ({"within": timedelta(seconds=-1)}, "must not be negative"),
        ({"within": "5us", "every": "2us"}, "goes with window"),
        ({"window": "5us", "every": "7us"}, "tuples between windows would be lost"),
        ({"within": "5us", "on": "z"}, "left': unknown column 'z'; the stream has 'ts', 'id', 'k', 'x'"),
        ({"within": "5us", "on": []}, "names no column"),
        ({"within": "5us", "on": [("k", "id")]}, "cannot be compared as keys"),
        ({"within": "5us", "on": [("k", "tags")]}, "cannot be compared as keys"),
        ({"within": "5us", "on": [("k", "k", "k")]}, "a list of columns and of pairs"),
        ({"within": "5us", "where": "l.x < r.x"}, "where is a function of two tuples"),
        ({"within": "5us", "where": nw.col("id").sum() > 3}, "looks at other rows"),
        ({"within": "5us", "where": nw.col("id") + 1}, "true or false"),
        ({"within": "5us", "where": nw.col("nope") > 1}, "unknown column 'nope'"),
        ({"within": "5us", "suffixes": ("", "_right")}, "two columns called 'ts'"),
        ({"within": "5us", "suffixes": "_right"}, "suffixes are two texts"),
        ({"within": "5us", "how": "outer"}, "how='outer' is no kind of join; choose one of 'inner', 'left'"),
    ],
)
def test_mistakes_are_found_when_a_join_is_built(options: dict[str, Any], message: str) -> None:
    left, right = streams()
    with pytest.raises(QueryError, match=message):
        left.join(right, **options)


def test_times_of_different_types_and_refined_results_are_refused() -> None:
    left, _ = streams()
    zoned = tg.stream({"ts": pa.timestamp("us", tz="UTC")}, time="ts")
    with pytest.raises(QueryError, match="the event times have different types"):
        left.join(zoned, within="5us")
    refined = left.key_by("k").window("5us", lateness="5us").aggregate(n=tg.count())
    with pytest.raises(QueryError, match="only the last stateful step"):
        left.join(refined, within="5us")
    with pytest.raises(QueryError, match="join takes another stream"):
        left.join(left.key_by("k"), within="5us")  # type: ignore[arg-type]


def test_explain_shows_a_join() -> None:
    left, right = streams()
    query = left.join(right, on=["k", ("id", "id")], within="3 seconds", where=lambda l, r: l.x > 2, name="pairs")
    shown = " ".join(query.explain(runtime="local").split())
    assert "reads 1, 2; on k, id; within 3 seconds; where l.x > 2" in shown
    assert "pairs found by key; the predicate is compiled" in shown
    shown = " ".join(query.explain(runtime="spark").split())
    assert "tuples that share keys (k, id) meet in one cell" in shown
    assert "pairs found by key; the predicate is compiled" in shown
    grid = " ".join(left.join(right, within="5us", name="pairs").explain(runtime="spark").split())
    assert "a left tuple goes to a row of it, a right one to a column, and each pair meets in one cell" in grid


def test_columns_that_nobody_wants_are_not_read() -> None:
    from tidegate.compile.compiler import compile_query
    from tidegate.query.nodes import Join, sources, walk

    left, right = streams()
    query = (
        left.join(right, within="5us", where=lambda l, r: l.x > r.id).key_by("k").window("9us").aggregate(n=tg.count())
    )
    plan = compile_query(query.node, "local")
    assert [source.schema.names for source in sources(plan.query)] == [["ts", "k", "x"], ["at", "id"]]
    join = next(node for node in walk(plan.query) if isinstance(node, Join))
    assert join.schema.names == ["ts", "k"]
