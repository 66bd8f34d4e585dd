"""The law of joins: every tuple meets every tuple of the other side.

A pair is near if its tuples are at most ``within`` apart, or share a window. It has equal keys, null being equal to nothing.
And the predicate is true of it. Within a distance, a pair is emitted as soon as both tuples are there, and a tuple that
comes behind the watermark joins nothing; over windows, when a window expires, and a tuple takes part in those windows that
are open when it comes. A tuple that can take part in nothing is late.

A tuple of a side that may stay alone leaves without partner when none can come any more: within a distance d at its time
+ d, when the watermark is past that; over windows at the end of each in which it stayed alone. A semi join gives a left
tuple once, at the least of the times of its pairs, when the watermark is past that; over windows at the end of each
in which it has a partner. A null key is equal to nothing, so its tuple stays alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import narwhals as nw
import pyarrow as pa

from tidegate.query.nodes import CountJoin, Join
from tidegate.query.overflow import keep_fitting
from tidegate.query.predicates.predicate import plain_values
from tidegate.query.predicates.tree import LEFT, RIGHT, Side
from tidegate.query.schema import canonical
from tidegate.reference.rows import LateTuple, RowValues, python_row
from tidegate.watermark import END, START, Watermark

NEVER = END
"""Later than the time of any pair."""


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
                time = max(left.time, right.time)
                left.met_at, right.met_at = (min(each.met_at, time) for each in (left, right))
                if node.gives_pairs:
                    yield self._result(left, right, time)
        self.held[side].append(new)

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Emit the windows that expire, earliest first; forget tuples that can meet no other any more."""
        before, self.watermark = self.watermark, watermark
        if self.node.within_us is not None:
            yield from self._settle(self.node.within_us, before)
        for number in sorted(self.windows):
            if self.node.window is not None and self.node.window.end(number) <= watermark:
                yield from self._expire(number, self.node.window.end(number) - 1, *self.windows.pop(number))

    def _settle(self, within: int, before: Watermark) -> Iterator[pa.Table]:
        """Emit tuples that the watermark settles to be in no pair, or of which it settles the first pair."""
        node, after = self.node, self.watermark
        found = []
        for side in node.lonely_sides:
            alone = [each for each in self.held[side] if each.time + within < after and each.met_at == NEVER]
            found += [(each.time + within, side, each) for each in alone]
        if node.how == "semi":
            found += [(each.met_at, LEFT, each) for each in self.held[LEFT] if before <= each.met_at < after]
        for time, side, each in sorted(found, key=lambda one: one[0]):
            yield self._alone(side, each, time)
        for held in self.held:
            held[:] = [each for each in held if not each.time + within < after]

    def _expire(self, number: int, time: int, lefts: list[_HeldTuple], rights: list[_HeldTuple]) -> Iterator[pa.Table]:
        """Emit the pairs of a window, and the tuples that are in none of them."""
        node = self.node
        pairs = [(left, right) for left in lefts for right in rights if self._fits(left, right)]
        if node.gives_pairs:
            for left, right in pairs:
                yield self._result(left, right, time, number)
        met = [{id(pair[side]) for pair in pairs} for side in (LEFT, RIGHT)]
        for side in node.lonely_sides:
            for each in (lefts, rights)[side]:
                if id(each) not in met[side]:
                    yield self._alone(side, each, time, number)
        if node.how == "semi":
            for left in lefts:
                if id(left) in met[LEFT]:
                    yield self._alone(LEFT, left, time, number)

    def _fits(self, left: _HeldTuple, right: _HeldTuple) -> bool:
        for name, other in self.node.on:
            one, two = left.values[name], right.values[other]
            if one is None or two is None or canonical(one) != canonical(two):
                return False
        return holds(self.node, left, right)

    def _alone(self, side: Side, one: _HeldTuple, time: int, window: int | None = None) -> pa.Table:
        return self._result(one, None, time, window) if side == LEFT else self._result(None, one, time, window)

    def _result(
        self, left: _HeldTuple | None, right: _HeldTuple | None, time: int, window: int | None = None
    ) -> pa.Table:
        moments = {self.node.time: time}
        if window is not None and self.node.window is not None:
            moments |= {"window_start": self.node.window.start(window), "window_end": self.node.window.end(window)}
        return result_of(self.node, left, right, moments)


@dataclass(eq=False)
class JoinedTuple:
    """A tuple: its time, its row, and its values as predicates see them."""

    time: int
    row: pa.Table
    values: RowValues


@dataclass(eq=False)
class _HeldTuple(JoinedTuple):
    """Also the least of the times of its pairs."""

    met_at: Watermark = NEVER


def holds(node: Join | CountJoin, left: JoinedTuple, right: JoinedTuple) -> bool:
    """Whether the predicate is true of two tuples."""
    where = node.where
    if where is None:
        return True
    if where.tree is None and isinstance(where.given, nw.Expr):
        return bool(keep_fitting(_pair(node, left, right), where.given).num_rows)
    return where.holds(left.values, right.values, node.name)


def result_of(
    node: Join | CountJoin, left: JoinedTuple | None, right: JoinedTuple | None, moments: Mapping[str, int]
) -> pa.Table:
    """The result that two tuples, or one of them, give; ``moments`` are the times in it that are no tuple's."""
    pair, kind = _pair(node, left, right), node.schema.field(node.time).type
    times = {name: pa.array([value], pa.int64()).cast(kind) for name, value in moments.items()}
    columns = [times[name] if name in times else pair.column(name) for name in node.schema.names]
    return pa.table(columns, schema=node.schema)


def _pair(node: Join | CountJoin, left: JoinedTuple | None, right: JoinedTuple | None) -> pa.Table:
    """The columns of a pair, or of one tuple and nulls."""
    columns = []
    for each in node.columns:
        of = right if left is None and each.coalesced else (left, right)[each.side]
        columns.append(pa.nulls(1, each.type) if of is None else of.row.column(each.column).cast(each.type))
    return pa.table(columns, schema=node.pair_schema)
