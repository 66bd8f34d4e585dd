"""A cell of a join: its tuples of both sides as chunks in a store, and their pairs.

A batch adds its tuples and advances to the watermark after it. Pairs within a distance are emitted at once, those of windows
when the windows expire. A batch appends a chunk for each side it touches. It reads what is not in memory, so a join by key
or by band costs what it touches.

What a worker remembers between batches may be behind the store or beside it: a worker is bound to no cell, and its attempts
may fail. Chunks never change, and other contents have other names: what is in memory is good if each of its chunks is listed
by the cell's directory, or is so old that it was forgotten. Then the chunks it does not have yet are added. Else, after a
failed attempt, where other workers merged chunks, or where shards have gone to another cell, it is built anew from all of
them.

Which tuples have been in a pair is not stored: it follows from the tuples, and is found out when chunks are read. For that
those of the other side are kept twice as long as pairs alone would need them.

Without keys, and where one key is spread over cells, a cell has shards of a grid (`tidegate.state.pair_grid`): it holds the
tuples of the lines in which they lie. Unless its shards are all that its rows and columns of a square have in common, some
pairs belong to other cells and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from tidegate.operators.cells import Instances
from tidegate.operators.columns import Array
from tidegate.operators.exchange import Delta, times_of, tuple_piece, tuple_shards
from tidegate.operators.joins.cached_join import IN_THIS_PROCESS, SIDES, CachedJoin, JoinCache, SideTables
from tidegate.operators.joins.encode_side import without_null_keys
from tidegate.operators.joins.find_pairs import FoundPairs
from tidegate.operators.joins.join_side import merge_candidates
from tidegate.operators.joins.near import InSameWindow, Near, WithinDistance, least_kept, near_of, pair_grid_of
from tidegate.operators.joins.result_rows import BothSides
from tidegate.operators.joins.shared_join import KeepPairs
from tidegate.operators.keys import key_hashes, step_shards
from tidegate.query.nodes import Join
from tidegate.query.predicates.tree import LEFT, RIGHT
from tidegate.query.schema import contiguous
from tidegate.state import chunks
from tidegate.state.chunks import Chunk, ChunkStore, Data
from tidegate.state.epochs import ALL, ShardSet, members
from tidegate.state.pair_grid import PairGrid
from tidegate.watermark import Watermark

MOST_ROWS = 1 << 18


@dataclass(slots=True, eq=False)
class JoinCell:
    """The working side of a directory; pairs are found by the instances, each its share."""

    node: Join
    cell: int
    store: ChunkStore
    instances: Instances
    cache: JoinCache = field(default_factory=lambda: IN_THIS_PROCESS)
    near: Near = field(init=False)
    grid: PairGrid | None = field(init=False)
    _cached: CachedJoin | None = None

    def __post_init__(self) -> None:
        self.near = near_of(self.node)
        self.grid = pair_grid_of(self.node)

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Add tuples and advance; see `OpenCell`."""
        tuples = self._tuples(deltas)
        found: Iterator[pa.Table] = iter(())
        if isinstance(self.near, WithinDistance):
            before = self.store.directory.watermark
            if any(tuples) or self._may_decide(self.near.span, before, watermark):
                cached = self._ready()
                shares, keep = self.instances.shares(), self._kept_on_grid() or self._kept_by_time()
                arrived, segment = cached.add(tuples), cached.segment
                work = [
                    join.pairs_within(segment, each, share, keep)
                    for join, each in zip(cached.joins, arrived, strict=True)
                    for share in shares
                ]
                found = chain(self.instances.run(work), *(join.due(before, watermark) for join in cached.joins))
                self._append(tuples, watermark, cached)
        else:
            found = self._expire(tuples, watermark)
        self._finish(watermark)
        held, self._cached = self._cached, None
        return self._pairs(found, held)

    def _pairs(self, found: Iterator[pa.Table], cached: CachedJoin | None) -> Iterator[pa.Table]:
        """The pairs; what is in memory forgets what it needed for them and is kept for the next batch."""
        listed, watermark = list(self.store.directory.chunks), self.store.directory.watermark
        yield from found
        if cached is not None and listed:
            cached.forget(listed, watermark)
            self.cache.put(self.store.folder.where, self.cell, cached)

    def _may_decide(self, span: int, before: Watermark, after: Watermark) -> bool:
        """Whether tuples in the store may leave alone as the watermark moves."""
        least = 0 if self.node.how == "semi" else span
        listed = [chunk for chunk in self.store.directory.chunks if chunk.side in self.node.judged_sides]
        return any(chunk.low + least < after and chunk.high + span >= before for chunk in listed)

    def _expire(self, tuples: SideTables, watermark: Watermark) -> Iterator[pa.Table]:
        """Add tuples, and the pairs of windows that expire; what is stored is read only if some do."""
        assert isinstance(self.near, InSameWindow)
        before, window, listed = self.store.directory.watermark, self.near.window, self.store.directory.chunks
        expires = window.first_open(before) < window.first_open(watermark)
        sides = {chunk.side for chunk in listed} | {side for side in SIDES if tuples[side]}
        gives = expires and (len(sides) == len(SIDES) or bool(sides.intersection(self.node.lonely_sides)))
        cached = self._ready() if not listed or gives else self._take()
        if cached is not None and not {chunk.held_as for chunk in listed} <= cached.chunks.keys():
            cached = self._cached = None
        if cached is not None and any(tuples):
            cached.add(tuples)
        self._append(tuples, watermark, cached)
        if not gives or cached is None:
            return iter(())
        joins, segment, shares = cached.joins, cached.segment, self.instances.shares()
        return chain.from_iterable(
            self.instances.run(
                [join.pairs_expired(segment, low, high, each, keep) for join in joins for each in shares]
            )
            for low, high, keep in self._owned(before, watermark)
        )

    def _ready(self) -> CachedJoin:
        """The join in memory, with all that is in the store."""
        cached = self._take()
        if cached is None:
            cached = self._cached = CachedJoin(self.node, self._judged)
        missing = [chunk for chunk in self.store.directory.chunks if chunk.held_as not in cached.chunks]
        read = list(zip(missing, self.read(missing), strict=True))
        for side in SIDES:
            cached.add_chunks(side, [table for chunk, table in read if chunk.side == side])
        cached.chunks |= {chunk.held_as: chunk for chunk in missing}
        return cached

    @property
    def _judged(self) -> ShardSet:
        """The shards whose tuples the cell judges, where it has all tuples of both sides; else `ALL`."""
        return self.store.owned if self.grid is not None and self.grid.judged == SIDES else ALL

    def _take(self) -> CachedJoin | None:
        """The join in memory, if there is a valid one."""
        if self._cached is None:
            cached, directory = self.cache.take(self.store.folder.where, self.cell), self.store.directory
            if cached is not None and cached.is_valid(directory.chunks, directory.watermark, self._judged):
                self._cached = cached
        return self._cached

    def _finish(self, watermark: Watermark) -> None:
        """Move the watermark, forget, and merge small chunks."""
        directory = self.store.directory
        directory.watermark = max(directory.watermark, watermark)
        for side in SIDES:
            least = least_kept(self.node, side, directory.watermark)
            for chunk in [chunk for chunk in directory.chunks if chunk.side == side and chunk.high < least]:
                self.store.drop(chunk)
            self._merge_small(side, least)

    def _tuples(self, deltas: Sequence[Delta]) -> SideTables:
        """The tuples of each side that can be paired, or leave alone."""
        sides: SideTables = ([], [])
        for delta in deltas:
            alone = delta.side in self.node.lonely_sides
            table = delta.rows if alone else without_null_keys(self.node, delta.side, delta.rows)
            if table.num_rows:
                sides[delta.side].append(table)
        return sides

    def _append(self, tuples: SideTables, watermark: Watermark, cached: CachedJoin | None) -> None:
        """A chunk for each side that has tuples which are needed past the watermark; they are in ``cached`` already."""
        for side, tables in enumerate(tuples):
            chunk = self.write(tables, side, least_kept(self.node, side, watermark)) if tables else None
            if chunk is not None and cached is not None:
                cached.chunks[chunk.held_as] = chunk

    def write(self, tables: Sequence[pa.Table], side: int, least: int) -> Chunk | None:
        """A chunk of the tuples from a time on, if there are any."""
        joined, time = pa.concat_tables(tables), self.node.inputs[side].time
        needed = times_of(joined, time) >= least
        if not needed.all():
            joined = joined.filter(pa.array(needed))
        return self.store.append(tuple_piece(joined, time), side, shards=self._of(side)) if joined.num_rows else None

    def _of(self, side: int) -> ShardSet | None:
        """The shards whose tuples the cell holds of a side; None for its own."""
        return None if self.grid is None else self.grid.held(side, self.store.owned)

    def _owned(self, before: Watermark, after: Watermark) -> list[tuple[Watermark, Watermark, KeepPairs | None]]:
        """Stretches of an advance, with what keeps the pairs that the cell emits of the windows that expire in each.

        While shards are handed over, those of windows that begin before the switch are their old cell's.
        """
        epoch = self.store.directory.epoch
        if epoch.handover is None:
            return [(before, after, self._kept_on_grid())]
        middle = min(max(before, epoch.handover.last), after)
        parts = ((before, middle, epoch.owned_before(self.cell)), (middle, after, epoch.owned(self.cell)))
        return [(low, high, partial(self._in_shards, members(shards))) for low, high, shards in parts if low < high]

    def _in_shards(self, mine: Array, sides: BothSides, found: FoundPairs) -> FoundPairs:
        """The pairs whose keys lie in some shards."""
        return found.take(mine[self._shards(LEFT, sides[LEFT].rows(found.left))])

    def _kept_by_time(self) -> KeepPairs | None:
        """What leaves out the pairs of tuples from the switch on, in shards that are handed over; None if none are."""
        epoch = self.store.directory.epoch
        handover = epoch.handover
        if handover is None:
            return None
        leaving = members(epoch.owned_before(self.cell) & ~epoch.owned(self.cell))

        def keep(sides: BothSides, found: FoundPairs) -> FoundPairs:
            late = np.minimum(found.left_times, found.right_times) >= handover.switch
            return found.take(~(late & leaving[self._shards(LEFT, sides[LEFT].rows(found.left))]))

        return keep

    def _shards(self, side: int, tuples: pa.Table) -> Array:
        """The shard of each tuple by its key; on a grid one of those of its line."""
        if self.grid is not None:
            shards: Array = self.grid.first_shards(side)[tuple_shards(tuples) % self.grid.lines(side)]
            return shards
        return step_shards(key_hashes([contiguous(tuples.column(names[side])) for names in self.node.on]))

    def _kept_on_grid(self) -> KeepPairs | None:
        """What leaves out the pairs of other cells; None where there are none."""
        owned, grid = self.store.owned, self.grid
        if grid is None or not grid.is_square or grid.held(LEFT, owned) & grid.held(RIGHT, owned) == owned:
            return None
        mine = members(owned)

        def keep(sides: BothSides, found: FoundPairs) -> FoundPairs:
            # The shard of a pair is the one that its row and its column have in common.
            row, column = (
                self._shards(side, sides[side].rows(each)) for side, each in enumerate((found.left, found.right))
            )
            return found.take(mine[row + column])

        return keep

    def _merge_small(self, side: int, least: int) -> None:
        """One chunk of several neighbours of about the same size, as long as it does not outlive them by much."""
        listed = [chunk for chunk in self.store.directory.chunks if chunk.side == side]
        chosen = [listed[place] for place in merge_candidates([chunk.rows for chunk in listed], MOST_ROWS) or ()]
        if not chosen or max(chunk.high for chunk in chosen) - min(chunk.low for chunk in chosen) > self.near.span:
            return
        merged = self.write(self.read(chosen), side, least)
        for chunk in chosen:
            self.store.drop(chunk)
        cached, gone = self._take(), {chunk.held_as for chunk in chosen}
        if cached is not None and gone <= cached.chunks.keys():
            cached.chunks = {each: chunk for each, chunk in cached.chunks.items() if each not in gone}
            if merged is not None:
                cached.chunks[merged.held_as] = merged
        elif cached is not None and gone & cached.chunks.keys():
            # It holds a part of the merged chunk only.
            self._cached = None

    def read(self, listed: Sequence[Chunk]) -> list[pa.Table]:
        """The tuples that each chunk holds for which it is listed."""
        return self.store.read(listed, self._listed, self.instances.spread, keep=False)

    def _listed(self, data: Data, chunk: Chunk) -> tuple[pa.Table, int]:
        """The tuples of a chunk that lie in the shards for which it is listed."""
        table = chunks.decode(data)
        if not chunk.is_whole:
            mine = members(chunk.shards)[self._shards(chunk.side, table)]
            if chunk.until is not None:
                mine &= times_of(table, self.node.inputs[chunk.side].time) < chunk.until
            table = table.filter(pa.array(mine))
        return table, 0
