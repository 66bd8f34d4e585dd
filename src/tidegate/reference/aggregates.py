"""What each aggregate means: a function of the bag of tuples of one key in one window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegate.errors import DataError, InternalError
from tidegate.query.aggregates import Aggregate, Count, Distinct, Extreme, Mean, Monoid, Ranked, Sum
from tidegate.query.schema import canonical

Tuple = dict[str, Any]


def value_of(aggregate: Aggregate, tuples: Sequence[Tuple], schema: pa.Schema, time: str) -> Any:
    """The value of an aggregate over some tuples, as a Python value."""
    match aggregate:
        case Count():
            return len(tuples)
        case Sum(column):
            return _sum(_present(tuples, column))
        case Mean(column):
            values = _present(tuples, column)
            return math.fsum(values) / len(values) if _finite(values) else _ratio(values)
        case Extreme(column, sign):
            values = _present(tuples, column)
            choose = min if sign > 0 else max
            return choose(values, key=canonical) if values else None
        case Distinct(column):
            return len({canonical(value) for value in _present(tuples, column)})
        case Ranked():
            return _ranked(aggregate, tuples, schema, time)
        case Monoid():
            return _fold(aggregate, tuples, schema)
        case _:
            raise InternalError(f"no meaning is given for {aggregate!r}")


def _present(tuples: Sequence[Tuple], column: str) -> list[Any]:
    return [row[column] for row in tuples if row[column] is not None]


def _finite(values: Sequence[Any]) -> bool:
    return bool(values) and all(math.isfinite(value) for value in values)


def _ratio(values: Sequence[Any]) -> float | None:
    return sum(values) / len(values) if values else None


def _sum(values: Sequence[Any]) -> Any:
    if not values:
        return None
    total = sum(values)
    if isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise DataError(
            f"a sum of integers is {total}, which does not fit int64; cast the column to float64 to allow it"
        )
    return total


def canonical_tuple(row: Tuple, schema: pa.Schema, time: str) -> tuple[Any, ...]:
    """Where a tuple stands in canonical order: by event time, then by its columns from left to right."""
    return (row[time], *(canonical(row[name]) for name in schema.names))


def _ranked(aggregate: Ranked, tuples: Sequence[Tuple], schema: pa.Schema, time: str) -> Any:
    ordered = sorted(tuples, key=lambda row: canonical_tuple(row, schema, time), reverse=aggregate.descending)
    if aggregate.by is not None:
        by = aggregate.by
        ordered = [row for row in ordered if row[by] is not None]
        ordered.sort(key=lambda row: canonical(row[by]), reverse=True)  # stable: ties stay in canonical order
    values = [row[aggregate.take] for row in ordered[: aggregate.limit]]
    return values[0] if aggregate.single else values


def _fold(aggregate: Monoid, tuples: Sequence[Tuple], schema: pa.Schema) -> Any:
    reads = pa.schema([schema.field(name) for name in aggregate.reads])
    state: pa.Table | None = None
    for row in tuples:
        columns = [pa.array([row[field.name]], field.type) for field in reads]
        lifted = aggregate.lift_rows(pa.table(columns, schema=reads))
        state = lifted if state is None else aggregate.merged(state, lifted)
    return aggregate.finished(state)[0].as_py()
