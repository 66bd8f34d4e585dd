"""Pass: the query is cut into subqueries (StreamCloud's operator-set strategy, §III.A and figure 1.d)."""

from __future__ import annotations

from dataclasses import replace

from tidegate.compile.plan import Plan, Subquery
from tidegate.query.nodes import Node, Source, Stateful, is_stateful, walk

_PREFIX = 0


def split_at_stateful(plan: Plan) -> Plan:
    """Cut the query before each stateful operator, the only place where tuples must be dealt out anew.

    ::

        before   calls | map | aggregate | filter
        after    subquery 1: calls, map     subquery 2: aggregate, filter

    A query has as many subqueries as stateful operators, and one more if it begins with stateless ones. A union of
    several subqueries belongs to the last of them. A source counts as no operator: it goes with the first subquery that
    reads it.

    >>> import narwhals as nw, pyarrow as pa
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts"))
    >>> counts = calls.filter(nw.col("k") > 1).key_by("k").window("1 minute").aggregate(n=count())
    >>> plan = split_at_stateful(Plan(counts.filter(nw.col("n") > 9).node, "spark"))
    >>> [[node.name for node in subquery.nodes] for subquery in plan.subqueries]
    [['calls', 'filter_1'], ['aggregate_2', 'filter_3']]
    """
    return replace(plan, subqueries=split(plan.query))


def split(query: Node) -> tuple[Subquery, ...]:
    """The subqueries of a query, each after those it reads."""
    members: dict[int, list[Node]] = {}
    owners = _owners(query)
    for node in walk(query):
        members.setdefault(owners[id(node)], []).append(node)
    return tuple(
        Subquery(f"subquery {number}", tuple(members[owner]), _stateful(members[owner]))
        for number, owner in enumerate(sorted(members), start=1)
    )


def _owners(query: Node) -> dict[int, int]:
    """Which subquery each node belongs to: 0 for the prefix, then one number for each stateful operator."""
    owners: dict[int, int] = {}
    stateful = _PREFIX
    for node in walk(query):
        if is_stateful(node):
            stateful += 1
            owners[id(node)] = stateful
        elif not isinstance(node, Source):
            owners[id(node)] = max(owners.get(id(upstream), _PREFIX) for upstream in node.inputs)
    for node in walk(query):
        if isinstance(node, Source):
            readers = [owners[id(other)] for other in walk(query) if any(node is read for read in other.inputs)]
            owners[id(node)] = min(readers, default=_PREFIX)
    return owners


def _stateful(nodes: list[Node]) -> Stateful | None:
    return next((node for node in nodes if is_stateful(node)), None)
