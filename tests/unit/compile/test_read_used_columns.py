from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

from tidegate.compile.compiler import compile_query
from tidegate.query.aggregates import count, last, mean, top_k
from tidegate.query.builder import Builder, source
from tidegate.query.nodes import Join, sources, walk

WIDE = {name: pa.int64() for name in "abcdef"}


def wide(name: str = "s") -> Builder:
    return Builder(source(name, {"ts": pa.timestamp("us"), **WIDE}, time="ts"))


def read(query: Builder, runtime: str = "local") -> list[list[str]]:
    """The columns of each source, once the query is compiled."""
    return [found.schema.names for found in sources(compile_query(query.node, runtime).query)]


def test_keys_aggregates_and_expressions_say_what_is_read() -> None:
    steps = wide().filter(nw.col("a") > 1).with_columns(g=nw.col("b") + nw.col("c"))
    query = steps.key_by("d").window("1 minute").aggregate(g=mean("g"))
    assert read(query) == [["ts", "a", "b", "c", "d"]]
    assert read(query, "spark") == read(query)
    assert read(query, "reference") == [["ts", *WIDE]]


def test_a_column_that_is_made_anew_is_not_read() -> None:
    query = wide().with_columns(a=nw.col("b")).key_by("a").window("1 minute").aggregate(n=count())
    assert read(query) == [["ts", "b"]]


def test_a_select_reads_what_its_expressions_do() -> None:
    query = wide().select("ts", "a", x=nw.col("b") * 2).key_by("a").window("1 minute").aggregate(n=count())
    assert read(query) == [["ts", "a", "b"]]
    assert read(wide().select(nw.all()).key_by("a").window("1 minute").aggregate(n=count())) == [["ts", "a"]]


def test_whole_tuples_are_read_where_they_are_needed() -> None:
    keyed = wide().key_by("a").window("1 minute")
    everything = [["ts", *WIDE]]
    assert read(keyed.aggregate(x=last("b"))) == everything
    assert read(keyed.aggregate(x=top_k("b", 2, take="c"))) == everything
    assert (
        read(wide().map_batches(lambda batch: batch).key_by("a").window("1 minute").aggregate(n=count())) == everything
    )
    assert read(wide().filter(nw.col("a") > 1)) == everything


def test_a_stream_that_is_read_twice_has_what_both_sides_read() -> None:
    stream = wide()
    left = stream.key_by("a").window("1 minute").aggregate(n=count())
    right = stream.filter(nw.col("b") > 1).key_by("a").window("1 minute").aggregate(n=count())
    assert read(left.union(right)) == [["ts", "a", "b"]]
    other = wide("other").with_columns(c=nw.col("d"))
    query = stream.filter(nw.col("b") > 1).union(other).key_by("c").window("1 minute").aggregate(n=count())
    assert read(query) == [["ts", "b", "c"], ["ts", "d"]]


def test_a_join_keeps_what_is_read_after_it_and_by_its_predicate() -> None:
    near = wide("left").join(wide("right"), on="a", within="1 minute", where=lambda l, r: l.b < r.c)
    query = near.filter(nw.col("d_right") > 1).key_by("e").window("1 minute").aggregate(n=count())
    for runtime in ("local", "spark"):
        assert read(query, runtime) == [["ts", "a", "b", "e"], ["ts", "a", "c", "d"]]
        join = next(node for node in walk(compile_query(query.node, runtime).query) if isinstance(node, Join))
        assert join.schema.names == ["ts", "e", "d_right"]


def test_a_join_with_results_of_windows_drops_their_bounds() -> None:
    counts = wide().key_by("a").window("1 minute").aggregate(n=count())
    query = wide("other").join(counts, on="a", within="1 minute").select("ts", "a", "n")
    for runtime in ("local", "spark"):
        join = compile_query(query.node, runtime).query.inputs[0]
        assert join.schema.names == ["ts", "a", "n"]


def test_a_predicate_that_is_not_compiled_reads_whole_tuples() -> None:
    with pytest.warns(UserWarning, match="interpreted"):
        near = wide("left").join(wide("right"), within="1 minute", where=lambda l, r: str(l.b) < str(r.c))
    assert read(near.select("ts", "a"), "spark") == [["ts", *WIDE]] * 2
