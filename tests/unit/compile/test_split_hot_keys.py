from __future__ import annotations

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.cases import AGGREGATES, SCHEMA
from tests.kit.spark_driver import Batch, Driver
from tidegate.compile.compiler import compile_query
from tidegate.compile.split_hot_keys import checked_hot_keys, split_hot_keys
from tidegate.errors import CheckpointError, QueryError, UnsupportedError
from tidegate.operators.keyed_states import logic_of
from tidegate.query.keys import KeyParts
from tidegate.query.nodes import Join, WindowAggregate
from tidegate.query.partial_aggregates import state_fields
from tidegate.reference import interpret
from tidegate.testing import difference

TIME = pa.timestamp("us", tz="UTC")


def skewed(rows: int = 2_000) -> pa.Table:
    """One key has four of five tuples, each with a value of its own."""
    number = np.arange(rows)
    values = np.random.default_rng(1).integers(0, 1 << 62, rows)
    return pa.table(
        {
            "ts": pa.array(number * 1_000, TIME),
            "k": np.where(number % 5, 0, number % 50),
            "v": values,
            "g": number % 7,
        }
    )


CALLS = tg.stream(skewed(), time="ts", name="calls")
BY_KEY = CALLS.key_by("k").window("1 second", name="seconds")


def users(**aggregates: tg.Aggregate) -> tg.Stream:
    return BY_KEY.aggregate(**(aggregates or {"n": tg.distinct("v")}), name="users")


def told(query: tg.Stream) -> dict[str, str]:
    return split_hot_keys(query.node, True)[1]


def test_distinct_values_decide_the_part_and_are_counted() -> None:
    first, second = (subquery.operator for subquery in compile_query(users().node, hot_keys=True).subqueries)
    assert isinstance(first, WindowAggregate) and isinstance(second, WindowAggregate)
    assert isinstance(first.keys, KeyParts) and first.keys.by == ("v",)
    assert [str(each) for _, each in (*first.aggregates, *second.aggregates)] == ["distinct(v)", "sum(n)"]


@pytest.mark.parametrize(
    "aggregates", [{"all": tg.collect("v")}, {"n": tg.distinct("v"), "m": tg.distinct("g")}], ids=["collect", "two"]
)
def test_else_the_whole_tuple_decides_the_part(aggregates: dict[str, tg.Aggregate]) -> None:
    first = compile_query(users(**aggregates).node, hot_keys=True).subqueries[0].operator
    assert isinstance(first, WindowAggregate) and isinstance(first.keys, KeyParts)
    assert first.keys.by == tuple(first.input.schema.names)


def test_states_of_bounded_size_are_not_split() -> None:
    small = users(n=tg.count(), t=tg.mean("v"), top=tg.top_k("v", 5_000), last=tg.last("v"))
    assert "nothing to split: of each key one state of bounded size for a slice" in told(small)["users"]
    assert split_hot_keys(small.node, True)[0] is small.node
    sessions = CALLS.key_by("k").session("1 second").aggregate(n=tg.count(), name="sessions")
    assert "for a part of a session" in told(sessions)["sessions"]


def test_a_join_by_key_is_put_on_a_grid_and_one_without_is_there() -> None:
    joined = CALLS.join(CALLS.select("ts", "k"), on="k", within="1 ms", name="pairs")
    split, said = split_hot_keys(joined.node, True)
    assert isinstance(split, Join) and split.is_on_grid and "meet in many cells" in said["pairs"]
    others = tg.stream(skewed(1).rename_columns(["ts2", "k2", "v2", "g2"]), time="ts2", name="others")
    free = CALLS.join(others, within="1 ms", name="pairs")
    assert "there are no keys" in told(free)["pairs"]


def test_what_is_never_split_is_refused_by_name() -> None:
    once = CALLS.dedup("k", within="1 second", name="once")
    with pytest.raises(UnsupportedError, match=r"step 'once' is never split: dedup compares .*; leave hot_keys out"):
        split_hot_keys(once.node, True)
    late = CALLS.key_by("k").window("1 second", lateness="1 second").aggregate(n=tg.distinct("v"), name="late")
    with pytest.raises(UnsupportedError, match="step 'late' is never split: a window with lateness="):
        split_hot_keys(late.node, True)
    sessions = CALLS.key_by("k").session("1 second").aggregate(n=tg.collect("v"), name="visits")
    with pytest.raises(UnsupportedError, match="step 'visits' is never split: which tuples make a session"):
        split_hot_keys(sessions.node, True)


