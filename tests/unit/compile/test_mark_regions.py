from __future__ import annotations

import narwhals as nw
import pyarrow as pa
import pytest

from tidegate.compile.mark_regions import mark_regions
from tidegate.compile.plan import Plan
from tidegate.compile.split_at_stateful import split_at_stateful
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder
from tidegate.query.keys import each, keys

a = nw.col("a")


def regions(stream: Builder) -> list[tuple[str, bool, str]]:
    marked = [sub.region for sub in mark_regions(split_at_stateful(Plan(stream.node, "spark"))).subqueries]
    return [(region.state, region.ordered, region.selectivity) for region in marked if region is not None]


def test_heavy_customers(heavy_customers) -> None:
    assert regions(heavy_customers) == [("stateless", False, "exactly one"), ("partitioned", False, "any")]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s, "exactly one"),
        (lambda s: s.with_columns(x=a).select("ts", "x"), "exactly one"),
        (lambda s: s.union(s), "exactly one"),
        (lambda s: s.with_columns(x=a).filter(a > 1).select("ts"), "at most one"),
        (lambda s: s.filter(a > 1).map_batches(lambda batch: batch), "any"),
        (lambda s: s.map_batches(lambda batch: batch).filter(a > 1), "any"),
    ],
)
def test_a_stateless_region_is_as_loose_as_its_loosest_step(build, expected, numbers) -> None:
    assert regions(build(numbers)) == [("stateless", False, expected)]


def test_one_key_and_window_per_tuple_makes_at_most_one_row(numbers) -> None:
    keyed = numbers.key_by("a")
    assert regions(keyed.window("1 minute").aggregate(n=count())) == [("partitioned", False, "at most one")]
    assert regions(keyed.window("1 minute", every="7 s").aggregate(n=count())) == [("partitioned", False, "any")]


def test_many_keys_make_any_number_of_rows(numbers) -> None:
    words = numbers.with_columns(words=nw.col("text").str.split(" ")).key_by(each("words"))
    assert regions(words.window("1 minute").aggregate(n=count()))[1] == ("partitioned", False, "any")

    def sign(batch: pa.RecordBatch) -> pa.ListArray:
        return pa.array([[value > 0] for value in batch.column("a").to_pylist()], pa.list_(pa.bool_()))

    signs = numbers.key_by(keys(sign, columns={"positive": pa.bool_()}))
    assert regions(signs.window("1 minute").aggregate(n=count())) == [("partitioned", False, "any")]


def test_the_reason_names_the_step(numbers, heavy_customers) -> None:
    plan = mark_regions(split_at_stateful(Plan(heavy_customers.node, "spark")))
    assert plan.subqueries[1].region is not None
    assert plan.subqueries[1].region.why == (
        "tuples that share a key (src) meet in one instance; 'per_customer' counts a tuple in several windows"
    )
