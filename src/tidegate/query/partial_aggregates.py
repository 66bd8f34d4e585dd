"""Aggregates in two steps: the states of the parts of a key, and what they are together.

The compiler puts them in place of other aggregates where one key's state is spread over cells (`split_hot_keys`). No user
writes them, and the reference never sees them: it runs queries as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.query.aggregates import DECIMAL_STATE, Aggregate, Distinct, Mean, Monoid, Ranked, Sum
from tidegate.query.schema import is_decimal, is_integer


def state_fields(aggregate: Aggregate, tuples: pa.Schema) -> list[pa.Field]:
    """The columns of the state of an aggregate over tuples, as the operators have it, where it keeps no tuples."""
    match aggregate:
        case Sum(column) | Mean(column) if is_integer(tuples.field(column).type):
            return [pa.field(name, pa.int64()) for name in ("high", "low", "present")]
        case Sum(column) | Mean(column) if is_decimal(tuples.field(column).type):
            return list(DECIMAL_STATE)
        case Sum() | Mean():
            return [pa.field("total", pa.float64()), pa.field("present", pa.int64())]
        case Distinct(column):
            return [pa.field("values", pa.list_(tuples.field(column).type))]
        case Monoid(state=state):
            return list(state)
        case _:
            raise InternalError(f"no state is known for {aggregate!r}")


@dataclass(frozen=True, slots=True)
class Partial(Aggregate):
    """What is to be known of some tuples of a key to tell an aggregate over all: its state, as a struct, or tuples."""

    whole: Aggregate

    def columns(self) -> tuple[str, ...]:
        return self.whole.columns()

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        if isinstance(self.whole, Ranked):
            return pa.list_(pa.struct([schema.field(name) for name in self.whole.kept(schema)]))
        return pa.struct(state_fields(self.whole, schema))

    def value(self, tuples: Sequence[Mapping[str, Any]], schema: pa.Schema, time: str) -> Any:
        raise InternalError("the reference runs queries as they are written, without parts of keys")

    @property
    def combined(self) -> str:
        return self.whole.combined

    def __str__(self) -> str:
        return f"a part of {self.whole}"


@dataclass(frozen=True, slots=True)
class Merged(Aggregate):
    """The value of an aggregate over the parts of a key, of which a column has what is to be known.

    ``tuples`` and ``time`` are the columns and the event time of the tuples that the parts were made of.
    """

    column: str
    whole: Aggregate
    tuples: pa.Schema
    time: str

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def returns(self, schema: pa.Schema, step: str) -> pa.DataType:
        return self.whole.returns(self.tuples, step)

    def value(self, tuples: Sequence[Mapping[str, Any]], schema: pa.Schema, time: str) -> Any:
        raise InternalError("the reference runs queries as they are written, without parts of keys")

    @property
    def combined(self) -> str:
        return self.whole.combined

    def __str__(self) -> str:
        return f"{self.whole} of the parts"
