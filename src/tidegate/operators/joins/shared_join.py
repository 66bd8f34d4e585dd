"""The state of a join whose instances share memory: what has arrived on both sides, never changed, only added to.

All instances read one log of segments. The first to come to a segment encodes its tuples; when an instance looks for pairs,
they are numbered in the order of the log and can be seen. For segment n the pairs are L_n × R_≤n and L_<n × R_n
(ScaleJoin's scheme, STRETCH operator 3): every instance meets every new tuple and takes its share of the work by the shards
it owns. Ownership only says which instance tries what, so nothing moves when it changes, and no instance waits for another.

Pairs within a distance are found at once. Pairs of windows are found when the windows expire, from what is held then; so
there too nothing has to be handed over.

A tuple that leaves without partner, or once for all its pairs, does so when all instances have found the pairs before that
time. The instance that comes last to a watermark emits what is decided there (`SharedJoin.decide`): its own results have not
passed that time, so no instance has to wait for it. Over windows an instance tries all pairs of the tuples it owns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.operators.cells import SHARDS
from tidegate.operators.columns import Array, as_numpy, in_time_order
from tidegate.operators.joins.encode_side import EncodedSide, SideEncoder, TextCodes, TupleArrays
from tidegate.operators.joins.find_pairs import (
    BLOCK,
    FoundPairs,
    PairFinder,
    Scope,
    TimeRanges,
    owned_by,
)
from tidegate.operators.joins.first_pairs import NOBODY, FirstPairs, ResultSpans, SideWindows
from tidegate.operators.joins.join_cut import Arrivals, JoinCut
from tidegate.operators.joins.join_side import JoinSide, SideSnapshot, SortedRun
from tidegate.operators.joins.loop_source import texts_of
from tidegate.operators.joins.near import InSameWindow, Near, WithinDistance, least_kept, near_of
from tidegate.operators.joins.result_rows import fitting_pairs, rows_at, rows_of_windows
from tidegate.operators.readers import BEFORE, SharedState
from tidegate.query.nodes import Join
from tidegate.query.predicates.bounds import band_of, fits_int64
from tidegate.query.predicates.tree import LEFT, RIGHT, TRUE, Column, Side, columns_of
from tidegate.state.snapshot import SnapshotStore
from tidegate.watermark import START, Watermark

SideSnapshots: TypeAlias = tuple[SideSnapshot, SideSnapshot]
SegmentTuples: TypeAlias = tuple[EncodedSide, EncodedSide]
"""What a segment brings: the tuples of both sides that are not late."""
KeepPairs: TypeAlias = Callable[[SideSnapshots, FoundPairs], FoundPairs]
"""Leaves out pairs that others emit."""
SPLIT_PAIRS = 1 << 25
"""So many pairs take a thread some 5 ms: more than what several instances spend on finding their shares."""
ROWS_RESTORED = 65_536
"""Tuples of a snapshot are taken in so many at once."""
SORTED_PAIRS = 1 << 12
"""Where pairs are found by sorting, a new tuple takes about as long as trying so many pairs."""
GROUPED_PAIRS = 1 << 8
"""The same where its key finds them."""


@dataclass(frozen=True, slots=True)
class _View:
    """What an instance sees at a segment: both sides, where each ended before and after it, and the instance's share."""

    number: int
    before: tuple[int, int]
    after: tuple[int, int]
    sides: SideSnapshots
    scope: Scope

    def runs(self, side: Side, last: int) -> list[SortedRun]:
        """The runs of one side up to a segment."""
        return [run for run in self.sides[side].runs if run.number <= last]


