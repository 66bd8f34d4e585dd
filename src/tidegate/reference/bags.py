"""The law of Aggregates of bags: tuples of one key and window are kept, and the function is asked when the window expires.

A tuple joins every window it falls in that has not expired, under each of its keys; one whose windows all have is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import DataError
from tidegate.query.bag_functions import Iterate
from tidegate.query.bags import Bags
from tidegate.query.nodes import BagAggregate
from tidegate.query.schema import canonical
from tidegate.reference.rows import LateTuple, keys_of, python_row
from tidegate.watermark import START, Watermark


@dataclass
class HeldBag:
    """The tuples of one key in one window, those of each input apart."""

    key: tuple[Any, ...]
    tuples: tuple[list[pa.Table], ...]


@dataclass
class BagLaw:
    """One Aggregate of bags at work."""

    node: BagAggregate
    watermark: Watermark = START
    windows: dict[int, dict[Any, HeldBag]] = field(default_factory=dict)
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Put a tuple into the bags it belongs to."""
        node, window = self.node, self.node.window
        tuple_ = python_row(row, node.inputs[side])
        covering = window.covering(tuple_[node.inputs[side].time])
        open_ = [number for number in covering if window.end(number) > self.watermark]
        if not open_:
            self.late.append(LateTuple(node.name, side, self.watermark, tuple_))
        for number in open_:
            for key in keys_of(node.keys[side], row, tuple_):
                empty = HeldBag(key, tuple([] for _ in node.inputs))
                held = self.windows.setdefault(number, {}).setdefault(canonical(key), empty)
                held.tuples[side].append(row)
        yield from ()

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Ask the function about every bag that expires, earliest first."""
        self.watermark = watermark
        for number in sorted(self.windows):
            if self.node.window.end(number) <= watermark:
                for _, held in sorted(self.windows.pop(number).items()):
                    yield from rows_of_bag(self.node, number, held)


def rows_of_bag(node: BagAggregate, number: int, held: HeldBag) -> Iterator[pa.Table]:
    """The rows that a bag of a window gives, with their event time."""
    function, window = node.function, node.window
    assert not isinstance(function, Iterate), "loops have a law of their own"
    tables = tuple(
        pa.concat_tables([upstream.schema.empty_table(), *tuples])
        for upstream, tuples in zip(node.inputs, held.tuples, strict=True)
    )
    keys = pa.table(
        [pa.array([part], kind) for part, kind in zip(held.key, node.key_schema.types, strict=True)],
        schema=node.key_schema,
    )
    entries = tuple(np.arange(table.num_rows) for table in tables)
    starts, ends = np.array([window.start(number)]), np.array([window.end(number)])
    found = function(Bags(keys, starts, ends, tables, entries, tuple(np.zeros_like(each) for each in entries)))
    count = len(found.of)
    if node.single and count > 1:
        raise DataError(f"step '{node.name}': a window gave {count} rows, and may give one")
    if count:
        moment = node.schema.field(node.time).type
        times = pa.array(np.full(count, window.end(number) - 1)).view(moment)
        columns = [times if name == node.time else found.rows.column(name) for name in node.schema.names]
        yield pa.table(columns, schema=node.schema)
