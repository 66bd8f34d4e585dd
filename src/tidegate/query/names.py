"""Names of streams and steps: one that a user gave is kept, and default names are told apart by a number."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count

from tidegate.errors import QueryError
from tidegate.query.nodes import Node, rewrite, walk

_KINDS = {
    "WithColumns": "with_columns",
    "WindowAggregate": "aggregate",
    "SessionAggregate": "aggregate of sessions",
    "CountAggregate": "aggregate of count windows",
    "KeyedApply": "apply",
    "AsOf": "as-of join",
    "CountJoin": "join over the last tuples",
    "MapBatches": "map_batches",
    "LookupTable": "lookup",
    "BagAggregate": "aggregate of bags",
    "Late": "stream of late tuples",
}


class DefaultName(str):
    """A name that no user gave, so it may be changed to tell nodes of one query apart."""

    __slots__ = ()


def step_name(kind: str, name: str | None, *inputs: Node) -> str:
    """The name given to a step, or its kind and how many nodes lie before it."""
    default = DefaultName(f"{kind}_{len({id(node) for upstream in inputs for node in walk(upstream)})}")
    if name is not None and not isinstance(name, str):
        raise QueryError(f"step '{default}': name is text; got {name!r}")
    return name or default


def check_names(query: Node) -> None:
    """Refuse two different nodes whose names were given and are the same; one that is read twice is one."""
    given: dict[str, Node] = {}
    for node in walk(query):
        if not isinstance(node.name, DefaultName):
            other = given.setdefault(node.name, node)
            if other is not node:
                raise QueryError(
                    f"{_kind(other)} and {_kind(node, other)} are both called '{node.name}', and one query tells its "
                    "streams and steps apart by their names; give one of them another, name='...'"
                )


def unique_names(query: Node) -> Node:
    """The same query in which every node has a name of its own.

    What every runtime, `explain` and the reference begin with, so all of them say the same. It depends on the query alone,
    inputs before what reads them, and a query that has been through stays as it is.

    ::

        before   table, table, aggregate_3       after   table, table-2, aggregate_3

    >>> import pyarrow as pa
    >>> from tidegate.query.builder import Builder, source
    >>> a, b = (Builder(source(DefaultName("table"), {"ts": pa.timestamp("us")}, time="ts")) for _ in range(2))
    >>> [str(node.name) for node in walk(unique_names(a.union(b).node))]
    ['table', 'table-2', 'union_1']
    """
    check_names(query)
    taken = {str(node.name) for node in walk(query) if not isinstance(node.name, DefaultName)}

    def renamed(node: Node) -> Node:
        if not isinstance(node.name, DefaultName):
            return node
        candidates = chain([node.name], (f"{node.name}-{number}" for number in count(2)))
        name = DefaultName(next(name for name in candidates if name not in taken))
        taken.add(name)
        return node if name == node.name else replace(node, name=name)

    return rewrite(query, renamed)


def _kind(node: Node, other: Node | None = None) -> str:
    """What a node is, for a message that has named the other one."""
    called = type(node).__name__
    noun = "stream" if called == "Source" else _KINDS.get(called, called.lower())
    if other is not None and type(other) is type(node):
        return f"another {noun}"
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
