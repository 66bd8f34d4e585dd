"""The law of as-of joins: a settled left tuple gets the last right tuple at or before its time.

Last is meant in canonical order, among the right tuples of its key that lie at most ``tolerance`` before. One that says that
it is deleted is no partner, and hides those before it. A null key has no partner. A tuple before the watermark is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.query import expressions
from tidegate.query.keys import OneForAll
from tidegate.query.nodes import AsOf
from tidegate.query.schema import canonical, canonical_tuple
from tidegate.reference.rows import LateTuple, keys_of, python_row
from tidegate.watermark import START, Watermark, has_ended


@dataclass
class AsOfLaw:
    """One as-of join at work; ``rights`` are all right tuples that are settled, in canonical order."""

    node: AsOf
    watermark: Watermark = START
    waiting: tuple[list[_Waiting], list[_Waiting]] = field(default_factory=lambda: ([], []))
    rights: list[_Waiting] = field(default_factory=list)
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Keep a tuple until it is settled; one before the watermark is late."""
        source = self.node.inputs[side]
        values = python_row(row, source)
        time = values[source.time]
        if time < self.watermark:
            self.late.append(LateTuple(self.node.name, side, self.watermark, values))
            return
        (key,) = keys_of(self.node.keys[side], row, values)
        is_null = None in key and not isinstance(self.node.keys[side], OneForAll)
        place = time, canonical_tuple(values, source.schema, source.time)
        self.waiting[side].append(_Waiting(place, None if is_null else canonical(key), row))
        yield from ()

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Give each settled left tuple its partner."""
        self.watermark = watermark
        settled = []
        for waiting in self.waiting:
            settled.append(sorted((one for one in waiting if one.place[0] < watermark), key=lambda one: one.place))
            waiting[:] = [one for one in waiting if one.place[0] >= watermark]
        self.rights += settled[1]
        for left in settled[0]:
            right = self._partner(left)
            if right is not None or self.node.keeps_unmatched:
                yield self._result(left, right)
        if has_ended(watermark):
            self.rights = []

    def _partner(self, left: _Waiting) -> _Waiting | None:
        time, tolerance = left.place[0], self.node.tolerance_us
        found = None
        for right in self.rights:
            if left.key is not None and right.key == left.key and right.place[0] <= time:
                found = right
        if found is None or (tolerance is not None and time - found.place[0] > tolerance):
            return None
        deleted = self.node.deleted
        return None if deleted is not None and expressions.keep(found.row, deleted).num_rows else found

    def _result(self, left: _Waiting, right: _Waiting | None) -> pa.Table:
        rows = left.row, None if right is None else right.row
        columns = []
        for made, kind in zip(self.node.columns, self.node.schema.types, strict=True):
            row = rows[made.side]
            columns.append(pa.nulls(1, kind) if row is None else row.column(made.column).combine_chunks())
        return pa.table(columns, schema=self.node.schema)


@dataclass(frozen=True)
class _Waiting:
    """A tuple: its place in canonical order, its key, None if it has no partner, and its row."""

    place: tuple[int, Any]
    key: Any
    row: pa.Table
