"""The windows of an O+ as data: what is kept of them between batches, in the types that the query declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from tidegate.query.nodes import OPlus
from tidegate.query.tuple_form import TupleForm

SHARD, NUMBER, LAST = "shard", "number", "last"


@dataclass(frozen=True, slots=True)
class Held:
    """One window of one key: its number, the time of its last tuple, and its states, one per input or per column."""

    number: int
    last: int
    key: tuple[Any, ...]
    states: tuple[Any, ...]


class Windows(Protocol):
    """What holds windows by shard."""

    def held(self, shard: int) -> Iterator[Held]:
        """The windows of a shard."""
        ...

    def put_back(self, shard: int, held: Held) -> None:
        """Take a window in again."""
        ...


@dataclass(frozen=True)
class HeldCodec:
    """Windows as rows of a table, and back."""

    node: OPlus

    @cached_property
    def schema(self) -> pa.Schema:
        """Where a window is, its key, and its states: in the tuple form a struct per input, else a column each."""
        form = self.node.form
        states = [pa.struct(list(state)) for state in form.states] if isinstance(form, TupleForm) else form.state.types
        return pa.schema(
            [(SHARD, pa.int16()), (NUMBER, pa.int64()), (LAST, pa.int64())]
            + [(f"k{position}", kind) for position, kind in enumerate(self.node.key_schema.types)]
            + [(f"s{position}", kind) for position, kind in enumerate(states)]
        )

    def encode(self, windows: Windows, shards: Iterable[int]) -> pa.Table:
        """The windows of some shards."""
        rows = [(shard, one.number, one.last, *one.key, *one.states) for shard in shards for one in windows.held(shard)]
        if not rows:
            return self.schema.empty_table()
        columns = [
            pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), self.schema.types, strict=True)
        ]
        return pa.table(columns, schema=self.schema)

    def decode(self, table: pa.Table, windows: Windows) -> None:
        """Put windows back where they were."""
        keys, form = len(self.node.key_schema), self.node.form
        columns = [column.to_pylist() for column in table.columns]
        if isinstance(form, TupleForm):
            # States were checked before they were kept; the check makes the read-only values of them.
            for position, shape in enumerate(form.shapes, start=3 + keys):
                columns[position] = [shape.take(value)[0] for value in columns[position]]
        for shard, number, last, *rest in zip(*columns, strict=True):
            windows.put_back(shard, Held(number, last, tuple(rest[:keys]), tuple(rest[keys:])))
