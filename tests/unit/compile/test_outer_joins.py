"""What the compiler does with joins that are not inner: what is read, said and refused."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compile.compiler import compile_query
from tidegate.errors import UnsupportedError
from tidegate.query.nodes import JoinHow

TIME = pa.timestamp("us")


def streams() -> tuple[tg.Stream, tg.Stream]:
    columns = {"ts": TIME, "k": pa.int64(), "x": pa.int64(), "y": pa.int64()}
    return tg.stream(columns, time="ts", name="left"), tg.stream(columns, time="ts", name="right")


def test_a_semi_join_reads_of_the_right_what_it_compares() -> None:
    left, right = streams()
    query = left.join(right, on="k", within="1 s", where=(nw.col("x") > nw.col("y_right")), how="semi")
    plan = compile_query(query.node, "local")
    assert [source.schema.names for source in plan.sources] == [["ts", "k", "x", "y"], ["ts", "k", "y"]]
    assert plan.query.schema == query.schema


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_without_keys_it_has_one_cell_on_spark(how: JoinHow) -> None:
    left, right = streams()
    query = left.join(right, within="1 s", how=how, name="near")
    compile_query(query.node, "spark", cells=1)
    with pytest.raises(
        UnsupportedError, match=f"step 'near': a join with how='{how}' and without on.*cells=1, join by a key"
    ):
        compile_query(query.node, "spark", cells=(1, 2))
    compile_query(left.join(right, on="k", within="1 s", how=how).node, "spark", cells=(1, 2))


def test_it_is_not_made_of_aggregates() -> None:
    left, right = streams()
    query = left.join(right, on="k", window="1 s", how="left", name="alone")
    with pytest.raises(
        UnsupportedError, match=r"step 'alone' cannot be made of Aggregates.*how='left' gives tuples beside pairs"
    ):
        compile_query(query.node, "local", operators="multi")


def test_explain_says_who_leaves_alone_and_when() -> None:
    left, right = streams()

    def told(how: JoinHow, **near: str) -> str:
        return " ".join(left.join(right, on="k", how=how, **near).explain(runtime="local").split())  # type: ignore[arg-type]

    assert "left join reads 1, 2; on k; within 1 second" in told("left", within="1 s")
    assert "left tuples in no pair leave too, when no partner can come any more" in told("left", within="1 s")
    assert "results leave as tuples come" in told("left", within="1 s")
    assert "results leave when settled" in told("semi", within="1 s")
    assert "left tuples in a pair leave once, when their first pair is settled" in told("semi", within="1 s")
    assert "left tuples in no pair leave when their windows end" in told("anti", window="1 s")
    assert "; tuples in no pair leave too, when their windows end" in told("full", window="1 s")
