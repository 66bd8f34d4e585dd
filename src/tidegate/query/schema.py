"""The types a stream may carry, and the checks that name a step and the valid choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from tidegate.errors import QueryError, choices

TIME = pa.timestamp("us", tz="UTC")


def is_integer(kind: pa.DataType) -> bool:
    """Signed whole numbers; all fit int64."""
    return bool(pa.types.is_signed_integer(kind))


def is_number(kind: pa.DataType) -> bool:
    """Numbers that can be added."""
    return is_integer(kind) or kind in (pa.float32(), pa.float64())


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


def is_supported(kind: pa.DataType) -> bool:
    """Scalars, and lists and structs of supported types."""
    if pa.types.is_list(kind):
        return is_supported(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_supported(field.type) for field in kind)
    return is_scalar(kind)


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The one form in which tidegate keeps types that Arrow has several of."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return TIME if kind.tz else pa.timestamp("us")
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
                "to a signed integer, float, boolean, string, binary, date, timestamp in microseconds, or a list or "
                "struct of these"
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


def as_schema(columns: pa.Schema | Mapping[str, pa.DataType]) -> pa.Schema:
    """A schema from a schema or from names and types."""
    return columns if isinstance(columns, pa.Schema) else pa.schema(list(columns.items()))


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Arrow would copy a single chunk too.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of ``schema`` from ``table``, cast to its types (dictionaries and large strings decoded)."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    columns = [table.column(field.name) for field in schema]
    if all(column.type == field.type for column, field in zip(columns, schema, strict=True)):
        return pa.table(columns, schema=schema)
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(cast, schema=schema)
