"""The law of windows in number of tuples: the settled tuples of a key in canonical order are numbered from 0.

Window i holds the tuples from ``i·every`` on, ``size`` of them, and is emitted at the time of the one that fills it. A
window that never fills is counted at the end of input. A tuple before the watermark is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.query.nodes import CountAggregate
from tidegate.query.schema import canonical, canonical_tuple
from tidegate.reference.rows import LateTuple, RowValues, keys_of, python_row, table_of
from tidegate.watermark import START, Watermark, has_ended


@dataclass
class CountLaw:
    """One aggregate over count windows at work; ``taken`` are all settled tuples of each key."""

    node: CountAggregate
    watermark: Watermark = START
    waiting: list[tuple[int, Any, Any, RowValues]] = field(default_factory=list)
    taken: dict[Any, list[RowValues]] = field(default_factory=dict)
    late: list[LateTuple] = field(default_factory=list)
    unfilled: int = 0

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Keep a tuple until it is settled, once for each of its keys; one before the watermark is late."""
        source = self.node.input
        values = python_row(row, source)
        time = values[source.time]
        if time < self.watermark:
            self.late.append(LateTuple(self.node.name, side, self.watermark, values))
            return
        place = canonical_tuple(values, source.schema, source.time)
        for key in keys_of(self.node.keys[0], row, values):
            self.waiting.append((time, place, key, values))
        yield from ()

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Number what is settled, and emit the windows that it fills."""
        self.watermark = watermark
        settled = sorted((one for one in self.waiting if one[0] < watermark), key=lambda one: one[:2])
        self.waiting = [one for one in self.waiting if one[0] >= watermark]
        size, every = self.node.counted.size, self.node.counted.every
        for _, _, key, values in settled:
            tuples = self.taken.setdefault(canonical(key), [])
            tuples.append(values)
            first = len(tuples) - size
            if first >= 0 and first % every == 0:
                yield table_of([self._row(key, tuples[first:])], self.node.schema)
        if has_ended(watermark):
            for tuples in self.taken.values():
                starts = range(0, len(tuples), every)
                self.unfilled += sum(1 for start in starts if start + size > len(tuples))
            self.taken = {}

    def _row(self, key: Any, tuples: list[RowValues]) -> RowValues:
        node, time = self.node, self.node.input.time
        row = {node.time: tuples[-1][time], "window_start": tuples[0][time], "window_end": tuples[-1][time]}
        row |= dict(zip(node.key_schema.names, key, strict=True))
        return row | {name: each.value(tuples, node.input.schema, time) for name, each in node.aggregates}
