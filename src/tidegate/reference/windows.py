"""The law of windowed aggregates (STRETCH, algorithms 1 and 2 with window type *multi*).

An expired window (``end ≤ W``) emits its results and is removed; a tuple joins every window it falls in under each of
its keys. Unlike a runtime this keeps whole tuples and computes an aggregate from all of them at once.

Only tuples of a source are ever late: what a stateful operator emits as the watermark moves reaches the next one
before the watermark does, and lies at or past the one that holds there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.query.nodes import WindowAggregate
from tidegate.query.schema import canonical
from tidegate.reference.rows import LateTuple, RowValues, keys_of, python_row, table_of
from tidegate.watermark import START, Watermark


@dataclass
class WindowLaw:
    """One windowed aggregate at work."""

    node: WindowAggregate
    watermark: Watermark = START
    windows: dict[int, dict[Any, _Instance]] = field(default_factory=dict)
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Put one tuple into the windows and keys it belongs to (alg. 2, handleInputTuple)."""
        node, window = self.node, self.node.window
        tuple_ = python_row(row, node.input)
        covering = list(window.covering(tuple_[node.time]))
        if window.end(covering[-1]) + window.lateness <= self.watermark:
            self.late.append(LateTuple(node.name, side, self.watermark, tuple_))
            return
        keys = keys_of(node.keys, row, tuple_)
        for number in covering:
            if window.end(number) + window.lateness <= self.watermark:
                continue
            for key in keys:
                instances = self.windows.setdefault(number, {})
                instance = instances.setdefault(canonical(key), _Instance(key))
                instance.tuples.append(tuple_)
            if window.end(number) <= self.watermark:
                touched = {canonical(key) for key in keys}
                yield from self._emit(number, [self.windows[number][key] for key in sorted(touched)])

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Emit every window that expires, earliest first, and forget those that are also past their lateness."""
        self.watermark = watermark
        window = self.node.window
        for number in sorted(self.windows):
            if window.end(number) <= watermark:
                instances = sorted(self.windows[number].values(), key=lambda instance: canonical(instance.key))
                yield from self._emit(number, [instance for instance in instances if instance.revision < 0])
            if window.end(number) + window.lateness <= watermark:
                del self.windows[number]

    def _emit(self, number: int, instances: list[_Instance]) -> Iterator[pa.Table]:
        """Emit the results of some keys of one window."""
        node = self.node
        rows = []
        for instance in instances:
            instance.revision += 1
            row: RowValues = dict(zip(node.key_schema.names, instance.key, strict=True))
            row[node.time] = node.window.end(number) - 1
            row["window_start"] = node.window.start(number)
            row["window_end"] = node.window.end(number)
            row["revision"] = instance.revision
            for name, aggregate in node.aggregates:
                row[name] = aggregate.value(instance.tuples, node.input.schema, node.time)
            rows.append(row)
        if rows:
            yield table_of(rows, node.schema)


@dataclass
class _Instance:
    """The tuples of one key in one window, and how often it was emitted (−1: never)."""

    key: tuple[Any, ...]
    tuples: list[RowValues] = field(default_factory=list)
    revision: int = -1
