"""The types a stream may carry, their canonical order, and the checks that name a step and the valid choices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from tidegate.errors import DataError, QueryError, choices

TIME = pa.timestamp("us", tz="UTC")


def is_integer(kind: pa.DataType) -> bool:
    """Signed whole numbers; all fit int64."""
    return bool(pa.types.is_signed_integer(kind))


def is_text(kind: pa.DataType) -> bool:
    """Strings of characters or bytes."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def is_decimal(kind: pa.DataType) -> bool:
    """Numbers of up to 38 digits, of which a fixed number is behind the point."""
    return bool(pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision)


def is_number(kind: pa.DataType) -> bool:
    """Numbers that can be added."""
    return is_integer(kind) or is_decimal(kind) or kind in (pa.float32(), pa.float64())


def is_scalar(kind: pa.DataType) -> bool:
    """Types that can be keys and can be put in order."""
    return (
        is_number(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "us")
    )


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type that holds the keys of both sides of a join."""
    if left == right:
        return left
    return pa.int64() if is_integer(left) else pa.float64()


def is_supported(kind: pa.DataType) -> bool:
    """Scalars, and lists, structs and maps of supported types; the keys of a map are scalars."""
    if pa.types.is_map(kind):
        return is_scalar(kind.key_type) and is_supported(kind.item_type)
    if pa.types.is_list(kind):
        return is_supported(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_supported(field.type) for field in kind)
    return is_scalar(kind)


def has_map_inside(kind: pa.DataType) -> bool:
    """Whether a list, struct or map has maps among its parts."""
    if not pa.types.is_nested(kind):
        return False
    parts = [kind.item_type] if pa.types.is_map(kind) else [kind.field(at).type for at in range(kind.num_fields)]
    return any(pa.types.is_map(part) or has_map_inside(part) for part in parts)


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The one form in which tidegate keeps types that Arrow has several of."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return TIME if kind.tz else pa.timestamp("us")
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return pa.map_(normal_type(kind.key_type), normal_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(normal_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, normal_type(field.type)) for field in kind])
    if pa.types.is_dictionary(kind):
        return normal_type(kind.value_type)
    return kind


def normal_schema(schema: pa.Schema, step: str) -> pa.Schema:
    """A schema in normal form; refuses types and names that no runtime carries."""
    fields = [pa.field(field.name, normal_type(field.type)) for field in schema]
    for field in fields:
        if not is_supported(field.type):
            raise QueryError(
                f"step '{step}': column '{field.name}' has the type {field.type}, which tidegate does not carry; cast it "
                "to a signed integer, float, decimal of up to 38 digits, boolean, string, binary, date, timestamp in "
                "microseconds, or a list, struct or map of these"
            )
        if field.name.startswith("__tg"):
            raise QueryError(f"step '{step}': column '{field.name}': names that begin with '__tg' are tidegate's own")
    check_unique((field.name for field in fields), step)
    return pa.schema(fields)


def check_unique(names: Iterable[str], step: str) -> None:
    """Refuse two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise QueryError(
                f"step '{step}': two columns would be called '{name}' (Spark does not tell upper from lower case); "
                "rename one"
            )
        seen.add(name.lower())


def column_type(schema: pa.Schema, column: str, step: str) -> pa.DataType:
    """The type of a column that must exist."""
    if not isinstance(column, str) or column not in schema.names:
        raise QueryError(f"step '{step}': unknown column {column!r}; the stream has {choices(schema.names)}")
    return schema.field(column).type


def show_columns(schema: pa.Schema) -> str:
    """Columns and their types as text."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


_ARROW = {
    str: "pa.string()",
    int: "pa.int64()",
    float: "pa.float64()",
    bool: "pa.bool_()",
    bytes: "pa.binary()",
    datetime: "pa.timestamp('us')",
    date: "pa.date32()",
    list: "pa.list_(pa.string()), or of another type,",
}


def as_schema(columns: pa.Schema | Mapping[str, pa.DataType], what: str = "schema") -> pa.Schema:
    """A schema from a schema or from names and types."""
    if isinstance(columns, pa.Schema):
        return columns
    if not isinstance(columns, Mapping):
        raise QueryError(
            f"{what}: columns are declared as names and types, as in {{'ts': pa.timestamp('us'), 'k': pa.string()}}, or as "
            f"an Arrow schema; got {type(columns).__name__}"
        )
    return pa.schema([(name, arrow_type(kind, f"{what}: column {name!r}")) for name, kind in columns.items()])


def arrow_type(kind: Any, what: str) -> pa.DataType:
    """A type of Arrow, or the name of one; others are answered with the one to write."""
    if isinstance(kind, str):
        try:
            return pa.type_for_alias(kind)
        except ValueError as error:
            raise QueryError(f"{what} is {kind!r}, and there is no such type; write for example pa.string()") from error
    if isinstance(kind, pa.DataType):
        return kind
    if isinstance(kind, type):
        raise QueryError(
            f"{what} is {kind.__name__}, a type of Python; write {_ARROW.get(kind, 'a type of Arrow')} instead"
        )
    raise QueryError(
        f"{what} is {type(kind).__name__}, and no type; write for example pa.string(). Data, not types, are given as a "
        "table: pa.table({...})"
    )


def contiguous(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Arrow would copy a single chunk too.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def fitting(table: pa.Table, schema: pa.Schema, subject: str) -> pa.Table:
    """The columns of ``schema`` from a user's table; one that is missing or does not fit is named."""
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            raise DataError(
                f"{subject}: the column '{field.name}' is not there; there are {choices(table.column_names)}"
            )
        column = table.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            why = f"is {column.type} and does not fit {field.type}: {error}"
            if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
                why = (
                    "holds times in nanoseconds, and times here are whole microseconds; round them first: "
                    f"pc.floor_temporal(table['{field.name}'], unit='microsecond')"
                )
            raise DataError(f"{subject}: the column '{field.name}' {why}") from error
    return pa.table(columns, schema=schema)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of ``schema`` from ``table``, cast to its types (dictionaries and large strings decoded)."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    columns = [(table.column(field.name), field.type) for field in schema]
    return pa.table([each if each.type == kind else each.cast(kind) for each, kind in columns], schema=schema)


def canonical(value: Any) -> tuple[Any, ...]:
    """A key that sorts and compares Python values in canonical order.

    Null is first, NaN last, −0.0 equal to 0.0; strings go by bytes, lists and structs by their parts, maps, which Arrow
    gives as lists of pairs, by their entries in the order of their keys.

    >>> sorted([float("nan"), 1.0, None, -0.0], key=canonical)
    [None, -0.0, 1.0, nan]
    """
    match value:
        case None:
            return (0,)
        case float() if math.isnan(value):
            return (2,)
        case float():
            return (1, value + 0.0)
        case str():
            return (1, value.encode())
        case [tuple(), *_] if isinstance(value, list) and all(
            isinstance(each, tuple) and len(each) == 2 for each in value
        ):
            return (1, tuple(sorted(canonical(entry) for entry in value)))
        case list() | tuple():
            return (1, tuple(canonical(part) for part in value))
        case dict():
            return (1, tuple(canonical(part) for part in value.values()))
        case _:
            return (1, value)


def canonical_tuple(row: Mapping[str, Any], schema: pa.Schema, time: str) -> tuple[Any, ...]:
    """A key that sorts tuples in canonical order: by event time, then by their columns from left to right."""
    return (row[time], *(canonical(row[name]) for name in schema.names))
