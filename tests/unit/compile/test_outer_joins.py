"""What the compiler does with joins that are not inner: what is read, said and refused."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.compile.compiler import compile_query
from tidegate.errors import UnsupportedError
from tidegate.operators.fingerprint import fingerprint, pair_grid_in
from tidegate.query.nodes import Join, JoinHow
from tidegate.state.pair_grid import PairGrid

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


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("left", "each left tuple goes to one cell and each right one to every cell"),
        ("semi", "one cell meets all partners of a left tuple and knows whether there are any"),
        ("anti", "each left tuple goes to one cell and each right one to every cell"),
        ("right", "each right tuple goes to one cell and each left one to every cell"),
        ("full", "every cell gets all tuples, and knows of its share of them whether there are partners"),
    ],
)
def test_explain_says_where_tuples_go_without_keys(how: JoinHow, told: str) -> None:
    left, right = streams()
    query = left.join(right, within="1 s", how=how, name="near")
    assert told in " ".join(query.explain(runtime="spark", cells=(1, 8)).split())
    assert told not in " ".join(query.explain(runtime="local").split())


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_state_without_keys_tells_which_sides_are_judged(how: JoinHow) -> None:
    left, right = streams()
    join = left.join(right, within="1 s", how=how).node
    assert isinstance(join, Join)
    assert pair_grid_in(fingerprint(join)) == PairGrid(join.judged_sides)
    keyed = left.join(right, on="k", within="1 s", how=how).node
    assert isinstance(keyed, Join) and pair_grid_in(fingerprint(keyed)) is None


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
