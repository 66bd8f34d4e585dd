"""Tuples as the interpreter handles them: one row, as Python values, with its event time in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.errors import DataError, InternalError
from tidegate.query.keys import Columns, Each, KeyFunction, Keys, OneForAll
from tidegate.query.nodes import Node
from tidegate.query.schema import canonical
from tidegate.watermark import Watermark

RowValues = dict[str, Any]
"""The values of one tuple by their columns; its event time is a number."""


@dataclass(frozen=True, slots=True)
class LateTuple:
    """A tuple that came too late: at which input of which step, and behind which watermark."""

    step: str
    side: int
    missed_watermark: Watermark
    values: RowValues


def python_row(row: pa.Table, node: Node) -> RowValues:
    """The values of one row that a node emitted; its event time is a number."""
    try:
        values = row.to_pylist()[0]
    except UnicodeDecodeError as error:
        raise DataError(
            f"step '{node.name}': a tuple has a text that is not UTF-8 ({error.reason}), which the reference cannot read; "
            "make the column binary"
        ) from error
    moment = row.column(node.time).combine_chunks()
    if moment[0].as_py() is None:
        raise DataError(
            f"step '{node.name}': a tuple has no event time in '{node.time}': {values}; filter such tuples out"
        )
    values[node.time] = moment.cast(pa.int64())[0].as_py()
    return dict(values)


def keys_of(keys: Keys, row: pa.Table, tuple_: RowValues) -> list[tuple[Any, ...]]:
    """The keys of a tuple, which is given as a table of one row and as Python values."""
    match keys:
        case Columns(names):
            return [tuple(tuple_[name] for name in names)]
        case OneForAll():
            return [(None,)]
        case Each(column, _, distinct):
            keys_found = [(element,) for element in tuple_[column] or ()]
        case KeyFunction(_, _, reads, distinct):
            seen = row if reads is None else row.select(list(reads))
            batch = seen.combine_chunks().to_batches()[0]
            found = keys.key_lists(batch)[0].as_py() or []
            keys_found = [tuple(key.values()) if isinstance(key, dict) else (key,) for key in found]
        case _:
            raise InternalError(f"unknown keys {keys!r}")
    return list({canonical(key): key for key in keys_found}.values()) if distinct else keys_found


def table_of(rows: Sequence[RowValues], schema: pa.Schema) -> pa.Table:
    """Rows as a table; event times may be given as numbers."""
    return pa.table([_column([row[field.name] for row in rows], field.type) for field in schema], schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and values and isinstance(values[0], int):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
