"""The windows of an O+ as data: what is kept of them between batches, in the types that the query declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.columns import as_numpy
from tidegate.operators.keys import key_codes, key_hashes
from tidegate.query.forms import TupleForm
from tidegate.query.nodes import KeyedApply
from tidegate.query.schema import contiguous

Array = np.ndarray[Any, Any]
NUMBER, LAST, ALIVE = "number", "last", "alive"
_BEFORE_KEYS = 3


@dataclass(frozen=True, slots=True)
class Held:
    """One window of one key: its number, the time of its last tuple, and its states, one per input or per column."""

    number: int
    last: int
    key: tuple[Any, ...]
    states: tuple[Any, ...]


@dataclass(frozen=True)
class HeldCodec:
    """Windows as rows of a table, and back.

    A row is a window as it was when it was written; of several rows of one window the last counts. One that is not
    ``alive`` says that the window is no more.
    """

    node: KeyedApply

    @cached_property
    def schema(self) -> pa.Schema:
        """Where a window is, its key, and its states: in the tuple form a struct per input, else a column each."""
        form = self.node.form
        states = [pa.struct(list(state)) for state in form.states] if isinstance(form, TupleForm) else form.state.types
        return pa.schema(
            [(NUMBER, pa.int64()), (LAST, pa.int64()), (ALIVE, pa.bool_())]
            + [(f"k{position}", kind) for position, kind in enumerate(self.node.key_schema.types)]
            + [(f"s{position}", kind) for position, kind in enumerate(states)]
        )

    def encode(self, changed: Sequence[Held], gone: Sequence[Held]) -> pa.Table:
        """Rows of windows that have changed, and of some that are no more."""
        rows = [(one.number, one.last, True, *one.key, *one.states) for one in changed]
        nothing = (None,) * (len(self.schema) - _BEFORE_KEYS - len(self.node.key_schema))
        rows += [(one.number, one.last, False, *one.key, *nothing) for one in gone]
        made = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), self.schema.types, strict=True)]
        return pa.table(made, schema=self.schema)

    def decode(self, table: pa.Table) -> list[Held]:
        """The windows of rows, one per row."""
        keys, form = len(self.node.key_schema), self.node.form
        columns = [column.to_pylist() for column in table.drop_columns([ALIVE]).columns]
        if isinstance(form, TupleForm):
            # States were checked before they were kept; the check makes the read-only values of them.
            for position, shape in enumerate(form.shapes, start=2 + keys):
                columns[position] = [shape.take(value)[0] for value in columns[position]]
        return [
            Held(number, last, tuple(rest[:keys]), tuple(rest[keys:]))
            for number, last, *rest in zip(*columns, strict=True)
        ]

    def latest(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Of each window its last row in tables from old to new."""
        table = pa.concat_tables([self.schema.empty_table(), *tables]).combine_chunks()
        if table.num_rows == 0:
            return table
        codes, _ = key_codes(self._keys(table))
        places = as_numpy(table.column(NUMBER))
        order = np.lexsort((places, codes))  # stable: rows of one window stay in the order of their age
        codes, places = codes[order], places[order]
        last = np.append((codes[1:] != codes[:-1]) | (places[1:] != places[:-1]), True)
        return table if last.all() else table.take(pa.array(np.sort(order[last])))

    def hashes(self, table: pa.Table) -> Array:
        """The hash of the key of each row."""
        return key_hashes(self._keys(table))

    def _keys(self, table: pa.Table) -> tuple[pa.Array, ...]:
        keys = range(_BEFORE_KEYS, _BEFORE_KEYS + len(self.node.key_schema))
        return tuple(contiguous(table.column(position)) for position in keys)
