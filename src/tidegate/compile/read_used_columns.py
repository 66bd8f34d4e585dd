"""Pass: sources read, and steps pass on, only the columns that something reads."""

from __future__ import annotations

from dataclasses import replace

import narwhals as nw
import pyarrow as pa

from tidegate.compile.plan import Feed, Plan
from tidegate.errors import InternalError
from tidegate.query import expressions
from tidegate.query.aggregates import Ranked
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    Filter,
    Join,
    KeyedApply,
    MapBatches,
    Node,
    Outputs,
    Running,
    Select,
    SessionAggregate,
    Union,
    WindowAggregate,
    WithColumns,
    rewrite,
    sources,
    walk,
)
from tidegate.query.predicates.tree import Side, columns_of

_ALL_COLUMNS = MapBatches | KeyedApply | BagAggregate | Running | Dedup | CountAggregate | CountJoin
"""What reads every column: order is that of whole tuples."""
_KEEP_THEIR_COLUMNS = _ALL_COLUMNS | WindowAggregate | SessionAggregate


def read_used_columns(plan: Plan) -> Plan:
    """Drop the columns that nothing reads, from the sources on.

    ::

        before   tweets (ts, user, lang, text) | with words = split(text) | count by each(words)
        after    tweets (ts, text) | with words = split(text) | count by each(words)

    What is not read is not decoded from a parquet file, not copied where a gate merges, not sent through an exchange and
    not kept by a join. A user's own function, and an aggregate that orders whole tuples, read every column.

    >>> import pyarrow as pa
    >>> from tidegate.query.aggregates import count
    >>> from tidegate.query.builder import Builder, source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "k": pa.int64(), "x": pa.int64()}, time="ts"))
    >>> query = calls.key_by("k").window("1 minute").aggregate(n=count())
    >>> read_used_columns(Plan(query.node, "local")).query.input.schema.names
    ['ts', 'k']
    """
    if plan.runtime == "reference":
        return plan
    wanted: dict[int, set[str]] = {id(plan.query): set(plan.query.schema.names)}
    for node in reversed(list(walk(plan.query))):
        for upstream in node.inputs:
            wanted.setdefault(id(upstream), set()).update(_asked(node, upstream, wanted[id(node)]))
    for source in sources(plan.query):
        if source.stamped and wanted[id(source)] <= {source.time}:
            # What comes from outside has a column, by which its rows are counted.
            wanted[id(source)].add(source.read_schema.names[0])
    kept = {id(node): _only(node.schema, wanted[id(node)]) for node in walk(plan.query)}
    return replace(plan, query=_rebuilt(plan.query, kept))


def columns_read_by(feed: Feed) -> set[str]:
    """The columns of its origin that a feed reads; where several feeds begin at one place each may read others."""
    wanted = set(feed.schema.names)
    for node in (step.node for step in reversed(feed.steps)):
        # What a step makes for any of its readers it makes for all of them; a filter makes nothing.
        wanted = _asked(node, node.input, wanted if isinstance(node, Filter) else set(node.schema.names))
    return wanted


def _rebuilt(query: Node, kept: dict[int, pa.Schema]) -> Node:
    """The query with the schemas of its nodes cut down."""
    originals = iter(list(walk(query)))

    def cut(node: Node) -> Node:
        # Nodes come in the order of `walk`, perhaps over new inputs.
        schema = kept[id(next(originals))]
        if isinstance(node, Join):
            return _cut_join(node, set(schema.names))
        given = isinstance(node, _KEEP_THEIR_COLUMNS)
        if given or schema.equals(node.schema):
            return node
        if isinstance(node, AsOf):
            columns = tuple(made for made in node.columns if made.name in schema.names)
            return replace(node, columns=columns, schema=schema)
        return replace(node, schema=schema)

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
        case _ if isinstance(node, _ALL_COLUMNS | Outputs):
            return set(before.names)
        case WindowAggregate() | SessionAggregate():
            return read_by(node)
        case AsOf():
            return _read_by_as_of(node, upstream, wanted)
        case Join():
            return _read_by_join(node, upstream, wanted)
        case _:
            raise InternalError(f"what {type(node).__name__} reads is not known")


def _only(schema: pa.Schema, names: set[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in names])


def read_by(node: WindowAggregate | SessionAggregate) -> set[str]:
    """The columns of its input that an aggregate reads; all of them where it orders whole tuples."""
    everything = set(node.input.schema.names)
    reads = node.keys.reads()
    if reads is None:
        return everything
    needed = {node.time, *reads}
    for _, aggregate in node.aggregates:
        if isinstance(aggregate, Ranked) and aggregate.by != aggregate.take:
            return everything
        needed.update(aggregate.columns())
    return needed


def _read_by_as_of(node: AsOf, upstream: Node, wanted: set[str]) -> set[str]:
    """The columns that an as-of join needs of an input: all of the right one, as order is that of whole tuples."""
    left, right = node.inputs
    keys = node.keys[0].reads()
    if upstream is right or keys is None:
        return set(upstream.schema.names)
    return {left.time, *keys, *(made.column for made in node.columns if made.side == 0 and made.name in wanted)}


def _read_by_join(node: Join, upstream: Node, wanted: set[str]) -> set[str]:
    """The columns that a join needs of an input, which may be both of its sides, for those that are wanted of it."""
    sides: tuple[Side, ...] = (0, 1)
    return {name for side in sides if node.inputs[side] is upstream for name in _read_of(node, side, wanted)}


def _cut_join(node: Join, wanted: set[str]) -> Join:
    """A join without the columns that are not wanted and that its predicate does not read."""
    columns = tuple(made for made in node.columns if made.name in wanted | _read_by_expression(node))
    if len(columns) == len(node.columns):
        return node
    own = {node.time} if node.window is None else {node.time, "window_start", "window_end"}
    kept = own | {made.name for made in columns}
    return replace(node, columns=columns, schema=pa.schema([field for field in node.schema if field.name in kept]))


def _read_of(node: Join, side: Side, wanted: set[str]) -> set[str]:
    upstream, where = node.inputs[side], node.where
    if where is not None and where.tree is None and not isinstance(where.given, nw.Expr):
        return set(upstream.schema.names)
    read = {upstream.time, *(names[side] for names in node.on)}
    if where is not None and where.tree is not None:
        read |= {column.name for column in columns_of(where.tree, side)}
    named = wanted | _read_by_expression(node)
    return read | {made.column for made in node.columns if made.side == side and made.name in named}


def _read_by_expression(node: Join) -> set[str]:
    """The columns of a pair that the predicate reads as such."""
    if node.where is None or node.where.tree is not None or not isinstance(node.where.given, nw.Expr):
        return set()
    return set(expressions.columns_read((node.where.given,), node.pair_schema))