def test_steps_to_split_can_be_named_and_a_refusal_names_them() -> None:
    once = CALLS.dedup(["k", "v"], within="1 second", name="once")
    query = once.key_by("k").window("1 second").aggregate(n=tg.distinct("v"), name="users")
    with pytest.raises(
        UnsupportedError, match=r"step 'once' is never split: .*; name the steps to split, hot_keys=\('users',\)"
    ):
        split_hot_keys(query.node, True)
    assert list(split_hot_keys(query.node, ("users",))[1]) == ["users", "users, merged"]
    with pytest.raises(QueryError, match="there is no stateful step 'user'; there is 'once', 'users'"):
        split_hot_keys(query.node, ("user",))


@pytest.mark.parametrize("given", [1, (), ("a", 2), None])
def test_hot_keys_are_steps_or_all(given: object) -> None:
    with pytest.raises(QueryError, match="hot_keys is True, False, or the names of the steps"):
        checked_hot_keys(given)
    assert (checked_hot_keys("a"), checked_hot_keys(["a", "b"]), checked_hot_keys(True)) == (("a",), ("a", "b"), True)


def test_explain_says_how_keys_are_split_and_other_runtimes_refuse_to() -> None:
    shown = users().explain(cells=4, hot_keys=True)
    assert "hot keys  split: each key in 16 parts by v, merged when a window is emitted" in shown
    assert "hot keys  merges the parts of 'users', and keeps nothing between batches" in shown
    with pytest.raises(QueryError, match="hot_keys=True is for on='spark'; on='local' pins no key to one instance"):
        tg.run(users(), on="local", hot_keys=True)


@pytest.mark.parametrize("kind", ["distinct", "collect", "join"])
def test_no_cell_has_much_more_of_one_key_than_its_share(kind: str) -> None:
    """Without the split, the cell of the key gets four of five tuples."""
    query = {
        "distinct": users(),
        "collect": users(v=tg.collect("v")),
        "join": CALLS.join(CALLS.select("ts", "k", w=nw.col("v")), on="k", within="2 ms", name="users"),
    }[kind]
    most, rows = {}, 600 if kind == "join" else 2_000
    tuples, quarter = skewed(rows), rows // 4
    batches = [Batch({"calls": [tuples.slice(at, quarter)]}) for at in range(0, rows, quarter)]
    for hot_keys in (False, True):
        outcome = Driver(query.node, 4, hot_keys=hot_keys).run(batches)
        kept = [0] * 4
        for one in (one for told in outcome.reports for one in told if one.get("step", "").endswith(":users")):
            kept[one["cell"]] += one["state_bytes"]
        most[hot_keys] = max(kept) / sum(kept)
        law = interpret(query.node, outcome.events).rows
        assert difference(pa.concat_tables(outcome.tables), law) is None
    assert most[False] > 0.5 and most[True] < 0.35, most


def test_a_state_with_split_keys_is_not_one_without(tmp_path) -> None:
    Driver(users().node, 2, tmp_path, seed=1).batch(Batch({"calls": [skewed(100)]}))
    other = Driver(users().node, 2, tmp_path, seed=2, hot_keys=True)
    other.number = 1
    with pytest.raises(CheckpointError, match=r"it holds «keys k .*», the query wants «keys k, in 16 parts by v"):
        other.batch(Batch({"calls": [skewed(100)]}))


@pytest.mark.parametrize("name", ["sum of integers", "sum of floats", "mean of integers", "distinct", "monoid"])
def test_the_state_of_a_part_has_the_columns_that_operators_keep(name: str) -> None:
    assert state_fields(AGGREGATES[name], SCHEMA) == list(logic_of(AGGREGATES[name], SCHEMA, "ts").fields)
