"""Tables of the states of aggregates, one row per key and stretch of time: their columns, keys and hashes.

Windows and sessions differ in what a row is for, which the leading columns say. What is behind them is the same: the key
columns, and the state columns of every aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InternalError
from tidegate.operators.aggregates import Logic
from tidegate.operators.aggregates.of_columns import CountLogic, ExtremeLogic, FloatSum, IntegerSum, MonoidLogic
from tidegate.operators.aggregates.of_lists import DistinctLogic, RankedLogic
from tidegate.operators.columns import Array, canonical_floats
from tidegate.operators.keys import KeySets, compact, key_codes, key_hashes, shards_of
from tidegate.query.aggregates import Aggregate, Count, Distinct, Extreme, Mean, Monoid, Ranked, Sum
from tidegate.query.nodes import SessionAggregate, WindowAggregate
from tidegate.query.schema import contiguous, is_integer


@dataclass(frozen=True)
class KeyedStates:
    """How one aggregate is computed: its logics and the layout of its tables, which begin with ``leading`` whole numbers."""

    node: WindowAggregate | SessionAggregate
    leading: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def logics(self) -> tuple[Logic, ...]:
        return tuple(
            logic_of(aggregate, self.node.input.schema, self.node.time) for _, aggregate in self.node.aggregates
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a table; text in composite keys is dictionary-encoded, as it repeats."""
        composite = len(self.node.key_schema) > 1
        fields = [pa.field(name, pa.int64()) for name in self.leading]
        for position, key in enumerate(self.node.key_schema):
            text = pa.types.is_string(key.type) or pa.types.is_binary(key.type)
            kind = pa.dictionary(pa.int32(), key.type) if composite and text else key.type
            fields.append(pa.field(f"k{position}", kind))
        for number, logic in enumerate(self.logics):
            fields.extend(pa.field(f"s{number}_{field.name}", field.type) for field in logic.fields)
        return pa.schema(fields)

    @property
    def key_names(self) -> list[str]:
        return [f"k{position}" for position in range(len(self.node.key_schema))]

    def shards(self, panes: pa.Table, shards: int) -> Array:
        """The shard of each row's key."""
        return shards_of(self.hashes(panes), shards)

    def hashes(self, panes: pa.Table) -> Array:
        """The hash of each row's key."""
        return key_hashes([contiguous(panes.column(name)) for name in self.key_names])

    def _keys(self, sets: KeySets, first: Array) -> list[pa.Array]:
        kinds = [self.schema.field(name).type for name in self.key_names]
        return [
            compact(_as_kind(canonical_floats(column.take(pa.array(first))), kind))
            for column, kind in zip(sets.columns, kinds, strict=True)
        ]

    def _codes(self, panes: pa.Table) -> tuple[Array, int]:
        return key_codes([contiguous(panes.column(name)) for name in self.key_names])

    def _key_columns(self, panes: pa.Table, take: Array) -> list[pa.Array]:
        rows = pa.array(take)
        return [compact(contiguous(panes.column(name)).take(rows)) for name in self.key_names]

    def _states(self, panes: pa.Table) -> list[pa.Array]:
        return [contiguous(column) for column in panes.columns[len(self.leading) + len(self.key_names) :]]


def logic_of(aggregate: Aggregate, schema: pa.Schema, time: str) -> Logic:
    """The logic that an aggregate over tuples of ``schema`` builds."""
    match aggregate:
        case Count():
            return CountLogic()
        case Sum(column) | Mean(column):
            added = IntegerSum if is_integer(schema.field(column).type) else FloatSum
            return added(column, isinstance(aggregate, Mean))
        case Extreme(column, sign):
            return ExtremeLogic(column, sign, schema.field(column).type)
        case Distinct(column):
            return DistinctLogic(column, schema.field(column).type)
        case Ranked():
            # All columns are kept, unless ties cannot be told apart in the result.
            kept = [aggregate.by] if aggregate.by == aggregate.take else schema.names
            return RankedLogic(aggregate, tuple(schema.field(name) for name in kept), time)
        case Monoid():
            return MonoidLogic(aggregate)
        case _:
            raise InternalError(f"no logic for {aggregate!r}")


def unify(panes: pa.Table) -> pa.Table:
    """A table of whole columns whose dictionary columns share one dictionary each."""
    return panes.unify_dictionaries().combine_chunks()


def _as_kind(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(column.type):
        return column.cast(kind.value_type).dictionary_encode().cast(kind)
    return pc.cast(column, kind)
