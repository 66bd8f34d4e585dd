"""Pass: the query is cut into subqueries and the feeds between them (StreamCloud's operator sets, §III.A, figure 1.d)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidegate.compile.plan import OUTPUT, Feed, PlacedStep, Plan, Subquery
from tidegate.errors import InternalError
from tidegate.query.nodes import Late, Node, Outputs, Source, Stateless, Union, is_stateful, walk


def split_at_stateful(plan: Plan) -> Plan:
    """Cut the query before each stateful operator, the only place where tuples must be partitioned anew.

    ::

        before   calls | map | aggregate | filter
        after    calls ─ map ─▶ subquery 0: aggregate ─ filter ─▶ output

    Stateless steps belong to the feeds between subqueries, unions to no one: a subquery merges its feeds. What leads from a
    source to the output past every stateful operator is a subquery without an operator, which keeps the order of what it
    merges; everything else that leaves then passes it too.

    Of several results each is a side of the output. Each source that leads to some of them past every stateful operator has
    one such subquery, of its tuples as they are, so that what is common to the results is read once.

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts"))
    >>> counts = calls.filter(nw.col("k") > 1).key_by("k").window("1 minute").aggregate(n=count())
    >>> plan = split_at_stateful(Plan(counts.filter(nw.col("n") > 9).node, "spark"))
    >>> [[step.node.name for step in feed.steps] for feed in (*plan.subqueries[0].feeds, *plan.outputs)]
    [['filter_1'], ['filter_3']]
    """
    stateful = [node for node in walk(plan.query) if is_stateful(node)]
    number_of = {id(node): number for number, node in enumerate(stateful)}
    subqueries = [
        Subquery(number, node.name, node, _feeds(node.inputs, number, number_of))
        for number, node in enumerate(stateful)
    ]
    if isinstance(plan.query, Outputs):
        return _several(plan, plan.query, subqueries, number_of)
    outputs = _feeds((plan.query,), OUTPUT, number_of)
    if any(isinstance(feed.origin, Source) for feed in outputs):
        last = len(subqueries)
        subqueries.append(Subquery(last, plan.query.name, None, _feeds((plan.query,), last, number_of)))
        outputs = (Feed(last, (), OUTPUT, 0, 0, plan.query.time, plan.query.schema),)
    return replace(plan, subqueries=tuple(subqueries), outputs=outputs)


def _several(plan: Plan, query: Outputs, subqueries: list[Subquery], number_of: dict[int, int]) -> Plan:
    """The plan of several results: each source that one of them reads directly passes a subquery."""
    direct = {id(feed.origin): feed.origin for feed in _feeds(query.inputs, OUTPUT, number_of)}
    passing = [origin for origin in direct.values() if isinstance(origin, Source)]
    for number, source in enumerate(passing, start=len(subqueries)):
        feed = Feed(source, (), number, 0, 0, source.time, source.schema)
        subqueries.append(Subquery(number, source.name, None, (feed,)))
        number_of[id(source)] = number
    outputs = _feeds(query.inputs, OUTPUT, number_of)
    return replace(plan, subqueries=tuple(subqueries), outputs=outputs)


def _feeds(nodes: Sequence[Node], target: int, number_of: dict[int, int]) -> tuple[Feed, ...]:
    """The feeds of a target that reads these nodes, those of its first side first."""
    paths = [
        (side, node, origin, steps, late)
        for side, node in enumerate(nodes)
        for origin, steps, late in _paths(node, (), number_of)
    ]
    return tuple(
        Feed(origin, tuple(map(PlacedStep, steps)), target, position, side, node.time, node.schema, late)
        for position, (side, node, origin, steps, late) in enumerate(paths)
    )


def _paths(
    node: Node, after: tuple[Stateless, ...], number_of: dict[int, int]
) -> Iterator[tuple[Source | int, tuple[Stateless, ...], int | None]]:
    """The paths that lead to a node, each from where its tuples come from, and of which input they are late, if they are."""
    if id(node) in number_of:
        yield number_of[id(node)], after, None
        return
    match node:
        case Source():
            yield node, after, None
        case Late():
            yield number_of[id(node.operator)], after, node.side
        case Union():
            for upstream in node.inputs:
                yield from _paths(upstream, after, number_of)
        case _ if isinstance(node, Stateless):
            yield from _paths(node.input, (node, *after), number_of)
        case _:
            raise InternalError(f"no path leads through {type(node).__name__}")
