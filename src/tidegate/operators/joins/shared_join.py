"""The state of a join whose instances share memory: what has arrived on both sides, never changed, only added to.

All instances read one log of segments. Whoever is first reads the tuples of a segment; when an instance comes to it, they
are numbered in the order of the log and can be seen. For segment n the pairs are L_n × R_≤n and L_<n × R_n (ScaleJoin's
scheme, STRETCH operator 3): every instance meets every new tuple and takes its share of the work by the shards it owns.
Ownership only says who tries what, so nothing moves when it changes, and no instance waits for another.

Pairs within a distance are found at once. Pairs of windows are found when the windows expire, from what is held then; so
there too nothing has to be handed over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.instances import SHARDS
from tidegate.operators.joins.columns import Columns
from tidegate.operators.joins.find_pairs import FindPairs, Found
from tidegate.operators.joins.join_side import JoinSide, merge_runs, new_tuples
from tidegate.operators.joins.make_results import Stores, pairs_at_the_later, pairs_of_windows, still_fitting
from tidegate.operators.joins.near import Sharing, Within
from tidegate.operators.joins.read_side import Arrived, ReadSide
from tidegate.operators.joins.sorted_runs import SortedRun
from tidegate.operators.joins.text_codes import TextCodes
from tidegate.operators.joins.try_pairs import PairFailed, TryPairs
from tidegate.operators.readers import SharedState
from tidegate.query.nodes import Join
from tidegate.query.predicates.bounds import band_of
from tidegate.query.predicates.predicate import failed_on, plain_values
from tidegate.query.predicates.tree import LEFT, RIGHT, TRUE, Column, ConstantValue, Side, walk_tree
from tidegate.watermark import Watermark

Array = np.ndarray[Any, Any]

SPLIT_PAIRS = 1 << 25
"""So many pairs take a thread some 5 ms: more than what several instances spend on finding their shares."""
SORTED_PAIRS = 1 << 12
"""Where pairs are found by sorting, a new tuple takes about as long as trying so many pairs."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """What a segment brings: the tuples of both sides that are not late."""

    sides: tuple[Arrived, Arrived]

    @property
    def late(self) -> int:
        return self.sides[0].late + self.sides[1].late


@dataclass(frozen=True, slots=True)
class _View:
    """What an instance sees at a segment: where each side ended before and after it, its rows and its runs."""

    number: int
    before: tuple[int, int]
    after: tuple[int, int]
    heads: tuple[int, int]
    stores: Stores
    runs: tuple[list[SortedRun], list[SortedRun]]
    in_order: tuple[bool, bool]
    decide: bool


@dataclass(slots=True, eq=False)
class SharedJoin(SharedState):
    """The shared state of one join. Methods may be called from any thread.

    A segment is `lift`ed and `insert`ed once, by anybody. Then every instance, at its own pace, asks for its share of the
    results and acknowledges the segment; tuples are forgotten when all instances have passed their last use.
    """

    node: Join
    shards: int = SHARDS
    split_pairs: int = SPLIT_PAIRS
    late: int = 0
    near: Within | Sharing = field(init=False)
    _codes: TextCodes = field(init=False)
    _find: FindPairs = field(init=False)
    _sides: tuple[JoinSide, JoinSide] = field(init=False)
    _pending: dict[int, Lifted] = field(default_factory=dict)
    _ends: list[tuple[int, int, int]] = field(default_factory=lambda: [(-1, 0, 0)])
    _sizes: dict[Column, int] = field(default_factory=dict)
    _exact: bool = True
    _asks_later: bool = False
    _merging: bool = False

    def __post_init__(self) -> None:
        node = self.node
        if node.window is not None:
            self.near = Sharing(node.window)
        else:
            assert node.within_us is not None
            self.near = Within(node.within_us)
        tree = node.where.tree if node.where is not None and node.where.tree is not None else TRUE
        self._asks_later = node.where is not None and node.where.tree is None
        band = band_of(tree) if node.bands and not node.on else None
        texts = (part.value for part in walk_tree(tree) if isinstance(part, ConstantValue))
        self._codes = TextCodes(text for text in texts if isinstance(text, str | bytes))
        loops = TryPairs(tree, len(node.on) if len(node.on) > 1 else 0, self._codes)
        self._find = FindPairs(loops, band, self.shards)
        self._exact = loops.exact({})
        is_sorted = bool(node.on) or band is not None
        left, right = (ReadSide(node, side, tree, band, self._codes) for side in (LEFT, RIGHT))
        self._sides = JoinSide(left, is_sorted), JoinSide(right, is_sorted)

    @property
    def rows(self) -> int:
        """How many tuples are held."""
        return sum(side.tail - side.head for side in self._sides)

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return sum(side.nbytes for side in self._sides)

    def lift(self, number: int, tables: Sequence[Sequence[pa.Table]], before: Watermark) -> Lifted:
        """Read the tuples of both sides of a segment, given the watermark before it, and put them down for their turn."""
        least = self.near.least_arriving(before)
        with self._codes.in_use():
            left, right = (
                side.reader.read(_joined(parts, side.rows.schema), least)
                for side, parts in zip(self._sides, tables, strict=True)
            )
            lifted = Lifted((left, right))
            with self._lock:
                self._pending[number] = lifted
                self.late += lifted.late
        return lifted

    def settle(self, number: int) -> None:
        """Let the tuples of all segments up to one be seen, given that they have all been read."""
        with self._lock:
            self._settle(number)

    def worth_splitting(self, lifted: Lifted) -> bool:
        """Whether a segment has so many pairs to try that several instances had better share them; an estimate."""
        new, held = [len(each.columns) for each in lifted.sides], [side.tail - side.head for side in self._sides]
        if self._sides[0].sorted:
            return sum(new) * SORTED_PAIRS >= self.split_pairs
        return new[LEFT] * held[RIGHT] + new[RIGHT] * held[LEFT] >= self.split_pairs

    def pairs_within(self, number: int, lifted: Lifted, owned: Array | None) -> Iterator[pa.Table]:
        """Results that the tuples of a segment make with all up to it, an instance's share, in the order of time."""
        if not isinstance(self.near, Within):
            raise InternalError("pairs of windows are handed out when the windows expire")
        view = self._view(number)
        found = [self._numbered(each, view) for each in self._checked(self._found_within(lifted, view, owned), view)]
        found = [each for each in found if len(each[0])]
        if found:
            left, right, left_times, right_times = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
            yield pairs_at_the_later(self.node, view.stores, left, right, np.maximum(left_times, right_times))

    def pairs_expired(
        self, number: int, before: Watermark, after: Watermark, owned: Array | None
    ) -> Iterator[pa.Table]:
        """Results of the windows that expire as the watermark moves, an instance's share, earliest first."""
        if not isinstance(self.near, Sharing):
            raise InternalError("pairs within a distance are handed out at once")
        window = self.near.window
        if window.first_open(before) == window.first_open(after):
            return
        view = self._view(number)
        first, last = max(window.first_open(before), -(2**62)), min(window.first_open(after) - 1, 2**62)
        found = [self._numbered(each, view) for each in self._checked(self._sharing(first, last, view, owned), view)]
        found = [each for each in found if len(each[0])]
        if found:
            left, right, left_times, right_times = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
            begin, _ = self.near.windows(np.maximum(left_times, right_times), first, last)
            _, end = self.near.windows(np.minimum(left_times, right_times), first, last)
            yield from pairs_of_windows(self.node, self.near, view.stores, left, right, begin, end)

    def compact(self) -> None:
        """Merge small pieces of state into larger ones, unless somebody is at it."""
        with self._lock:
            if self._merging or not self._reached:
                return
            self._merging = True
            settled, least = self._acknowledged, self.near.least_time(self._watermark)
        try:
            for side in self._sides:
                self._compact_side(side, settled, least)
        finally:
            self._merging = False
        self._codes.forget_unused(self._codes_held)

    def _compact_side(self, side: JoinSide, settled: int, least: int) -> None:
        while chosen := side.mergeable_runs(settled, self.near.span):
            made = merge_runs(chosen, least)
            with self._lock:
                side.replace_runs(chosen, made)
        while (places := (batches := side.rows.batches).mergeable()) is not None:
            batch = batches.merged(places)
            with self._lock:
                first, last = batches.firsts[places[0]], batches.firsts[places[-1]]
                side.rows.batches = side.rows.batches.replaced(first, last, batch)

    def _codes_held(self) -> Iterable[Array]:
        with self._lock:
            held = [array for side in self._sides for array in side.codes_held()]
            for lifted in self._pending.values():
                for arrived in lifted.sides:
                    held += [*arrived.columns.keys, *(v for v in arrived.columns.values if v.dtype == np.int64)]
            return held

    def _view(self, number: int) -> _View:
        with self._lock:
            self._settle(number)
            place = bisect_right(self._ends, number, key=lambda end: end[0]) - 1
            here = self._ends[place]
            before = self._ends[place - 1] if here[0] == number else here
            left, right = self._sides
            return _View(
                number,
                before[1:],
                here[1:],
                (left.head, right.head),
                (left.rows.seen(), right.rows.seen()),
                (left.runs, right.runs),
                (left.in_order, right.in_order),
                self._exact and not self._asks_later,
            )

    def _settle(self, number: int) -> None:
        """Number what has been read up to a segment, in the order of the log."""
        for due in sorted(each for each in self._pending if each <= number):
            lifted = self._pending.pop(due)
            for side, arrived in zip(self._sides, lifted.sides, strict=True):
                side.add(due, arrived)
                larger = {name: size for name, size in arrived.sizes.items() if size > self._sizes.get(name, 0)}
                if larger:
                    self._sizes |= larger
                    self._exact = self._find.loops.exact(self._sizes)
            self._ends.append((due, self._sides[0].tail, self._sides[1].tail))

    def _found_within(self, lifted: Lifted, view: _View, owned: Array | None) -> Iterator[Found]:
        """L_n × R_≤n, then R_n × L_<n."""
        near = self.near
        assert isinstance(near, Within)
        left, right = (new_tuples(side, first) for side, first in zip(lifted.sides, view.before, strict=True))
        if self._sides[0].sorted:
            seen = [run for run in view.runs[1] if run.number <= view.number]
            older = [run for run in view.runs[0] if run.number < view.number]
            yield from self._find.in_runs(LEFT, left, seen, near.times(left.times), owned, view.decide)
            yield from self._find.in_runs(RIGHT, right, older, near.times(right.times), owned, view.decide)
            return
        if len(left):
            yield from self._in_log(LEFT, left, view, view.after[1], owned)
        if len(right):
            yield from self._in_log(RIGHT, right, view, view.before[0], owned)

    def _in_log(self, side: Side, new: Columns, view: _View, stop: int, owned: Array | None) -> Iterator[Found]:
        """Pairs of new tuples and those of the other side that arrived before the number ``stop``."""
        near, other = self.near, 1 - side
        assert isinstance(near, Within)
        stored = self._stored(other, view.heads[other], stop)
        if view.in_order[other]:
            yield from self._find.in_log(side, new, stored, near, owned, view.decide)
        else:
            yield from self._find.in_log_by_time(side, new, stored, near.times(new.times), owned, view.decide)

    def _sharing(self, first: int, last: int, view: _View, owned: Array | None) -> Iterator[Found]:
        """Pairs that share a window from ``first`` to ``last``: each left tuple meets the right ones in its windows."""
        near = self.near
        assert isinstance(near, Sharing)
        if self._sides[0].sorted:
            lefts, rights = ([run for run in runs if run.number <= view.number] for runs in view.runs)
            for run in lefts:
                left, times = _inside(run.columns, near, first, last)
                yield from self._find.in_runs(LEFT, left, rights, times, owned, view.decide)
            return
        left, times = _inside(self._stored(0, view.heads[0], view.after[0]), near, first, last)
        stored = self._stored(1, view.heads[1], view.after[1])
        yield from self._find.in_log_by_time(LEFT, left, stored, times, owned, view.decide)

    def _stored(self, side: int, first: int, stop: int) -> Any:
        with self._lock:
            return self._sides[side].log.view(first, stop)

    def _checked(self, found: Iterator[Found], view: _View) -> Iterator[Found]:
        """What is found; a pair for which the predicate has no value stops the query."""
        try:
            yield from found
        except PairFailed as failed:
            left, right = (
                plain_values(store.take(np.array([number])))[0]
                for store, number in zip(view.stores, (failed.new, failed.stored), strict=True)
            )
            raise failed_on(self.node.name, left, right, "divides a whole number by zero") from None

    def _numbered(self, found: Found, view: _View) -> tuple[Array, Array, Array, Array]:
        """Pairs as arrival numbers and times of both sides; what no loop could decide is asked here."""
        left, right = found.of_side(LEFT, "arrivals"), found.of_side(RIGHT, "arrivals")
        times = found.of_side(LEFT, "times"), found.of_side(RIGHT, "times")
        if view.decide or self.node.where is None:
            return left, right, *times
        kept = still_fitting(self.node, view.stores, left, right)
        return left[kept], right[kept], times[0][kept], times[1][kept]

    def _forget(self) -> None:
        """Drop what no instance needs any more."""
        least = self.near.least_time(self._watermark)
        for side in self._sides:
            side.forget(least)
        keep = bisect_right(self._ends, self._acknowledged, key=lambda end: end[0]) - 1
        if keep > 0:
            del self._ends[:keep]


def _joined(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    if not parts:
        return schema.empty_table()
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def _inside(columns: Any, near: Sharing, first: int, last: int) -> tuple[Any, tuple[Array, Array]]:
    """The tuples that lie in windows from ``first`` to ``last``, and the times with which each shares one of them."""
    begin, end = near.windows(columns.times, first, last)
    kept = begin <= end
    inside = columns if kept.all() else columns.take(kept)
    return inside, near.times(inside.times, first, last)
