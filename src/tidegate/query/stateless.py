"""What the stateless steps of a query do with a table."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa

from tidegate.errors import DataError, InternalError, QueryError
from tidegate.query import expressions
from tidegate.query.nodes import Filter, MapBatches, Select, Stateless, WithColumns
from tidegate.query.overflow import check_overflow
from tidegate.query.schema import conform


def apply_stateless(node: Stateless, table: pa.Table) -> pa.Table:
    """Run one stateless step on an Arrow table."""
    match node:
        case WithColumns():
            return conform(_computed(node, expressions.with_columns, table, node.exprs), node.schema)
        case Select():
            return conform(_computed(node, expressions.select, table, node.exprs), node.schema)
        case Filter():
            return _computed(node, lambda rows, exprs: expressions.keep(rows, *exprs), table, (node.predicate,))
        case MapBatches():
            return _map_batches(node, table)
        case _:
            raise InternalError(f"{type(node).__name__} is not a stateless step")


def _computed(
    node: Stateless, function: expressions.Derivation, table: pa.Table, exprs: tuple[nw.Expr, ...]
) -> pa.Table:
    try:
        check_overflow(table, exprs)
        return function(table, exprs)
    except DataError as error:
        raise DataError(f"step '{node.name}': {error}") from error
    except pa.ArrowException as error:
        shown = ", ".join(map(expressions.show_expression, exprs))
        raise DataError(f"step '{node.name}': {shown} cannot be computed for every tuple: {error}") from error


def _map_batches(node: MapBatches, table: pa.Table) -> pa.Table:
    results = []
    # No rows are a batch too: that is how a function is checked when the query is built.
    for batch in table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
        result = node.function(batch)
        result = pa.Table.from_batches([result]) if isinstance(result, pa.RecordBatch) else result
        if not isinstance(result, pa.Table):
            raise QueryError(f"step '{node.name}': the batch function returned {type(result).__name__}, not Arrow data")
        missing = [name for name in node.schema.names if name not in result.column_names]
        if missing:
            raise QueryError(f"step '{node.name}': the batch function left out the declared columns {missing}")
        results.append(conform(result, node.schema))
    return pa.concat_tables(results)