@dataclass(slots=True, eq=False)
class SharedJoin(SharedState):
    """The shared state of one join. Methods may be called from any thread.

    A segment is encoded once, by any instance. Then every instance, at its own pace, asks for its share of the results
    and acknowledges the segment; tuples are forgotten when all instances have passed their last use. Unless it
    ``emits_pairs``, pairs only say which tuples have partners.
    """

    node: Join
    split_pairs: int = SPLIT_PAIRS
    emits_pairs: bool = True
    near: Near = field(init=False)
    _codes: TextCodes = field(init=False)
    _finder: PairFinder = field(init=False)
    _sides: tuple[JoinSide, JoinSide] = field(init=False)
    _pending: dict[int, SegmentTuples] = field(default_factory=dict)
    _ends: list[tuple[int, int, int]] = field(default_factory=lambda: [(-1, 0, 0)])
    _sizes: dict[Column, int] = field(default_factory=dict)
    _cuts: tuple[list[Arrivals], list[Arrivals]] = field(default_factory=lambda: ([], []))
    _decides: bool = field(init=False)
    _first_pairs: dict[Side, FirstPairs] = field(init=False)
    _decided: dict[int, Watermark] = field(default_factory=dict)
    _emitted: Watermark = START

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
        within = isinstance(self.near, WithinDistance)
        self._first_pairs = {
            side: FirstPairs(self.near.span, node.how == "semi") for side in node.judged_sides if within
        }

    @property
    def rows(self) -> int:
        """How many tuples are held."""
        return sum(side.held for side in self._sides)

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        first_pairs = sum(first.nbytes for first in self._first_pairs.values())
        return first_pairs + sum(side.nbytes for side in self._sides)

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

    def worth_splitting(self, arrived: SegmentTuples | None = None) -> bool:
        """Whether what arrived (None: all that is held) has so many pairs that several instances had better share them."""
        held = [side.held for side in self._sides]
        largest = [sum(run.largest for run in tuple(side.runs)) for side in self._sides]
        new, frequent = held, largest
        if arrived is not None:
            new = [len(each.tuples) for each in arrived]
            frequent = [0 if each.tuples.groups is None else each.tuples.groups.largest for each in arrived]
        if self.node.on:
            # Most keys have few tuples. How many pairs there are beside theirs is known from the most frequent keys.
            pairs = frequent[LEFT] * largest[RIGHT] + frequent[RIGHT] * largest[LEFT]
            return sum(new) * GROUPED_PAIRS + pairs >= self.split_pairs
        if self._sides[0].sorted:
            return sum(new) * SORTED_PAIRS >= self.split_pairs
        return new[LEFT] * held[RIGHT] + new[RIGHT] * held[LEFT] >= self.split_pairs

    def pairs_within(
        self, number: int, arrived: SegmentTuples, owned: Array | None, keep: KeepPairs | None = None
    ) -> Iterator[pa.Table]:
        """Pairs that the tuples of a segment give with all up to it, an instance's share, in the order of time."""
        view = self._view(number, owned)
        found = self._note_pairs(arrived, view, keep)
        if len(found.left) and self.node.gives_pairs and self.emits_pairs:
            yield rows_at(self.node, view.sides, found.left, found.right, found.times)

    def found_within(self, number: int, arrived: SegmentTuples, owned: Array | None) -> FoundPairs:
        """The same pairs, for `decide` to emit."""
        return self._note_pairs(arrived, self._view(number, owned), None)

    def note_pairs(self, number: int, arrived: SegmentTuples) -> None:
        """Find out which tuples have partners, as `pairs_within` does, for a segment whose pairs were emitted before."""
        if self._first_pairs:
            self._note_pairs(arrived, self._view(number, None), None)

    def attach(self, reader: int, segment: int, watermark: Watermark) -> None:
        with self._lock:
            self._decided[reader] = watermark
        SharedState.attach(self, reader, segment, watermark)

    def detach(self, reader: int) -> None:
        with self._lock:
            del self._decided[reader]
        SharedState.detach(self, reader)

    def decide(self, reader: int, watermark: Watermark, found: FoundPairs | None = None) -> Iterator[pa.Table]:
        """Note that a reader has found all pairs before a watermark, which is that of the segment it is at; they leave.

        If it is the last of all, what that decides leaves too: tuples without partner, or once for all their pairs, in the
        order of time, from where the reader was before. One that is about to detach has found all it will ever find: `END`.
        """
        with self._lock:
            self._decided[reader] = watermark
            before, after = self._emitted, min(self._decided.values())
            self._emitted = max(before, after)
        return self.due(before, after, found)

    def due(self, before: Watermark, after: Watermark, found: FoundPairs | None = None) -> Iterator[pa.Table]:
        """Tuples that leave alone as the watermark moves, in the order of time, where pairs are within a distance.

        With pairs that were found, and whose tuples are still held, those among them.
        """
        some = found is not None and len(found.left) > 0 and self.node.gives_pairs
        if not some and (before >= after or not self._first_pairs):
            return
        with self._lock:
            sides = self._sides[0].snapshot(), self._sides[1].snapshot()
            due = [(side, first.due(before, after)) for side, first in self._first_pairs.items() if before < after]
        lefts, rights = (
            [each.numbers if of == side else np.full(len(each.numbers), NOBODY) for of, each in due]
            for side in (LEFT, RIGHT)
        )
        moments = [each.times for _, each in due]
        if some and found is not None:
            lefts, rights, moments = [*lefts, found.left], [*rights, found.right], [*moments, found.times]
        left, right, times = (np.concatenate(each) for each in (lefts, rights, moments))
        if len(times):
            yield rows_at(self.node, sides, left, right, times)

    def pairs_expired(
        self, number: int, before: Watermark, after: Watermark, owned: Array | None, keep: KeepPairs | None = None
    ) -> Iterator[pa.Table]:
        """Results of the windows that expire as the watermark moves, an instance's share, earliest first."""
        near = self.near
        assert isinstance(near, InSameWindow), "pairs within a distance are emitted at once"
        window = near.window
        if window.first_open(before) == window.first_open(after):
            return
        view = self._view(number, owned)
        first, last = max(window.first_open(before), -(2**62)), min(window.first_open(after) - 1, 2**62)
        if self.node.how == "inner":
            found = self._collected(self._found_in_windows(near, LEFT, first, last, view), view, keep)
            spans = ResultSpans.of_pairs(near, found, first, last)
        else:
            assert keep is None, "what an outer join emits is not known from a part of its pairs"
            spans = self._outer_spans(near, first, last, view)
        yield from rows_of_windows(self.node, view.sides, spans)

    def _outer_spans(self, near: InSameWindow, first: int, last: int, view: _View) -> ResultSpans:
        """What an instance emits of windows: the pairs of tuples that it owns, and those of them that leave alone."""
        node = self.node
        by = RIGHT if node.how == "right" else LEFT
        found = self._collected(self._found_in_windows(near, by, first, last, view), view, None)
        spans = [ResultSpans.of_pairs(near, found, first, last)] if node.gives_pairs and self.emits_pairs else []
        for side in node.judged_sides:
            if side != by and view.scope.owned is not None:
                # Other instances own the left tuples of some of its pairs.
                found = self._collected(self._found_in_windows(near, side, first, last, view), view, None)
            numbers, times = view.sides[side].times(node.inputs[side].time, view.after[side])
            begin, end = near.windows(times, first, last)
            mine = begin <= end if view.scope.owned is None else (begin <= end) & owned_by(view.scope.owned, numbers)
            spans += SideWindows(side, numbers[mine], begin[mine], end[mine]).spans(near, found, node.how == "semi")
        return ResultSpans.concatenated(spans)

    def _note_pairs(self, arrived: SegmentTuples, view: _View, keep: KeepPairs | None) -> FoundPairs:
        """The pairs that the tuples of a segment give; whose tuples are no longer without partner."""
        assert isinstance(self.near, WithinDistance), "pairs of windows are emitted when the windows expire"
        found = self._collected(self._found_within(self.near, arrived, view), view, keep)
        self._note(found)
        return found

    def _note(self, found: FoundPairs) -> None:
        if self._first_pairs and len(found.left):
            with self._lock:
                for side, first in self._first_pairs.items():
                    first.note(found.left if side == LEFT else found.right, found.times)

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
        held = store.tables()
        for side, encoder in enumerate(each.encoder for each in self._sides):
            least = least_kept(self.node, side, watermark)
            parts = [table for chunk, table in held if chunk.side == side]
            if not parts:
                continue
            joined = pa.concat_tables(parts)
            joined, times = in_time_order(joined, as_numpy(joined.column(encoder.node.inputs[side].time)))
            for at in range(int(np.searchsorted(times, least)), len(times), ROWS_RESTORED):
                rows = [joined.slice(at, ROWS_RESTORED)]
                self.encode(BEFORE, (rows, []) if side == LEFT else ([], rows))
                self.settle(BEFORE)
        del self._ends[:-1]
        self._emitted = watermark
        if self._first_pairs:
            view = self._view(BEFORE, None)
            self._note(self._collected(self._found_again(view), view, None))

    def _compact(self) -> None:
        """Merge small pieces of state into larger ones."""
        with self._lock:
            if not self._reached:
                return
            settled, watermark = self._acknowledged, self._watermark
        for side in self._sides:
            least = least_kept(self.node, side.encoder.side, watermark)
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
                first_pairs = self._first_pairs.get(side.encoder.side)
                if first_pairs is not None and len(encoded.times):
                    first_pairs.add(encoded.times)
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
                # Of the pairs inside the segment the left tuples have been first.
                yield from self._found(side, new, near.times(new.times), view, before=side == RIGHT)

    def _found_again(self, view: _View) -> Iterator[FoundPairs]:
        """All pairs within a distance of the tuples that are held."""
        assert isinstance(self.near, WithinDistance)
        for left in self._tuples(LEFT, view):
            yield from self._found(LEFT, left, self.near.times(left.times), view)

    def _tuples(self, side: Side, view: _View) -> list[TupleArrays]:
        """The tuples of a side up to a segment, in the pieces in which they are held."""
        if self._sides[0].sorted:
            return [run.tuples for run in view.runs(side, view.number)]
        return [view.sides[side].tuples(view.after[side])]

    def _found_in_windows(
        self, near: InSameWindow, side: Side, first: int, last: int, view: _View
    ) -> Iterator[FoundPairs]:
        """Pairs that share a window from ``first`` to ``last``: each tuple of a side meets those in its windows.

        Where tuples may leave alone, all pairs of the tuples that the instance owns.
        """
        low, high = near.spanned(first, last)
        for tuples in self._tuples(side, view):
            inside = (tuples.times >= low) & (tuples.times <= high)
            if self.node.how != "inner" and view.scope.owned is not None:
                inside &= owned_by(view.scope.owned, tuples.arrivals)
            some = tuples if inside.all() else tuples.take(np.flatnonzero(inside))
            if len(some):
                yield from self._found(side, some, near.times(some.times, first, last), view)

    def _found(
        self, side: Side, new: TupleArrays, times: TimeRanges, view: _View, before: bool = False
    ) -> Iterator[FoundPairs]:
        """Pairs of some tuples and those of the other side up to a segment, or before it."""
        other = RIGHT if side == LEFT else LEFT
        last, stop = (view.number - 1, view.before[other]) if before else (view.number, view.after[other])
        scope = view.scope
        if self.node.how != "inner" and self.node.window is not None:
            scope = Scope(None, scope.decide)
        if self._sides[0].sorted:
            return self._finder.in_runs(side, new, view.runs(other, last), times, scope)
        stored = view.sides[other]
        return self._finder.in_log(side, new, stored.tuples(stop), times, stored.in_order, scope)

    def _collected(self, found: Iterator[FoundPairs], view: _View, keep: KeepPairs | None) -> FoundPairs:
        """All that is found; what no loop could decide is decided here, and what others emit left out."""
        parts = fitting_pairs(self.node, view.sides, found, view.scope.decide)
        if not any(len(part.left) for part in parts):
            return FoundPairs.none()
        together = FoundPairs.concatenated(parts)
        return together if keep is None else keep(view.sides, together)

    def _forget(self) -> None:
        """Drop what no instance needs any more."""
        for side in self._sides:
            side.forget(least_kept(self.node, side.encoder.side, self._watermark))
        for which, first in self._first_pairs.items():
            first.forget(self._sides[which].log.head)
        keep = bisect_right(self._ends, self._acknowledged, key=lambda end: end[0]) - 1
        if keep > 0:
            del self._ends[:keep]
