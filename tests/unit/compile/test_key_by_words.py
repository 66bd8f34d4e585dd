from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compile.compiler import compile_query
from tidegate.query.aggregates import Aggregate, count, last, mean
from tidegate.query.builder import Builder
from tidegate.query.keys import each
from tidegate.query.nodes import WindowAggregate, WithColumns, walk
from tidegate.testing import answer, same_bag

SPLIT = nw.col("text").str.split(" ")


def keys_of(stream: Builder, column: str = "words", runtime: str = "local", **aggregates: Aggregate) -> str:
    """The keys of a count by the elements of a column, once the query is compiled."""
    made = stream.key_by(each(column)).window("1 minute").aggregate(**(aggregates or {"n": count()}))
    found = [node for node in walk(compile_query(made.node, runtime).query) if isinstance(node, WindowAggregate)]
    return str(found[0].keys)


def test_words_are_taken_from_the_text(numbers: Builder) -> None:
    for runtime in ("local", "spark"):
        assert keys_of(numbers.with_columns(words=SPLIT), runtime=runtime) == "words(text)"
        assert keys_of(numbers.with_columns(text=SPLIT), "text", runtime) == "words(text)"
    assert keys_of(numbers.with_columns(words=SPLIT), runtime="reference") == "each(words)"


def test_other_columns_of_the_step_are_still_made(numbers: Builder) -> None:
    stream = numbers.with_columns(words=SPLIT, c=nw.col("a") + 1)
    query = stream.key_by(each("words")).window("1 minute").aggregate(m=mean("c"))
    (step,) = [node for node in walk(compile_query(query.node, "local").query) if isinstance(node, WithColumns)]
    assert step.schema.names == ["ts", "text", "c"]


@pytest.mark.parametrize(
    "words",
    [nw.col("text").str.split(", "), nw.col("text").str.split("é"), nw.col("text").str.to_lowercase().str.split(" ")],
    ids=["two characters", "not ASCII", "not of a column"],
)
def test_other_lists_stay_lists(numbers: Builder, words: nw.Expr) -> None:
    assert keys_of(numbers.with_columns(words=words)) == "each(words)"


def test_a_list_that_something_else_reads_is_made(numbers: Builder) -> None:
    made = numbers.with_columns(words=SPLIT)
    assert keys_of(made, n=last("a")) == "each(words)"  # ties are broken by whole tuples
    assert keys_of(numbers.with_columns(text=SPLIT), "text", n=last("a")) == "each(text)"
    assert keys_of(made.filter(nw.col("a") > 1)) == "each(words)"


def test_a_text_that_is_made_by_the_same_step_is_not_there_yet(numbers: Builder) -> None:
    assert keys_of(numbers.with_columns(words=SPLIT, text=nw.lit("x y"))) == "each(words)"


def test_the_same_step_may_feed_others_that_read_the_list(numbers: Builder) -> None:
    made = numbers.with_columns(words=SPLIT)
    counted = made.key_by(each("words")).window("1 minute").aggregate(n=count())
    others = made.key_by(each("words")).window("1 minute").aggregate(n=last("a"))
    found = list(walk(compile_query(counted.union(others).node, "local").query))
    assert {str(node.keys) for node in found if isinstance(node, WindowAggregate)} == {"words(text)", "each(words)"}


@pytest.mark.parametrize("distinct", [True, False])
def test_the_results_are_the_reference_s(distinct: bool) -> None:
    rows = [(1, "a b  a"), (2, None), (3, ""), (61, "long-winded words, long-winded"), (62, "é b"), (200, "b")]
    table = pa.table({"ts": [at * 1_000_000 for at, _ in rows], "text": [text for _, text in rows]})
    table = table.set_column(0, "ts", table.column("ts").cast(pa.timestamp("us")))
    words = tg.stream(table, time="ts").with_columns(words=SPLIT).key_by(each("words", name="word", distinct=distinct))
    query = words.window("2 minutes", every="1 minute").aggregate(n=tg.count())
    expected = answer(query).rows
    assert same_bag(pa.concat_tables(tg.start(query)), expected)
    assert set(expected.column("word").to_pylist()) >= {"", "a", "b", "é", "long-winded"}
