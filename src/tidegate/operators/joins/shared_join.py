"""The state of a join whose instances share memory: what has arrived on both sides, never changed, only added to.

All instances read one log of segments. The first to come to a segment encodes its tuples; when an instance looks for pairs,
they are numbered in the order of the log and can be seen. For segment n the pairs are L_n × R_≤n and L_<n × R_n
(ScaleJoin's scheme, STRETCH operator 3): every instance meets every new tuple and takes its share of the work by the shards
it owns. Ownership only says which instance tries what, so nothing moves when it changes, and no instance waits for another.

Pairs within a distance are found at once. Pairs of windows are found when the windows expire, from what is held then; so
there too nothing has to be handed over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa

from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array, as_numpy, expand_ranges, in_time_order
from tidegate.operators.emit_windows import AT_ONCE, runs_of_windows, window_columns
from tidegate.operators.joins.encode_side import EncodedSide, SideEncoder, TextCodes, TupleArrays
from tidegate.operators.joins.find_pairs import BLOCK, FoundPairs, PairFailed, PairFinder, Scope, TimeRanges
from tidegate.operators.joins.join_side import JoinSide, SideSnapshot, SortedRun
from tidegate.operators.joins.loop_source import texts_of
from tidegate.operators.joins.near import InSameWindow, Near, WithinDistance, near_of
from tidegate.operators.readers import BEFORE, SharedState
from tidegate.query import expressions
from tidegate.query.nodes import Join
from tidegate.query.predicates.bounds import band_of, fits_int64
from tidegate.query.predicates.predicate import failed_on, plain_values
from tidegate.query.predicates.tree import LEFT, RIGHT, TRUE, Column, Side, columns_of
from tidegate.state.chunks import Piece, encode
from tidegate.state.snapshot import SnapshotStore
from tidegate.watermark import Watermark

SegmentTuples: TypeAlias = tuple[EncodedSide, EncodedSide]
"""What a segment brings: the tuples of both sides that are not late."""
BothSides: TypeAlias = tuple[SideSnapshot, SideSnapshot]
KeepPairs: TypeAlias = Callable[[BothSides, FoundPairs], FoundPairs]
"""Leaves out pairs that others emit."""
SPLIT_PAIRS = 1 << 25
"""So many pairs take a thread some 5 ms: more than what several instances spend on finding their shares."""
ROWS_RESTORED = 65_536
"""Tuples of a snapshot are taken in so many at once."""
SORTED_PAIRS = 1 << 12
"""Where pairs are found by sorting, a new tuple takes about as long as trying so many pairs."""


@dataclass(frozen=True, slots=True)
class _View:
    """What an instance sees at a segment: both sides, where each ended before and after it, and the instance's share."""

    number: int
    before: tuple[int, int]
    after: tuple[int, int]
    sides: BothSides
    scope: Scope

    def runs(self, side: Side, last: int) -> list[SortedRun]:
        """The runs of one side up to a segment."""
        return [run for run in self.sides[side].runs if run.number <= last]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Arrivals:
    """Tuples of one side, by the numbers with which they arrived: from ``first`` on, before ``stop``."""

    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class JoinCut:
    """Both sides at a marker: what has arrived, in the parts in which it is written."""

    sides: BothSides
    parts: tuple[Sequence[Arrivals], Sequence[Arrivals]]

    def write(self, store: SnapshotStore) -> None:
        """Put all of it into a snapshot; see `StateCut`."""
        for side, parts in enumerate(self.parts):
            for part in parts:
                store.put(part, partial(self._piece, side, part), side)

    def _piece(self, side: int, part: Arrivals) -> Piece:
        rows = self.sides[side].rows(np.arange(part.first, part.stop))
        return Piece(part.first, part.stop, rows.num_rows, encode(rows))


