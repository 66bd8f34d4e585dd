from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

from tidegate.compile.choose_exchange import choose_exchange
from tidegate.compile.compiler import DROP_COLUMNS, PASSES, REWRITES, compile_query
from tidegate.compile.explain import show_plan
from tidegate.compile.plan import Place
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder, source
from tidegate.query.keys import each
from tidegate.query.nodes import walk

a, b = nw.col("a"), nw.col("b")


def test_unions_move_before_neighbours_are_folded(numbers, more_numbers) -> None:
    both = numbers.filter(a > 1, name="f").union(more_numbers, name="both").filter(b < 9, name="g")
    plan = compile_query(both.key_by("a").window("1 minute").aggregate(n=count(), name="counts").node)
    assert [node.name for node in walk(plan.query)] == ["numbers", "f+g", "more", "g", "both", "counts"]


def test_every_step_has_a_place_and_every_subquery_a_region(heavy_customers) -> None:
    for runtime in ("spark", "local", "reference"):
        plan = compile_query(heavy_customers.node, runtime)
        steps = [step for feed in plan.feeds for step in feed.steps]
        assert len(steps) == 2
        assert all(isinstance(step.place, Place) for step in [*steps, *plan.subqueries])
        assert all(subquery.region is not None for subquery in plan.subqueries)


def test_compiling_leaves_the_query_alone_and_repeats_itself(heavy_customers) -> None:
    before = list(walk(heavy_customers.node))
    one, other = (show_plan(compile_query(heavy_customers.node)) for _ in range(2))
    assert list(walk(heavy_customers.node)) == before
    assert one == other


@pytest.mark.parametrize("runtime", ["local", "spark"])
def test_whole_tuples_reach_a_stateful_step_where_they_are_asked_for(runtime) -> None:
    tweets = Builder(source("tweets", {"ts": pa.timestamp("us"), "text": pa.string(), "by": pa.string()}, time="ts"))
    split = tweets.with_columns(words=nw.col("text").str.split(" "))
    query = split.key_by(each("words", name="word")).window("1 minute").aggregate(n=count()).node
    plans = [compile_query(query, runtime, all_columns=asked) for asked in (False, True)]
    arriving = [plan.subqueries[0].feeds[0].schema.names for plan in plans]
    assert arriving == [["ts", "text"], ["ts", "text", "by", "words"]]


@pytest.mark.parametrize("run", (*REWRITES, *DROP_COLUMNS, *PASSES, choose_exchange), ids=lambda run: run.__name__)
def test_a_pass_is_a_file_named_for_it_that_shows_before_and_after(run) -> None:
    assert run.__module__ == f"tidegate.compile.{run.__name__}"
    assert "before " in run.__doc__
    assert "after " in run.__doc__
