"""Pass: a source hands out only the columns that some step reads."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tidegate.compile.join_columns import cut_join, read_by_join
from tidegate.compile.plan import Plan
from tidegate.compile.prune_columns import read_by
from tidegate.errors import InternalError
from tidegate.query import expressions
from tidegate.query.nodes import (
    Filter,
    Join,
    KeyedApply,
    MapBatches,
    Node,
    Select,
    Union,
    WindowAggregate,
    WithColumns,
    rewrite,
    walk,
)


def read_used_columns(plan: Plan) -> Plan:
    """Drop the columns that nothing reads, from the sources on.

    ::

        before   tweets (ts, user, lang, text) | with words = split(text) | count by each(words)
        after    tweets (ts, text) | with words = split(text) | count by each(words)

    What is not read is not decoded from a parquet file, not copied where a gate merges, not sent through an exchange and
    not kept by a join. A user's own function, and an aggregate that orders whole tuples, read every column. On Spark, Spark
    does this itself as far as an aggregate, so only queries that join are changed.

    >>> import pyarrow as pa
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "k": pa.int64(), "x": pa.int64()}, time="ts"))
    >>> query = calls.key_by("k").window("1 minute").aggregate(n=count())
    >>> read_used_columns(Plan(query.node, "local")).query.input.schema.names
    ['ts', 'k']
    """
    joins = any(isinstance(node, Join) for node in walk(plan.query))
    if not (plan.runtime == "local" or (plan.runtime == "spark" and joins)):
        return plan
    wanted: dict[int, set[str]] = {id(plan.query): set(plan.query.schema.names)}
    for node in reversed(list(walk(plan.query))):
        for upstream in node.inputs:
            wanted.setdefault(id(upstream), set()).update(_asked(node, upstream, wanted[id(node)]))
    kept = {id(node): _only(node.schema, wanted[id(node)]) for node in walk(plan.query)}
    return replace(plan, query=_rebuilt(plan.query, kept))


def _rebuilt(query: Node, kept: dict[int, pa.Schema]) -> Node:
    """The query with the schemas of its nodes cut down."""
    originals = iter(list(walk(query)))

    def cut(node: Node) -> Node:
        # Nodes come in the order of `walk`, perhaps over new inputs.
        schema = kept[id(next(originals))]
        if isinstance(node, MapBatches | WindowAggregate | KeyedApply) or schema.equals(node.schema):
            return node
        return cut_join(node, set(schema.names)) if isinstance(node, Join) else replace(node, schema=schema)

    return rewrite(query, cut)


def _asked(node: Node, upstream: Node, wanted: set[str]) -> set[str]:
    """The columns that a node needs of its input for those that are wanted of it."""
    before = upstream.schema
    match node:
        case Union():
            return wanted | {node.time}
        case Filter():
            return wanted | {node.time} | expressions.columns_read((node.predicate,), before)
        case Select():
            return {upstream.time} | expressions.columns_read(node.exprs, before)
        case WithColumns():
            made = set(expressions.select(before.empty_table(), node.exprs).column_names)
            return (wanted - made) | {node.time} | expressions.columns_read(node.exprs, before)
        case MapBatches() | KeyedApply():
            return set(before.names)
        case WindowAggregate():
            return read_by(node)
        case Join():
            return read_by_join(node, upstream, wanted)
        case _:
            raise InternalError(f"what {type(node).__name__} reads is not known")


def _only(schema: pa.Schema, names: set[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in names])
