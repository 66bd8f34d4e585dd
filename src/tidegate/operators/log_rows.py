"""What the rows of the logs of an `apply` cell are: windows, or the entries of one of their stores.

A row says how something was when it was written. The newest row counts; one that is not ``alive`` says that it is no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.query.column_form import ColumnForm
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import InOrder, KeyedApply, Running
from tidegate.query.stores import StoreType
from tidegate.query.windows import Window

WINDOWS = 0
"""The group of chunks that hold windows; those of the store at position i are of group i + 1, those of tuples of none."""
NUMBER, LAST, ALIVE, VALUE = "number", "last", "alive", "v"


@dataclass(frozen=True)
class LogRows:
    """The rows of one log: the group of its chunks, their columns, and which of these tell rows of one window apart.

    A row ends with its window; without ``window`` it stays until it is removed.
    """

    group: int
    schema: pa.Schema
    keys: tuple[str, ...]
    apart: tuple[str, ...]
    window: Window | None


def window_rows(node: InOrder) -> LogRows:
    """Rows of windows: the key, and the states, in the tuple form a struct per input, else a column each."""
    match node:
        case KeyedApply(form=ColumnForm() as form):
            states = form.state.types
        case KeyedApply(form=TupleForm() as form) | Running(form=form):
            states = [shape.kind for shape in form.shapes]
        case _:
            raise InternalError(f"no state is known for {type(node).__name__}")
    keys = _keys(node)
    fields = [(NUMBER, pa.int64()), (LAST, pa.int64()), (ALIVE, pa.bool_()), *keys.items()]
    fields += [(f"s{position}", kind) for position, kind in enumerate(states)]
    return LogRows(WINDOWS, pa.schema(fields), tuple(keys), (), node.window)


def entry_rows(node: InOrder, position: int, of: StoreType) -> LogRows:
    """Rows of the entries of a store: the window and its key, the entry's key and value.

    A window that slides keeps its entries, so they go under one number, as those of a window that never ends do.
    """
    keys, entries = _keys(node), {f"e{at}": kind for at, kind in enumerate(of.key.types)}
    fields = [(NUMBER, pa.int64()), (ALIVE, pa.bool_()), *keys.items(), *entries.items(), (VALUE, of.value)]
    window = node.window if isinstance(node, KeyedApply) and not node.single else None
    return LogRows(WINDOWS + 1 + position, pa.schema(fields), tuple(keys), tuple(entries), window)


def table_of_rows(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Rows of Python values as a table."""
    if not rows:
        return schema.empty_table()
    columns = zip(zip(*rows, strict=True), schema.types, strict=True)
    return pa.table([pa.array(column, kind) for column, kind in columns], schema=schema)


def _keys(node: InOrder) -> dict[str, pa.DataType]:
    return {f"k{position}": kind for position, kind in enumerate(node.key_schema.types)}
