"""Tables of the states of aggregates, one row per key and stretch of time: their columns, keys and hashes.

Windows and sessions differ in what a row is for, which the leading columns say. What is behind them is the same: the key
columns, and the state columns of every aggregate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InternalError
from tidegate.operators.aggregates import Logic, taken
from tidegate.operators.aggregates.of_columns import CountLogic, ExtremeLogic, FloatSum, IntegerSum, MonoidLogic
from tidegate.operators.aggregates.of_decimals import DecimalSum
from tidegate.operators.aggregates.of_lists import DistinctLogic
from tidegate.operators.aggregates.of_parts import MergedLogic, MergedTuples, PartialLogic
from tidegate.operators.aggregates.of_tuples import LeadingTuple, RankedLogic, empty_table, is_pooled, without_unused
from tidegate.operators.aggregates.shared_states import state_of
from tidegate.operators.columns import Array, as_numpy, canonical_floats
from tidegate.operators.keys import KeySets, compact, key_codes, key_hashes, shards_of, spread_parts
from tidegate.query.aggregates import Aggregate, Count, Distinct, Extreme, Mean, Monoid, Ranked, Sum
from tidegate.query.keys import KeyParts
from tidegate.query.nodes import CountAggregate, SessionAggregate, WindowAggregate
from tidegate.query.partial_aggregates import Merged, Partial
from tidegate.query.schema import contiguous, is_decimal, is_integer, is_text


@dataclass(frozen=True)
class KeyedStates:
    """How one aggregate is computed: its logics and the layout of its tables, which begin with ``leading`` whole numbers."""

    node: WindowAggregate | SessionAggregate | CountAggregate
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
            kind = pa.dictionary(pa.int32(), key.type) if composite and is_text(key.type) else key.type
            fields.append(pa.field(f"k{position}", kind))
        for number, logic in enumerate(self.logics):
            fields.extend(pa.field(f"s{number}_{field.name}", field.type) for field in logic.fields)
        return pa.schema(fields)

    @property
    def empty(self) -> pa.Table:
        """A table of no rows."""
        return empty_table(self.schema)

    def unify(self, tables: Sequence[pa.Table], last: bool = False) -> pa.Table:
        """Tables as one of whole columns, whose dictionaries and pools of tuples are one each.

        ``last`` says that only results are computed from it.
        """
        joined = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        found: dict[Hashable, pa.Array] = {}
        for number, logic in enumerate(self.logics):
            if isinstance(logic, RankedLogic):
                place = joined.schema.get_field_index(f"s{number}_{logic.fields[0].name}")
                states, same = joined.column(place).chunks, state_of(logic)
                if len(states) > 1:
                    if same not in found:
                        found[same] = logic.joined(states, self._emitted(same) if last else ())
                    joined = joined.set_column(place, joined.column_names[place], found[same])
        return joined.unify_dictionaries().combine_chunks()

    def _emitted(self, same: Hashable) -> set[str]:
        """The columns that the aggregates with one state emit; none if one of them emits whole tuples."""
        ranked = [each.ranked for each in self.logics if isinstance(each, RankedLogic) and state_of(each) == same]
        emitted = {each.take for each in ranked if each.take is not None}
        return emitted if all(each.take is not None for each in ranked) else set()

    def compacted(self, table: pa.Table) -> pa.Table:
        """The same rows, without the values of dictionaries and the tuples of pools that none of them uses."""
        columns = [contiguous(column) for column in table.columns]
        kept = [without_unused(each) if is_pooled(each.type) else compact(each) for each in columns]
        return pa.table(kept, schema=table.schema)

    @property
    def key_names(self) -> list[str]:
        return [f"k{position}" for position in range(len(self.node.key_schema))]

    def shards(self, panes: pa.Table, shards: int) -> Array:
        """The shard of each row's key."""
        return shards_of(self.hashes(panes), shards)

    def hashes(self, panes: pa.Table) -> Array:
        """The hash of each row's key."""
        columns = [contiguous(panes.column(name)) for name in self.key_names]
        if not isinstance(self.node.keys, KeyParts):
            return key_hashes(columns)
        *keys, parts = columns
        return spread_parts(key_hashes(keys), as_numpy(parts))

    def _keys(self, sets: KeySets, first: Array) -> list[pa.Array]:
        kinds = [self.schema.field(name).type for name in self.key_names]
        return [
            compact(as_kind(canonical_floats(column.take(pa.array(first))), kind))
            for column, kind in zip(sets.columns, kinds, strict=True)
        ]

    def _codes(self, panes: pa.Table) -> tuple[Array, int]:
        return key_codes([contiguous(panes.column(name)) for name in self.key_names])

    def _key_columns(self, panes: pa.Table, take: Array | None) -> list[pa.Array]:
        return [compact(taken(contiguous(panes.column(name)), take)) for name in self.key_names]

    def _encoded(self, sets: KeySets) -> KeySets:
        """Keys with those columns dictionary-encoded that tables hold so: once, for codes and for what is kept."""
        if len(sets.columns) == 1:
            return sets
        columns = tuple(column.dictionary_encode() if is_text(column.type) else column for column in sets.columns)
        return replace(sets, columns=columns)

    def _states(self, panes: pa.Table) -> list[pa.Array]:
        return [contiguous(column) for column in panes.columns[len(self.leading) + len(self.key_names) :]]


def logic_of(aggregate: Aggregate, schema: pa.Schema, time: str) -> Logic:
    """The logic that an aggregate over tuples of ``schema`` builds."""
    match aggregate:
        case Count():
            return CountLogic()
        case Sum(column) | Mean(column):
            kind = schema.field(column).type
            if is_decimal(kind):
                return DecimalSum(column, isinstance(aggregate, Mean), kind.scale)
            added = IntegerSum if is_integer(kind) else FloatSum
            return added(column, isinstance(aggregate, Mean))
        case Extreme(column, sign) if is_text(schema.field(column).type):
            # Text is compared once, where a pool of it is built. The order of `by` begins with the greatest.
            extreme = Ranked(column, 1, descending=sign > 0, by=column, single=True)
            return LeadingTuple(extreme, (schema.field(column),), time)
        case Extreme(column, sign):
            return ExtremeLogic(column, sign, schema.field(column).type)
        case Distinct(column):
            return DistinctLogic(column, schema.field(column).type)
        case Ranked():
            ranked = LeadingTuple if aggregate.single else RankedLogic
            return ranked(aggregate, tuple(schema.field(name) for name in aggregate.kept(schema)), time)
        case Monoid():
            return MonoidLogic(aggregate)
        case Partial(Ranked() as whole):
            tuples = replace(whole, take=None, single=False)
            return RankedLogic(tuples, tuple(schema.field(name) for name in whole.kept(schema)), time)
        case Partial(whole):
            return PartialLogic(logic_of(whole, schema, time))
        case Merged(column, Ranked() as whole, tuples, own_time):
            return MergedTuples(whole, tuple(tuples.field(name) for name in whole.kept(tuples)), own_time, column)
        case Merged(column, whole, tuples, own_time):
            return MergedLogic(column, logic_of(whole, tuples, own_time))
        case _:
            raise InternalError(f"no logic for {aggregate!r}")


def as_kind(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A key column in the type that it has in a table."""
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(column.type):
        return column.cast(kind.value_type).dictionary_encode().cast(kind)
    return pc.cast(column, kind)
