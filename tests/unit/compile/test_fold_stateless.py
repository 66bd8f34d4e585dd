from __future__ import annotations

from collections.abc import Callable

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.effort import examples
from tidegate.compile.fold_stateless import fold_stateless
from tidegate.compile.show_query import show_query
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder, source
from tidegate.query.nodes import Node, Source, sources, walk
from tidegate.query.stateless import apply_stateless

Step = Callable[[Builder], Builder]

a, b, text = nw.col("a"), nw.col("b"), nw.col("text")
KEEP_ALL = ("ts", "a", "b", "text")

FOLDED: dict[str, tuple[Step, list[str]]] = {
    "filters": (
        lambda s: s.filter(a > 1, name="f").filter(b < 9, name="g"),
        ["f+g filter (a > 1) & (b < 9)"],
    ),
    "three filters": (
        lambda s: s.filter(a > 1, name="f").filter(b < 9, name="g").filter(~text.is_null(), name="h"),
        ["f+g+h filter ((a > 1) & (b < 9)) & ~text.is_null()"],
    ),
    "a first filter that may fail": (
        lambda s: s.filter(a + b > 1, name="f").filter(b < 9, name="g"),
        ["f+g filter ((a + b) > 1) & (b < 9)"],
    ),
    "independent columns": (
        lambda s: s.with_columns(x=a + 1, name="f").with_columns(y=b * 2, name="g"),
        ["f+g with x = a + 1, y = b * 2"],
    ),
    "a column read, then replaced": (
        lambda s: s.with_columns(x=a + 1, name="f").with_columns(a=a * 2, name="g"),
        ["f+g with x = a + 1, a = a * 2"],
    ),
    "a pick of computed columns": (
        lambda s: s.select("ts", x=a > 1, y=b, name="f").select("y", "ts", name="g"),
        ["f+g select y = b, ts"],
    ),
    "computed columns of a pick": (
        lambda s: s.select("ts", "a", "b", name="f").select("ts", x=a + b, name="g"),
        ["f+g select ts, x = a + b"],
    ),
    "a pick that uncovers another": (
        lambda s: (
            s.select("ts", x=a * 2, name="f").select("ts", "x", y=nw.col("x") > 1, name="g").select("ts", "x", name="h")
        ),
        ["f+g+h select ts, x = a * 2"],
    ),
    "identity": (lambda s: s.select(*KEEP_ALL, name="f"), []),
    "identity by all()": (lambda s: s.select(nw.all(), name="f"), []),
    "two picks that undo each other": (
        lambda s: s.select("b", "a", "ts", "text", name="f").select(*KEEP_ALL, name="g"),
        [],
    ),
    "filters around an identity": (
        lambda s: s.filter(a > 1, name="f").select(*KEEP_ALL, name="g").filter(b < 9, name="h"),
        ["f+h filter (a > 1) & (b < 9)"],
    ),
}

KEPT: dict[str, Step] = {
    "a second filter that may fail": lambda s: s.filter(text == "1").filter(text.cast(nw.Int64) > 0),
    "a column made, then read": lambda s: s.with_columns(x=a + 1).with_columns(y=nw.col("x") * 2),
    "a column made, then read by bare name": lambda s: s.with_columns(a=b).with_columns(y=nw.coalesce("a", "b")),
    "a column made, then read by exclude()": lambda s: s.with_columns(x=a).with_columns(nw.exclude("ts", "text") + 1),
    "a column made twice": lambda s: s.with_columns(x=a + 1).with_columns(x=b + 1),
    "computed of computed": lambda s: s.select("ts", x=a + 1).select("ts", y=nw.col("x") * 2),
    "a position in a pick": lambda s: s.select("ts", "b", "a").select("ts", nw.nth(1).alias("x") + 1),
    "a dropped column that may fail": lambda s: s.select("ts", x=text.cast(nw.Int64)).select("ts"),
    "a reordering": lambda s: s.select("text", "b", "a", "ts"),
    "a renaming": lambda s: s.select("ts", "text", a=b, b=a),
    "filters with a step between": lambda s: s.filter(a > 1).with_columns(x=a).filter(b < 9),
    "map_batches": lambda s: s.map_batches(lambda batch: batch).map_batches(lambda batch: batch),
}


def steps(query: Node) -> list[str]:
    lines = show_query(query).splitlines()[1:]
    return [" ".join(line.split()[1:]) for line in lines]


@pytest.mark.parametrize("case", FOLDED)
def test_folds_and_keeps_the_tuples(case, numbers, tables, evaluate) -> None:
    build, expected = FOLDED[case]
    before = build(numbers).node
    after = fold_stateless(before)
    assert steps(after) == expected
    assert after.schema == before.schema
    assert evaluate(after, tables).equals(evaluate(before, tables))


@pytest.mark.parametrize("case", KEPT)
def test_keeps_what_cannot_be_folded(case, numbers) -> None:
    before = KEPT[case](numbers).node
    assert fold_stateless(before) is before


def test_a_guarded_cast_still_runs(numbers, tables, evaluate) -> None:
    guarded = numbers.filter(text == "1").filter(text.cast(nw.Int64) > 0).node
    assert evaluate(fold_stateless(guarded), tables).num_rows == 1


def test_folds_on_both_sides_of_an_aggregate(numbers) -> None:
    below = numbers.filter(a > 1, name="f").filter(b < 9, name="g")
    counts = below.key_by("a").window("1 minute").aggregate(n=count(), name="counts")
    after = fold_stateless(counts.filter(nw.col("n") > 1, name="h").filter(nw.col("n") < 9, name="i").node)
    assert [node.name for node in walk(after)] == ["numbers", "f+g", "counts", "h+i"]


def test_a_shared_source_stays_one_source(numbers) -> None:
    query = numbers.filter(a > 1).filter(b < 9).union(numbers.filter(a < 0).filter(b > 9)).node
    assert sources(fold_stateless(query)) == (numbers.node,)


STEPS: tuple[Step, ...] = (
    lambda s: s.filter(a > 0),
    lambda s: s.filter((b < 6) | a.is_null()),
    lambda s: s.with_columns(a=a + 1),
    lambda s: s.with_columns(b=a - 1),
    lambda s: s.with_columns(a=nw.coalesce("b", "a")),
    lambda s: s.with_columns(nw.col("a", "b") * 2),
    lambda s: s.select("ts", "a", "b"),
    lambda s: s.select("b", "a", "ts"),
    lambda s: s.select("ts", a=b, b=a),
    lambda s: s.select("ts", "a", b=a > b).with_columns(b=a),
    lambda s: s.select(nw.all()),
)
ROWS = st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9)), max_size=8)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(STEPS), min_size=2, max_size=6), ROWS)
def test_any_chain_means_the_same_folded(chain, rows) -> None:
    moment = pa.timestamp("us", tz="UTC")
    stream = Builder(source("numbers", {"ts": moment, "a": pa.int64(), "b": pa.int64()}, time="ts"))
    for step in chain:
        stream = step(stream)
    columns = {"ts": range(len(rows)), "a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    table = table.set_column(0, "ts", table.column("ts").cast(moment))

    def run(query: Node) -> pa.Table:
        made = table
        for node in walk(query):
            made = made if isinstance(node, Source) else apply_stateless(node, made)
        return made

    folded = fold_stateless(stream.node)
    assert len(list(walk(folded))) <= len(list(walk(stream.node)))
    assert run(folded).equals(run(stream.node))
