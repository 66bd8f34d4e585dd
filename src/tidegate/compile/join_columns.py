"""Which columns a join reads, and a join that makes fewer."""

from __future__ import annotations

from dataclasses import replace

import narwhals as nw
import pyarrow as pa

from tidegate.query import expressions
from tidegate.query.nodes import Join, Node
from tidegate.query.predicates.tree import Side, columns_of


def read_by_join(node: Join, upstream: Node, wanted: set[str]) -> set[str]:
    """The columns that a join needs of an input, which may be both of its sides, for those that are wanted of it."""
    sides: tuple[Side, ...] = (0, 1)
    return {name for side in sides if node.inputs[side] is upstream for name in _read_of(node, side, wanted)}


def cut_join(node: Join, wanted: set[str]) -> Join:
    """A join without the columns that nobody wants and its predicate does not read."""
    columns = tuple(made for made in node.columns if made.name in wanted | _read_by_expression(node))
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
    return set(expressions.columns_read((node.where.given,), node.schema))
