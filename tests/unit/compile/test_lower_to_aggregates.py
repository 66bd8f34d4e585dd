from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

from tidegate.compile.compiler import compile_query
from tidegate.compile.explain import explain
from tidegate.compile.lower_to_aggregates import INSTANT, lower_to_aggregates
from tidegate.errors import QueryError, UnsupportedError
from tidegate.query.aggregates import collect, count
from tidegate.query.nodes import BagAggregate, Source, Union, WindowAggregate, walk

a, b = nw.col("a"), nw.col("b")


def test_dedicated_operators_leave_a_query_as_it_is(numbers) -> None:
    query = numbers.filter(a > 1).node
    assert lower_to_aggregates(query, "dedicated") is query


@pytest.mark.parametrize("operators", ["multi", "single"])
def test_nothing_but_streams_unions_and_aggregates_is_left(numbers, more_numbers, operators) -> None:
    both = numbers.filter(a > 1).union(more_numbers.select("ts", "a", "b", "text"))
    counts = both.with_columns(c=a + b).key_by("c").window("1 minute").aggregate(n=count())
    kept = counts.select("ts", "c", "n")
    query = kept.join(kept.map_batches(lambda batch: batch), on="c", window="1 minute")
    left = list(walk(lower_to_aggregates(query.node, operators)))
    assert all(isinstance(node, Source | Union | WindowAggregate | BagAggregate) for node in left)
    assert all(node.single == (operators == "single") for node in left if isinstance(node, BagAggregate))
    assert left[-1].schema == query.schema
    assert left[-1].name == query.node.name


def test_a_map_is_keyed_by_all_columns_that_can_be_keys_in_windows_of_a_microsecond(numbers) -> None:
    words = numbers.with_columns(words=nw.col("text").str.split(" ")).filter(a > 1)
    lowered = lower_to_aggregates(words.node, "multi")
    assert isinstance(lowered, BagAggregate)
    assert lowered.window == INSTANT
    assert lowered.keys[0].reads() == ("ts", "a", "b", "text")
    lists = words.key_by("a").window("1 minute").aggregate(n=count(), words=collect("words")).filter(nw.col("n") > 1)
    assert lower_to_aggregates(lists.node, "multi").keys[0].reads() == ("ts", "a", "window_start", "window_end", "n")


def test_maps_that_follow_each_other_are_one_aggregate_unless_something_else_reads_between(numbers) -> None:
    first = numbers.filter(a > 1, name="f").with_columns(c=a + b, name="w")
    alone = lower_to_aggregates(first.select("ts", "c", name="s").node, "multi")
    assert [node.name for node in walk(alone)] == ["numbers", "s"]
    both = first.select("ts", "c", name="s").union(first.select("ts", "c", name="t"), name="u")
    assert [node.name for node in walk(lower_to_aggregates(both.node, "multi"))] == ["numbers", "w", "s", "t", "u"]


def test_rows_may_loop_as_late_as_a_watermark_moves(numbers) -> None:
    query = numbers.filter(a > 1).node
    looping = [node for node in walk(lower_to_aggregates(query, "single")) if getattr(node, "loop_us", None)]
    assert [node.loop_us for node in looping] == [3_600_000_000]
    assert lower_to_aggregates(query, "single", 7_200_000_000).inputs[0].loop_us == 7_200_000_000
    with pytest.raises(
        QueryError, match="may come 1 microsecond behind the watermark, and a watermark of the sources may"
    ):
        lower_to_aggregates(query, "single", 1)


def test_what_the_paper_does_not_lower_is_refused(numbers, more_numbers) -> None:
    """Tests in `tests/semantics` that are marked as dedicated rest on this."""
    keyed = numbers.key_by("a")
    sums = {
        "create": lambda arriving: {"n": 1},
        "add": lambda state, arriving: {"n": state["n"] + 1},
        "merge": lambda carried, period: {"n": carried["n"] + period["n"]},
        "output": lambda state: {"n": state["n"]},
    }
    refused = {
        "how='left' gives tuples beside pairs": numbers.join(more_numbers, on="a", window="1 minute", how="left"),
        "a join within a distance": numbers.join(more_numbers, within="1 minute"),
        "apply handles tuples in order": keyed.window("1 minute").apply(output=lambda w: (), returns={}),
        "running state outlives": keyed.running(
            **sums, every="1 minute", state={"n": pa.int64()}, returns={"n": pa.int64()}
        ),
        "dedup compares": numbers.dedup("a", within="1 minute"),
        "count windows number": keyed.count_window(3).aggregate(n=count()),
        "the last tuples of the other side": numbers.join(more_numbers, last=3),
        "an as-of join looks for": numbers.join_asof(more_numbers, on="a"),
        "a session ends after": keyed.session("1 minute").aggregate(n=count()),
        "late tuples leave": keyed.window("1 minute").aggregate(n=count()).late(),
        "a window with lateness=": keyed.window("1 minute", lateness="1 minute").aggregate(n=count()),
    }
    for why, query in refused.items():
        for operators in ("multi", "single"):
            with pytest.raises(
                UnsupportedError, match=f"cannot be made of Aggregates .operators='{operators}'.: {why}"
            ):
                compile_query(query.node, "local", operators=operators)


def test_loops_are_refused_on_spark_and_nowhere_else(numbers) -> None:
    query = numbers.filter(a > 1, name="some").node
    with pytest.raises(UnsupportedError, match=r"a plan of Spark's has no edge back.*'some, unfolded'"):
        compile_query(query, "spark", operators="single")
    for runtime in ("spark", "local", "reference"):
        compile_query(query, runtime, operators="multi")
    compile_query(query, "local", operators="single")


def test_other_operators_are_named(numbers) -> None:
    with pytest.raises(QueryError, match="operators is one of 'dedicated', 'multi', 'single'; got 'many'"):
        compile_query(numbers.filter(a > 1).node, "local", operators="many")


def test_columns_that_nothing_reads_are_dropped_before(numbers) -> None:
    query = numbers.filter(a > 1).key_by("a").window("1 minute").aggregate(n=count()).node
    plan = compile_query(query, "local", operators="multi")
    assert plan.sources[0].schema.names == ["ts", "a"]


def test_explain_shows_the_aggregates_and_which_one_reads_itself(numbers) -> None:
    shown = explain(numbers.filter(a > 1, name="some").node, "local", operators="single")
    assert "made of Aggregates, single\n" in shown
    assert "reads its own rows again, up to 1 hour late" in " ".join(shown.split())
    assert "made of Aggregates" not in explain(numbers.filter(a > 1).node, "local")


def test_explain_draws_what_reads_what_and_the_loop(numbers) -> None:
    some = numbers.filter(a > 1, name="some")
    query = some.join(some, on="a", window="1 minute", name="pairs").node
    shown = explain(query, "local", operators="single")
    drawn = """graph: what each reads
  7 pairs
  └─ 6 pairs, unfolded
     ├─ 5 pairs, embedded
     │  ├─ 4 some
     │  │  └─ 3 some, unfolded
     │  │     ├─ 2 some, embedded
     │  │     │  └─ 1 numbers
     │  │     └─ ↺ 3 some, unfolded: its own rows
     │  └─ 4 some, as above
     └─ ↺ 6 pairs, unfolded: its own rows
"""
    assert drawn in shown
