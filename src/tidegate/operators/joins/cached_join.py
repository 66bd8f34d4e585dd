"""A cell's join in a worker's memory, from one batch to the next, and the chunks of the cell that are in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from tidegate.operators.columns import in_time_order
from tidegate.operators.exchange import times_of, tuple_shards
from tidegate.operators.joins.near import least_kept
from tidegate.operators.joins.shared_join import SegmentTuples, SharedJoin
from tidegate.query.nodes import Join
from tidegate.query.predicates.tree import LEFT, RIGHT
from tidegate.state.chunks import Chunk
from tidegate.state.epochs import ALL, ShardSet, members
from tidegate.state.worker_memory import cache_bytes
from tidegate.watermark import START, Watermark

SideTables: TypeAlias = tuple[list[pa.Table], list[pa.Table]]

ROWS_AT_ONCE = 65_536
SIDES = (LEFT, RIGHT)


@dataclass(slots=True, eq=False)
class CachedJoin:
    """The tuples that a cell knows, and their pairs.

    ``owned`` are the cell's shards where it has all tuples and judges a share of both sides. Then there are two joins: its
    own left tuples with all right ones, whose pairs it emits, and all left tuples with its own right ones.

    A chunk of which the cell lists a part has another name in ``chunks`` than the whole. ``watermark`` is the one up to
    which what is not needed was forgotten.
    """

    node: Join
    owned: ShardSet = ALL
    joins: tuple[SharedJoin, ...] = field(init=False)
    chunks: dict[str, Chunk] = field(default_factory=dict)
    watermark: Watermark = START
    segment: int = 0

    def __post_init__(self) -> None:
        if self.owned == ALL:
            self.joins = (SharedJoin(self.node),)
        else:
            left, right = replace(self.node, how="left"), replace(self.node, how="right")
            self.joins = SharedJoin(left), SharedJoin(right, emits_pairs=False)
        for join in self.joins:
            join.attach(0, -1, START)

    @property
    def rows(self) -> int:
        """How many tuples are held."""
        return sum(join.rows for join in self.joins)

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return sum(join.bytes for join in self.joins)

    def is_valid(self, listed: Sequence[Chunk], reached: Watermark, owned: ShardSet) -> bool:
        """Whether all that is here is in the store or of no use, and nothing is gone that the store still needs.

        ``reached`` is the watermark that the store has come to, and ``owned`` is what a join built now would have.
        """
        if self.owned != owned or reached < self.watermark:
            return False
        return not self._needed(listed, reached).keys() - {each.held_as for each in listed}

    def add(self, sides: SideTables) -> list[SegmentTuples]:
        """Take tuples in, none of them late; what each of the joins gets."""
        self.segment += 1
        arrived = [
            join.encode(self.segment, tables) for join, tables in zip(self.joins, self._shared(sides), strict=True)
        ]
        for join in self.joins:
            join.settle(self.segment)
        return arrived

    def add_chunks(self, side: int, tables: Sequence[pa.Table]) -> None:
        """Take the tuples of chunks in, in the order of time, some at once, so that they are forgotten by and by."""
        if not tables:
            return
        joined = pa.concat_tables(tables)
        joined, _ = in_time_order(joined, times_of(joined, self.node.inputs[side].time))
        for at in range(0, joined.num_rows, ROWS_AT_ONCE):
            part = [joined.slice(at, ROWS_AT_ONCE)]
            arrived = self.add((part, []) if side == LEFT else ([], part))
            for join, each in zip(self.joins, arrived, strict=True):
                join.note_pairs(self.segment, each)

    def forget(self, listed: Sequence[Chunk], watermark: Watermark) -> None:
        """Drop what is not needed past a watermark."""
        self.watermark = watermark
        for join in self.joins:
            join.acknowledge(0, self.segment, watermark)
            join.compact()
        self.chunks = self._needed(listed, watermark)

    def _shared(self, sides: SideTables) -> Iterator[SideTables]:
        """What each of the joins gets of some tuples."""
        if self.owned == ALL:
            yield sides
            return
        mine = members(self.owned)
        left, right = ([each.filter(pa.array(mine[tuple_shards(each)])) for each in tables] for tables in sides)
        yield left, sides[RIGHT]
        yield sides[LEFT], right

    def _needed(self, listed: Sequence[Chunk], watermark: Watermark) -> dict[str, Chunk]:
        """The chunks that are here and are listed, or of use still."""
        names = {chunk.held_as for chunk in listed}
        least = [least_kept(self.node, side, watermark) for side in SIDES]
        return {each: chunk for each, chunk in self.chunks.items() if each in names or chunk.high >= least[chunk.side]}


@dataclass(slots=True)
class JoinCache:
    """The joins that a process keeps, by where their state is.

    Those used least lately go when all take more than `limit_bytes`, or `cache_bytes` if that is None.
    """

    limit_bytes: int | None = None
    _held: dict[tuple[str, int], CachedJoin] = field(default_factory=dict)

    def take(self, where: str, cell: int) -> CachedJoin | None:
        """A join, for the caller alone until it is put back."""
        return self._held.pop((where, cell), None)

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()

    def put(self, where: str, cell: int, cached: CachedJoin) -> None:
        """Keep a join."""
        self._held[where, cell] = cached
        limit = cache_bytes() if self.limit_bytes is None else self.limit_bytes
        while len(self._held) > 1 and sum(each.bytes for each in self._held.values()) > limit:
            del self._held[next(iter(self._held))]


IN_THIS_PROCESS = JoinCache()
"""Spark builds a cell's operator anew for every batch: what lasts longer has to be the process's own."""
