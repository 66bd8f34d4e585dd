from __future__ import annotations

import narwhals as nw

from tidegate.compile.plan import Plan
from tidegate.compile.split_at_stateful import split_at_stateful
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder
from tidegate.query.nodes import walk

a = nw.col("a")


def counted(stream: Builder, name: str) -> Builder:
    return stream.key_by("a").window("1 minute").aggregate(n=count(), name=name)


def split(stream: Builder) -> list[list[str]]:
    plan = split_at_stateful(Plan(stream.node, "reference"))
    assert [subquery.name for subquery in plan.subqueries] == [f"subquery {n + 1}" for n in range(len(plan.subqueries))]
    assert sorted(id(node) for subquery in plan.subqueries for node in subquery.nodes) == sorted(
        id(node) for node in walk(stream.node)
    )
    for subquery in plan.subqueries:
        assert subquery.stateful is None or subquery.stateful in subquery.nodes
    return [[node.name for node in subquery.nodes] for subquery in plan.subqueries]


def test_heavy_customers_are_two_subqueries(heavy_customers) -> None:
    assert split(heavy_customers) == [["calls", "length"], ["per_customer", "heavy"]]


def test_without_stateless_steps_in_front_there_is_no_prefix(numbers) -> None:
    assert split(counted(numbers, "g").filter(nw.col("n") > 1, name="f")) == [["numbers", "g", "f"]]


def test_a_stateless_query_is_its_own_prefix(numbers) -> None:
    assert split(numbers) == [["numbers"]]
    assert split(numbers.filter(a > 1, name="f")) == [["numbers", "f"]]


def test_each_stateful_step_begins_a_subquery(numbers) -> None:
    first = counted(numbers.filter(a > 1, name="f"), "g").filter(nw.col("n") > 1, name="h")
    assert split(counted(first, "i")) == [["numbers", "f"], ["g", "h"], ["i"]]


def test_a_union_below_a_stateful_step_is_in_the_prefix(numbers, more_numbers) -> None:
    both = numbers.filter(a > 1, name="f").union(more_numbers, name="u")
    assert split(counted(both, "g")) == [["numbers", "f", "more", "u"], ["g"]]


def test_a_union_of_subqueries_belongs_to_the_last(numbers, more_numbers) -> None:
    both = counted(numbers, "g").union(counted(more_numbers, "h"), name="u")
    assert split(both) == [["numbers", "g"], ["more", "h", "u"]]


def test_a_source_goes_with_its_first_reader(numbers) -> None:
    raw = numbers.select("ts", "a", name="raw")
    counts = counted(numbers, "g").select("ts", "a", name="s")
    assert split(counts.union(raw, name="u")) == [["numbers", "raw"], ["g", "s", "u"]]
