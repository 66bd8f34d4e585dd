from __future__ import annotations

import narwhals as nw

from tidegate.compile.push_through_union import push_through_union
from tidegate.query.aggregates import count
from tidegate.query.builder import Builder
from tidegate.query.nodes import Node, Source, Union, WindowAggregate, sources, walk

a, b = nw.col("a"), nw.col("b")


def counted(stream: Builder, name: str = "counts") -> Builder:
    return stream.key_by("a").window("1 minute").aggregate(n=count(), name=name)


def chain(node: Node) -> str:
    """A branch as the names of its steps, source first."""
    if isinstance(node, Source):
        return node.name
    assert len(node.inputs) == 1
    return f"{chain(node.inputs[0])} | {node.name}"


def branches(aggregate: Node) -> list[str]:
    below = aggregate.inputs[0]
    return [chain(branch) for branch in (below.inputs if isinstance(below, Union) else (below,))]


def test_steps_after_a_union_move_into_its_branches(numbers, more_numbers, tables, evaluate) -> None:
    both = numbers.filter(b > 0, name="f").union(more_numbers, name="both")
    before = counted(both.with_columns(x=a + 1, name="m").filter(nw.col("x") > 1, name="g")).node
    after = push_through_union(before)
    assert branches(after) == ["numbers | f | m | g", "more | m | g"]
    assert after.inputs[0].name == "both"
    assert after.inputs[0].schema == before.inputs[0].schema
    assert evaluate(after.inputs[0], tables).equals(evaluate(before.inputs[0], tables))


def test_nested_unions_become_one(numbers, more_numbers, tables, evaluate) -> None:
    inner = numbers.union(more_numbers).filter(a > 1, name="f")
    before = counted(inner.union(numbers.filter(b > 5, name="g")).map_batches(lambda batch: batch, name="m")).node
    after = push_through_union(before)
    assert branches(after) == ["numbers | f | m", "more | f | m", "numbers | g | m"]
    assert evaluate(after.inputs[0], tables).equals(evaluate(before.inputs[0], tables))
    assert sources(after) == (numbers.node, more_numbers.node)


def test_a_stream_that_meets_itself_counts_twice(numbers) -> None:
    after = push_through_union(counted(numbers.union(numbers).filter(a > 1, name="f")).node)
    assert branches(after) == ["numbers | f", "numbers | f"]


def test_a_union_of_one_stream_is_that_stream(numbers) -> None:
    assert branches(push_through_union(counted(numbers.union().filter(a > 1, name="f")).node)) == ["numbers | f"]


def test_unions_after_the_last_stateful_step_stay(numbers) -> None:
    counts = counted(numbers)
    query = counts.union(counts.filter(nw.col("n") > 9)).filter(nw.col("n") > 1).node
    assert push_through_union(query) is query


def test_a_union_between_two_stateful_steps_moves(numbers, more_numbers) -> None:
    first, second = counted(numbers, "first"), counted(more_numbers, "second")
    after = push_through_union(counted(first.union(second).filter(nw.col("n") > 1, name="f"), "last").node)
    assert branches(after) == ["numbers | first | f", "more | second | f"]


def test_another_reader_of_the_union_keeps_it(numbers, more_numbers) -> None:
    both = numbers.union(more_numbers, name="both").filter(a > 1, name="f")
    counts = counted(both).select("ts", "a", name="s")
    after = push_through_union(counts.union(both.select("ts", "a", name="raw")).node)
    assert [branches(node) for node in walk(after) if isinstance(node, WindowAggregate)] == [
        ["numbers | f", "more | f"]
    ]
    raw = after.inputs[1].inputs[0]
    assert (raw.name, raw.inputs[0].name) == ("f", "both")


def test_nothing_to_push_changes_nothing(numbers, more_numbers) -> None:
    for query in (counted(numbers.filter(a > 1)), counted(numbers.union(more_numbers.filter(a > 1)))):
        assert push_through_union(query.node) is query.node
