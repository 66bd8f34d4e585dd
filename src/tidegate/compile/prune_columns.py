"""Drops columns that nobody reads on the way into a stateful step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.query import expressions
from tidegate.query.aggregates import Ranked
from tidegate.query.nodes import Filter, MapBatches, Select, Stateful, Stateless, WindowAggregate, WithColumns


@dataclass(frozen=True, slots=True)
class Pruned:
    """Steps over fewer columns; ``columns`` is what they need to get."""

    columns: pa.Schema
    steps: tuple[Stateless, ...]


def prune_columns(schema: pa.Schema, steps: Sequence[Stateless], tuples: pa.Schema) -> Pruned:
    """Work out which columns of ``schema`` the steps need to make ``tuples``, the columns that a stateful step reads.

    Before: ``(ts, user, text) → words = split(text) → count by each(words)``; after: ``user`` is gone.
    """
    needed = set(tuples.names)
    made: list[Stateless] = []
    for position in range(len(steps) - 1, -1, -1):
        step = steps[position]
        before = steps[position - 1].schema if position else schema
        kept = _only(step.schema, needed)
        match step:
            case WithColumns():
                new = set(expressions.select(before.empty_table(), step.exprs).column_names)
                needed = (needed - new) | expressions.columns_read(step.exprs, before)
            case Select():
                needed = set(expressions.columns_read(step.exprs, before))
            case Filter():
                needed = needed | expressions.columns_read((step.predicate,), before)
            case MapBatches():
                kept, needed = step.schema, set(before.names)
        made.append(replace(step, schema=kept))
    return Pruned(_only(schema, needed), tuple(reversed(made)))


def tuples_read(node: Stateful, side: int) -> pa.Schema:
    """The columns of one of its inputs that a stateful step reads; a user's functions may look at all."""
    schema = node.inputs[side].schema
    return _only(schema, read_by(node)) if isinstance(node, WindowAggregate) else schema


def read_by(node: WindowAggregate) -> set[str]:
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


def _only(schema: pa.Schema, names: set[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in names])
