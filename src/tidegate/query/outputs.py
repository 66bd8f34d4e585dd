"""Several results of one query: how they are named, and how their rows are told apart in one table."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import QueryError, UserError, choices
from tidegate.query.builder import Builder
from tidegate.query.names import DefaultName, check_names
from tidegate.query.nodes import Node, Outputs


def outputs_node(what: str, results: Mapping[str, object]) -> Outputs:
    """The root of a query with several results; ``what`` is the call that takes them, for messages.

    >>> import pyarrow as pa
    >>> from tidegate.query.builder import source
    >>> calls = Builder(source("calls", {"ts": pa.timestamp("us"), "n": pa.int64()}, time="ts"))
    >>> outputs_node("run", {"all": calls, "times": calls.select("ts")}).names
    ('all', 'times')
    """
    if not results:
        raise QueryError(f"{what}: there is no result to compute; give at least one, as in {{'counts': query}}")
    found: dict[str, Node] = {}
    for name, result in results.items():
        # A name is that of a folder, in which '_' and '.' hide files from readers.
        if not isinstance(name, str) or not re.fullmatch(r"[^\W_][\w.-]*", name):
            raise QueryError(
                f"{what}: {name!r} cannot name a result, which has a folder of that name; begin with a letter or a digit, "
                "then letters, digits, '_', '-' and '.'"
            )
        if not isinstance(result, Builder):
            raise QueryError(
                f"{what}: the result '{name}' is a query made with tg.stream(...); got {type(result).__name__}. Did you "
                "forget .window(...) or .aggregate(...) after .key_by(...)?"
            )
        if isinstance(result.node, Outputs):
            raise QueryError(f"{what}: the result '{name}' is several results; name each of them")
        found[name] = result.node
    schema = pa.schema([(name, pa.struct(list(node.schema))) for name, node in found.items()])
    node = Outputs(DefaultName("outputs"), tuple(found.values()), schema, "", tuple(found))
    check_names(node)
    return node


def names_of(query: Node) -> tuple[str, ...]:
    """The names of the results of a query, if it has several."""
    return query.names if isinstance(query, Outputs) else ()


def schemas_of(query: Node) -> dict[str | None, pa.Schema]:
    """The columns of each result by its name; of a query with one result under None."""
    if not isinstance(query, Outputs):
        return {None: query.schema}
    return {name: node.schema for name, node in zip(query.names, query.inputs, strict=True)}


def tagged(query: Node, number: int, table: pa.Table) -> pa.Table:
    """The rows of one result as rows of a table of all, if there are several."""
    return in_column(query.schema, number, table) if isinstance(query, Outputs) else table


def in_column(schema: pa.Schema, number: int, table: pa.Table) -> pa.Table:
    """Rows as structs in one column of a schema; the others are null."""
    columns = [pa.nulls(table.num_rows, field.type) for field in schema]
    fields = list(schema.field(number).type)
    arrays = [table.column(field.name).combine_chunks() for field in fields]
    columns[number] = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.Table.from_arrays(columns, schema=schema)


def untagged(table: pa.Table, name: str) -> pa.Table:
    """The rows of one result, out of a table of all."""
    if name not in table.column_names:
        raise UserError(f"there is no result {name!r}; there is {choices(table.column_names)}")
    rows = pc.drop_null(table.column(name))
    schema = pa.schema(list(rows.type))
    if not len(rows):
        return schema.empty_table()
    # A struct of a result is null or has all of its values, so that its fields are the columns.
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(chunk.flatten(), schema=schema) for chunk in rows.chunks])