@dataclass(slots=True, eq=False)
class SharedJoin(SharedState):
    """The shared state of one join. Methods may be called from any thread.

    A segment is encoded once, by any instance. Then every instance, at its own pace, asks for its share of the results
    and acknowledges the segment; tuples are forgotten when all instances have passed their last use.
    """

    node: Join
    split_pairs: int = SPLIT_PAIRS
    near: Near = field(init=False)
    _codes: TextCodes = field(init=False)
    _finder: PairFinder = field(init=False)
    _sides: tuple[JoinSide, JoinSide] = field(init=False)
    _pending: dict[int, SegmentTuples] = field(default_factory=dict)
    _ends: list[tuple[int, int, int]] = field(default_factory=lambda: [(-1, 0, 0)])
    _sizes: dict[Column, int] = field(default_factory=dict)
    _cuts: tuple[list[Arrivals], list[Arrivals]] = field(default_factory=lambda: ([], []))
    _decides: bool = field(init=False)

    def __post_init__(self) -> None:
        node = self.node
        self.near = near_of(node)
        tree = node.where.tree if node.where is not None and node.where.tree is not None else TRUE
        band = band_of(tree) if node.bands and not node.on else None
        self._codes = TextCodes(texts_of(tree))
        self._finder = PairFinder(tree, len(node.on) if len(node.on) > 1 else 0, self._codes, band)
        # Loops decide unless the predicate is interpreted, or numbers may be too large for them.
        self._decides = (node.where is None or node.where.tree is not None) and fits_int64(tree, {})
        left, right = (SideEncoder(node, side, columns_of(tree, side), band, self._codes) for side in (LEFT, RIGHT))
        self._sides = JoinSide(left), JoinSide(right)

    @property
    def rows(self) -> int:
        """How many tuples are held."""
        return sum(side.held for side in self._sides)

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return sum(side.nbytes for side in self._sides)

    @property
    def tried(self) -> int:
        """How many pairs have been tried so far."""
        return self._finder.tried

    @property
    def held(self) -> tuple[int, int]:
        """How many tuples are held of each side."""
        return self._sides[0].held, self._sides[1].held

    def shard_bytes(self) -> Array:
        """How much memory the tuples of each shard take; a shard is every `SHARDS`-th block of arrivals."""
        found = np.zeros(SHARDS)
        with self._lock:
            sides = [(side.log.head, side.log.tail, side.nbytes) for side in self._sides]
        for head, tail, size in sides:
            if tail > head:
                blocks = np.arange(head // BLOCK, (tail - 1) // BLOCK + 1)
                rows = np.minimum((blocks + 1) * BLOCK, tail) - np.maximum(blocks * BLOCK, head)
                found += np.bincount(blocks % SHARDS, rows, minlength=SHARDS) * (size / (tail - head))
        return found

    def encode(self, number: int, tables: Sequence[Sequence[pa.Table]]) -> SegmentTuples:
        """Encode the tuples of both sides of a segment, none of which is late; they are seen in log order."""
        with self._codes.in_use():
            left, right = (
                side.encoder.encode(pa.concat_tables(parts) if parts else side.encoder.schema.empty_table())
                for side, parts in zip(self._sides, tables, strict=True)
            )
            with self._lock:
                self._pending[number] = left, right
        return left, right

    def settle(self, number: int) -> None:
        """Let the tuples of all segments up to one be seen, given that they have all been encoded."""
        with self._lock:
            self._settle(number)

    def worth_splitting(self, arrived: SegmentTuples) -> bool:
        """Whether a segment has so many pairs to try that several instances had better share them; an estimate."""
        new, held = [len(each.tuples) for each in arrived], [side.held for side in self._sides]
        if self._sides[0].sorted:
            return sum(new) * SORTED_PAIRS >= self.split_pairs
        return new[LEFT] * held[RIGHT] + new[RIGHT] * held[LEFT] >= self.split_pairs

    def pairs_within(
        self, number: int, arrived: SegmentTuples, owned: Array | None, keep: KeepPairs | None = None
    ) -> Iterator[pa.Table]:
        """Results that the tuples of a segment give with all up to it, an instance's share, in the order of time."""
        assert isinstance(self.near, WithinDistance), "pairs of windows are emitted when the windows expire"
        view = self._view(number, owned)
        found = self._collected(self._found_within(self.near, arrived, view), view, keep)
        if found is not None:
            yield rows_at_the_later(self.node, view.sides, found)

    def pairs_expired(
        self, number: int, before: Watermark, after: Watermark, owned: Array | None, keep: KeepPairs | None = None
    ) -> Iterator[pa.Table]:
        """Results of the windows that expire as the watermark moves, an instance's share, earliest first."""
        assert isinstance(self.near, InSameWindow), "pairs within a distance are emitted at once"
        window = self.near.window
        if window.first_open(before) == window.first_open(after):
            return
        view = self._view(number, owned)
        first, last = max(window.first_open(before), -(2**62)), min(window.first_open(after) - 1, 2**62)
        found = self._collected(self._found_in_windows(self.near, first, last, view), view, keep)
        if found is not None:
            yield from rows_of_windows(self.node, self.near, view.sides, found, first, last)

    def cut(self, number: int) -> JoinCut:
        """Both sides after a segment, given that all up to it are encoded and none behind it is."""
        with self._lock:
            self._settle(number)
            for side, cuts in zip(self._sides, self._cuts, strict=True):
                cuts[:] = [each for each in cuts if each.stop > side.log.head]
                first = max(side.log.head, cuts[-1].stop if cuts else 0)
                if first < side.log.tail:
                    cuts.append(Arrivals(first, side.log.tail))
            sides = self._sides[0].snapshot(), self._sides[1].snapshot()
            return JoinCut(sides, (tuple(self._cuts[0]), tuple(self._cuts[1])))

    def restore(self, store: SnapshotStore, watermark: Watermark) -> None:
        """Begin with what a snapshot holds, in the order of time, so that it is forgotten by and by."""
        least = self.near.least_time(watermark)
        for side, encoder in enumerate(each.encoder for each in self._sides):
            parts = [table for of, table in store.tables() if of == side]
            if not parts:
                continue
            joined = pa.concat_tables(parts)
            joined, times = in_time_order(joined, as_numpy(joined.column(encoder.node.inputs[side].time)))
            for at in range(int(np.searchsorted(times, least)), len(times), ROWS_RESTORED):
                rows = [joined.slice(at, ROWS_RESTORED)]
                self.encode(BEFORE, (rows, []) if side == LEFT else ([], rows))
                self.settle(BEFORE)
        del self._ends[:-1]

    def _compact(self) -> None:
        """Merge small pieces of state into larger ones."""
        with self._lock:
            if not self._reached:
                return
            settled, least = self._acknowledged, self.near.least_time(self._watermark)
        for side in self._sides:
            while chosen := side.mergeable_runs(settled, self.near.span):
                merged = SortedRun.merged(chosen, least)
                with self._lock:
                    side.replace_runs(chosen, merged)
            while (batch := side.batches.merged()) is not None:
                with self._lock:
                    side.batches = side.batches.replaced(*batch)
        self._codes.forget_unused(self._codes_held)

    def _codes_held(self) -> Iterable[Array]:
        with self._lock:
            held = [array for side in self._sides for array in side.codes_held()]
            for arrived in self._pending.values():
                for side, encoded in zip(self._sides, arrived, strict=True):
                    held += side.encoder.codes_in(encoded.tuples)
            return held

    def _view(self, number: int, owned: Array | None) -> _View:
        with self._lock:
            self._settle(number)
            place = bisect_right(self._ends, number, key=lambda end: end[0]) - 1
            here = self._ends[place]
            before = self._ends[place - 1] if here[0] == number else here
            sides = self._sides[0].snapshot(), self._sides[1].snapshot()
            return _View(number, before[1:], here[1:], sides, Scope(owned, self._decides))

    def _settle(self, number: int) -> None:
        """Number what has been encoded up to a segment, in the order of the log."""
        for due in sorted(each for each in self._pending if each <= number):
            for side, encoded in zip(self._sides, self._pending.pop(due), strict=True):
                side.add(due, encoded)
                larger = {name: size for name, size in encoded.sizes.items() if size > self._sizes.get(name, 0)}
                if larger:
                    self._sizes |= larger
                    self._decides = self._decides and fits_int64(self._finder.tree, self._sizes)
            self._ends.append((due, self._sides[0].log.tail, self._sides[1].log.tail))

    def _found_within(self, near: WithinDistance, arrived: SegmentTuples, view: _View) -> Iterator[FoundPairs]:
        """L_n × R_≤n, then R_n × L_<n."""
        for side in (LEFT, RIGHT):
            new = arrived[side].tuples.arrived_from(view.before[side])
            if len(new):
                yield from self._found(side, new, near.times(new.times), view)

    def _found_in_windows(self, near: InSameWindow, first: int, last: int, view: _View) -> Iterator[FoundPairs]:
        """Pairs that share a window from ``first`` to ``last``: each left tuple meets the right ones in its windows."""
        lefts = [run.tuples for run in view.runs(LEFT, view.number)]
        if not self._sides[0].sorted:
            lefts = [view.sides[0].tuples(view.after[0])]
        for left in lefts:
            begin, end = near.windows(left.times, first, last)
            inside = left if (begin <= end).all() else left.take(begin <= end)
            yield from self._found(LEFT, inside, near.times(inside.times, first, last), view)

    def _found(self, side: Side, new: TupleArrays, times: TimeRanges, view: _View) -> Iterator[FoundPairs]:
        """Pairs of left tuples and right ones up to a segment, or of right tuples and left ones before it."""
        other, last, stop = (
            (RIGHT, view.number, view.after[1]) if side == LEFT else (LEFT, view.number - 1, view.before[0])
        )
        if self._sides[0].sorted:
            return self._finder.in_runs(side, new, view.runs(other, last), times, view.scope)
        stored = view.sides[other]
        return self._finder.in_log(side, new, stored.tuples(stop), times, stored.in_order, view.scope)

    def _collected(self, found: Iterator[FoundPairs], view: _View, keep: KeepPairs | None) -> FoundPairs | None:
        """All that is found; what no loop could decide is decided here, and what others emit left out. None for nothing."""
        interprets = self.node.where is not None and not view.scope.decide
        try:
            parts = [still_fitting(self.node, view.sides, each) if interprets else each for each in found]
        except PairFailed as failed:
            # A pair for which the predicate has no value stops the query.
            left, right = (
                plain_values(side.rows(np.array([number])))[0]
                for side, number in zip(view.sides, failed.args, strict=True)
            )
            raise failed_on(self.node.name, left, right, "divides a whole number by zero") from None
        if not any(len(part.left) for part in parts):
            return None
        together = FoundPairs.concatenated(parts)
        return together if keep is None else keep(view.sides, together)

    def _forget(self) -> None:
        """Drop what no instance needs any more."""
        least = self.near.least_time(self._watermark)
        for side in self._sides:
            side.forget(least)
        keep = bisect_right(self._ends, self._acknowledged, key=lambda end: end[0]) - 1
        if keep > 0:
            del self._ends[:keep]


# From pairs to result rows.


def pair_rows(node: Join, sides: BothSides, left: Array, right: Array) -> pa.Table:
    """The columns of pairs, given by arrival numbers."""
    rows = sides[0].rows(left), sides[1].rows(right)
    return pa.table({column.name: rows[column.side].column(column.column) for column in node.columns})


def still_fitting(node: Join, sides: BothSides, found: FoundPairs) -> FoundPairs:
    """The pairs that fit a predicate which no loop can evaluate: an expression on whole columns, a function pair by pair."""
    where = node.where
    assert where is not None
    if where.tree is None and isinstance(where.given, nw.Expr):
        pairs = pair_rows(node, sides, found.left, found.right)
        numbered = pairs.append_column("__tg_pair", pa.array(np.arange(len(found.left))))
        return found.take(np.asarray(expressions.keep(numbered, where.given).column("__tg_pair")))
    lefts, rights = plain_values(sides[0].rows(found.left)), plain_values(sides[1].rows(found.right))
    fits = [where.holds(one, other, node.name) for one, other in zip(lefts, rights, strict=True)]
    return found.take(np.flatnonzero(np.array(fits, np.bool_)))


def rows_at_the_later(node: Join, sides: BothSides, found: FoundPairs) -> pa.Table:
    """Result rows in the order of their times, the later one of each pair."""
    times = np.maximum(found.left_times, found.right_times)
    order = np.argsort(times, kind="stable")
    pairs = pair_rows(node, sides, found.left[order], found.right[order])
    moment = node.schema.field(node.time).type
    return _table(node, pairs, {node.time: pa.array(times[order]).view(moment)})


def rows_of_windows(
    node: Join, near: InSameWindow, sides: BothSides, found: FoundPairs, first: int, last: int
) -> Iterator[pa.Table]:
    """Result rows in the order of their windows, `AT_ONCE` at a time: a pair once for each it shares in a range."""
    begin, _ = near.windows(np.maximum(found.left_times, found.right_times), first, last)
    _, end = near.windows(np.minimum(found.left_times, found.right_times), first, last)
    for which, low, high in runs_of_windows(begin, end, AT_ONCE):
        lowest = np.maximum(begin[which], low)
        times = np.minimum(end[which], high) - lowest + 1
        take, windows = expand_ranges(lowest, times)
        order = np.argsort(windows, kind="stable")
        take, windows = which[take[order]], windows[order]
        pairs = pair_rows(node, sides, found.left[take], found.right[take])
        yield _table(node, pairs, window_columns(node, windows))


def _table(node: Join, pairs: pa.Table, moments: dict[str, pa.Array]) -> pa.Table:
    columns = [moments[name] if name in moments else pairs.column(name) for name in node.schema.names]
    return pa.table(columns, schema=node.schema)
