"""The law of joins: every tuple meets every tuple of the other side.

A pair is near if its tuples are at most ``within`` apart, or share a window. It has equal keys, null being equal to nothing.
And the predicate is true of it. Within a distance, a pair is emitted as soon as both tuples are there, and a tuple that
comes behind the watermark joins nothing; over windows, when a window expires, and a tuple takes part in those windows that
are open when it comes. A tuple that can take part in nothing is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import pyarrow as pa

from tidegate.query import expressions
from tidegate.query.nodes import Join
from tidegate.query.predicates.predicate import plain_values
from tidegate.query.schema import canonical
from tidegate.reference.rows import LateTuple, RowValues, python_row
from tidegate.watermark import START, Watermark


@dataclass
class JoinLaw:
    """One join at work."""

    node: Join
    watermark: Watermark = START
    held: tuple[list[_HeldTuple], list[_HeldTuple]] = field(default_factory=lambda: ([], []))
    windows: dict[int, tuple[list[_HeldTuple], list[_HeldTuple]]] = field(default_factory=dict)
    late: list[LateTuple] = field(default_factory=list)

    def receive(self, side: int, row: pa.Table) -> Iterator[pa.Table]:
        """Pair a tuple with those that are there, or put it into its windows."""
        node = self.node
        tuple_ = python_row(row, node.inputs[side])
        new = _HeldTuple(tuple_[node.inputs[side].time], row, plain_values(row)[0])
        if node.window is not None:
            open_ = [number for number in node.window.covering(new.time) if node.window.end(number) > self.watermark]
            for number in open_:
                self.windows.setdefault(number, ([], []))[side].append(new)
            if not open_:
                self.late.append(LateTuple(node.name, side, self.watermark, tuple_))
            return
        if new.time < self.watermark:
            self.late.append(LateTuple(node.name, side, self.watermark, tuple_))
            return
        for other in self.held[1 - side]:
            left, right = (new, other) if side == 0 else (other, new)
            assert node.within_us is not None
            if abs(left.time - right.time) <= node.within_us and self._fits(left, right):
                yield self._result(left, right, max(left.time, right.time), None)
        self.held[side].append(new)

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Emit the windows that expire, earliest first; forget tuples that can meet no other any more."""
        self.watermark = watermark
        window, within = self.node.window, self.node.within_us
        if within is not None:
            for side in self.held:
                side[:] = [each for each in side if not each.time + within < watermark]
        for number in sorted(self.windows):
            if window is not None and window.end(number) <= watermark:
                lefts, rights = self.windows.pop(number)
                for left in lefts:
                    for right in rights:
                        if self._fits(left, right):
                            yield self._result(left, right, window.end(number) - 1, number)

    def _fits(self, left: _HeldTuple, right: _HeldTuple) -> bool:
        for name, other in self.node.on:
            one, two = left.values[name], right.values[other]
            if one is None or two is None or canonical(one) != canonical(two):
                return False
        where = self.node.where
        if where is None:
            return True
        if where.tree is None and isinstance(where.given, nw.Expr):
            return bool(expressions.keep(self._pair(left, right), where.given).num_rows)
        return where.holds(left.values, right.values, self.node.name)

    def _pair(self, left: _HeldTuple, right: _HeldTuple) -> pa.Table:
        rows = left.row, right.row
        return pa.table({each.name: rows[each.side].column(each.column) for each in self.node.columns})

    def _result(self, left: _HeldTuple, right: _HeldTuple, time: int, window: int | None) -> pa.Table:
        node, pair = self.node, self._pair(left, right)
        moments: dict[str, Any] = {node.time: time}
        if window is not None and node.window is not None:
            moments |= {"window_start": node.window.start(window), "window_end": node.window.end(window)}
        kind = node.schema.field(node.time).type
        times = {name: pa.array([value], pa.int64()).cast(kind) for name, value in moments.items()}
        columns = [times[name] if name in times else pair.column(name) for name in node.schema.names]
        return pa.table(columns, schema=node.schema)


@dataclass(frozen=True)
class _HeldTuple:
    """A tuple: its time, its row, and its values as predicates see them."""

    time: int
    row: pa.Table
    values: RowValues
