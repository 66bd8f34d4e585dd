"""The columnar form of every aggregate."""

from __future__ import annotations

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.aggregates.logic import Logic
from tidegate.operators.aggregates.of_columns import CountLogic, ExtremeLogic, FloatSum, IntegerSum, MonoidLogic
from tidegate.operators.aggregates.of_lists import DistinctLogic, RankedLogic
from tidegate.query.aggregates import Aggregate, Count, Distinct, Extreme, Mean, Monoid, Ranked, Sum
from tidegate.query.schema import is_integer

__all__ = ["Logic", "logic_of"]


def logic_of(aggregate: Aggregate, schema: pa.Schema, time: str) -> Logic:
    """The logic that an aggregate over tuples of ``schema`` builds."""
    match aggregate:
        case Count():
            return CountLogic()
        case Sum(column) | Mean(column):
            made = IntegerSum if is_integer(schema.field(column).type) else FloatSum
            return made(column, isinstance(aggregate, Mean))
        case Extreme(column, sign):
            return ExtremeLogic(column, sign, schema.field(column).type)
        case Distinct(column):
            return DistinctLogic(column, schema.field(column).type)
        case Ranked():
            return RankedLogic(aggregate, tuple(schema.field(name) for name in ranked_columns(aggregate, schema)), time)
        case Monoid():
            return MonoidLogic(aggregate)
        case _:
            raise InternalError(f"no logic for {aggregate!r}")


def ranked_columns(aggregate: Ranked, schema: pa.Schema) -> list[str]:
    """The columns a ranked aggregate keeps: all, unless ties cannot be told apart in the result."""
    return [aggregate.take] if aggregate.by == aggregate.take else schema.names
