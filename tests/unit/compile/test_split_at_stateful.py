from __future__ import annotations

import narwhals as nw

from tidegate.compile.plan import OUTPUT, Feed, Plan
from tidegate.compile.split_at_stateful import split_at_stateful
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder
from tidegate.query.nodes import Source
from tidegate.query.outputs import outputs_node

a = nw.col("a")


def counted(stream: Builder, name: str) -> Builder:
    return stream.key_by("a").window("1 minute").aggregate(n=count(), name=name)


def split(stream: Builder) -> dict[str, list[str]]:
    """For each subquery, and for the output, its feeds as 'origin: steps'."""
    plan = split_at_stateful(Plan(stream.node, "reference"))
    assert [subquery.number for subquery in plan.subqueries] == list(range(len(plan.subqueries)))

    def shown(feed: Feed) -> str:
        origin = feed.origin.name if isinstance(feed.origin, Source) else plan.subqueries[feed.origin].name
        return ": ".join([origin, *filter(None, [" ".join(step.node.name for step in feed.steps)])])

    for target, feeds in [*((sub.number, sub.feeds) for sub in plan.subqueries), (OUTPUT, plan.outputs)]:
        assert [(feed.target, feed.input) for feed in feeds] == [(target, at) for at in range(len(feeds))]
    return {sub.name: [shown(feed) for feed in sub.feeds] for sub in plan.subqueries} | {
        "output": [shown(feed) for feed in plan.outputs]
    }


def test_heavy_customers(heavy_customers) -> None:
    assert split(heavy_customers) == {"per_customer": ["calls: length"], "output": ["per_customer: heavy"]}


def test_without_stateless_steps_feeds_are_bare(numbers) -> None:
    assert split(counted(numbers, "g")) == {"g": ["numbers"], "output": ["g"]}


def test_a_stateless_query_is_a_subquery_without_an_operator(numbers) -> None:
    assert split(numbers) == {"numbers": ["numbers"], "output": ["numbers"]}
    assert split(numbers.filter(a > 1, name="f")) == {"f": ["numbers: f"], "output": ["f"]}


def test_each_stateful_step_begins_a_subquery(numbers) -> None:
    first = counted(numbers.filter(a > 1, name="f"), "g").filter(nw.col("n") > 1, name="h")
    assert split(counted(first, "i")) == {"g": ["numbers: f"], "i": ["g: h"], "output": ["i"]}


def test_several_results_are_sides_of_the_output_and_a_source_passes_once(numbers) -> None:
    counts, low = counted(numbers, "g"), numbers.filter(a < 1, name="low")
    results = {"counts": counts, "busy": counts.filter(nw.col("n") > 1, name="busy"), "low": low, "all": numbers}
    query = Builder(outputs_node("test", results))
    assert split(query) == {
        "g": ["numbers"],
        "numbers": ["numbers"],
        "output": ["g", "g: busy", "numbers: low", "numbers"],
    }
    plan = split_at_stateful(Plan(query.node, "reference"))
    assert [feed.side for feed in plan.outputs] == [0, 1, 2, 3]
    assert [feed.schema.names for feed in plan.outputs] == [stream.schema.names for stream in results.values()]


def test_the_branches_of_a_union_are_feeds(numbers, more_numbers) -> None:
    both = numbers.filter(a > 1, name="f").union(more_numbers, name="u").filter(a > 2, name="g")
    assert split(counted(both, "c")) == {"c": ["numbers: f g", "more: g"], "output": ["c"]}


def test_a_union_of_subqueries_has_two_feeds_out(numbers, more_numbers) -> None:
    both = counted(numbers, "g").union(counted(more_numbers, "h"), name="u")
    assert split(both) == {"g": ["numbers"], "h": ["more"], "output": ["g", "h"]}


def test_what_passes_every_stateful_step_merges_with_the_rest(numbers) -> None:
    raw = numbers.select("ts", "a", name="raw")
    counts = counted(numbers, "g").select("ts", "a", name="s")
    assert split(counts.union(raw, name="u")) == {"g": ["numbers"], "u": ["g: s", "numbers: raw"], "output": ["u"]}


def test_the_two_sides_of_a_self_join_have_their_own_feeds(numbers) -> None:
    plan = split_at_stateful(Plan(numbers.join(numbers.filter(a > 1), within="1 second").node, "local"))
    assert [(feed.side, len(feed.steps)) for feed in plan.subqueries[0].feeds] == [(0, 0), (1, 1)]
