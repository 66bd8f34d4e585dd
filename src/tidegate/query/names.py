"""What streams and steps are called: a given name is kept, and those that nobody gave are told apart by a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from tidegate.errors import QueryError
from tidegate.query.nodes import Node, walk
from tidegate.query.rewrite import with_inputs

_KINDS = {
    "WithColumns": "with_columns",
    "WindowAggregate": "aggregate",
    "KeyedApply": "apply",
    "MapBatches": "map_batches",
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
    done: dict[int, Node] = {}
    for node in walk(query):
        same = with_inputs(node, tuple(done[id(upstream)] for upstream in node.inputs))
        if isinstance(node.name, DefaultName):
            name = next(name for name in _candidates(node.name) if name not in taken)
            taken.add(name)
            same = same if name == node.name else replace(same, name=name)
        done[id(node)] = same
    return done[id(query)]


def _candidates(name: str) -> Iterator[DefaultName]:
    yield DefaultName(name)
    yield from (DefaultName(f"{name}-{number}") for number in count(2))


def _kind(node: Node, other: Node | None = None) -> str:
    """What a node is, for a message that has named the other one."""
    called = type(node).__name__
    noun = "stream" if called == "Source" else _KINDS.get(called, called.lower())
    if other is not None and type(other) is type(node):
        return f"another {noun}"
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
