"""The decoded state of a cell's join, in a worker's memory between batches.

A worker is bound to no cell, and its attempts may fail, so what it remembers may be behind the state store or besides it.
Chunks never change, and other contents have other ids: what is in memory is good if each of its chunks is listed by the
cell's directory, or is so old that it was forgotten. Then the chunks it does not have yet are added. Else, after a failed
attempt or where others merged chunks, it is made anew from all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.operators.instances import Instances
from tidegate.operators.joins.shared_join import Lifted, SharedJoin
from tidegate.query.nodes import Join
from tidegate.state.directory import Chunk
from tidegate.watermark import START, Watermark

ROWS_AT_ONCE = 65_536
LIMIT_BYTES = 512 * 1024**2

Sides = tuple[Sequence[pa.Table], Sequence[pa.Table]]
Read = Callable[[Sequence[Chunk]], list[pa.Table]]


@dataclass(slots=True, eq=False)
class KeptJoin:
    """A join in memory, and the chunks that are in it: their ids, with the latest event time of each.

    ``watermark`` is the one up to which it has forgotten what is not needed.
    """

    node: Join
    join: SharedJoin = field(init=False)
    chunks: dict[int, int] = field(default_factory=dict)
    watermark: Watermark = START
    _segments: int = 0

    def __post_init__(self) -> None:
        self.join = SharedJoin(self.node)
        self.join.attach(0, -1, START)

    def is_good(self, listed: Sequence[Chunk], reached: Watermark) -> bool:
        """Whether all that is here is in the store or of no use, and nothing is gone that the store still needs.

        ``reached`` is the watermark that the store has come to.
        """
        if reached < self.watermark:
            return False
        ids, least = {chunk.id for chunk in listed}, self.join.near.least_time(reached)
        return all(each in ids or high < least for each, high in self.chunks.items())

    def catch_up(self, listed: Sequence[Chunk], read: Read) -> None:
        """Add the chunks that are not here."""
        missing = [chunk for chunk in listed if chunk.id not in self.chunks]
        if not missing:
            return
        sides: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for chunk, table in zip(missing, read(missing), strict=True):
            sides[chunk.side].append(table)
            self.chunks[chunk.id] = chunk.high
        for side, tables in enumerate(sides):
            for part in _in_time_order(tables, self.node.inputs[side].time):
                self.add(([part], []) if side == 0 else ([], [part]))

    def add(self, sides: Sides) -> Lifted:
        """Take tuples in; none of them is late."""
        self._segments += 1
        lifted = self.join.lift(self._segments, sides, START)
        self.join.settle(self._segments)
        return lifted

    def pairs_within(self, lifted: Lifted, instances: Instances) -> Iterator[pa.Table]:
        """The results that the tuples taken in last make with all others."""
        number = self._segments
        yield from instances.run(
            [self.join.pairs_within(number, lifted, owned) for owned in instances.shares(self.join.shards)]
        )

    def pairs_expired(self, before: Watermark, after: Watermark, instances: Instances) -> Iterator[pa.Table]:
        """The results of the windows that expire as the watermark moves."""
        number = self._segments
        tasks = [self.join.pairs_expired(number, before, after, owned) for owned in instances.shares(self.join.shards)]
        yield from instances.run(tasks)

    def forget(self, listed: Sequence[Chunk], watermark: Watermark) -> None:
        """Drop what is not needed past a watermark."""
        self.watermark = watermark
        self.join.acknowledge(0, self._segments, watermark)
        self.join.compact()
        ids = {chunk.id for chunk in listed}
        least = self.join.near.least_time(watermark)
        self.chunks = {each: high for each, high in self.chunks.items() if each in ids or high >= least}


@dataclass(slots=True)
class KeptJoins:
    """The joins that a process keeps, by what they are of; those used least lately go when they take too much memory."""

    limit_bytes: int = LIMIT_BYTES
    _held: dict[tuple[str, int], KeptJoin] = field(default_factory=dict)

    def take(self, run: str, cell: int) -> KeptJoin | None:
        """A join, for the caller alone until it is put back."""
        return self._held.pop((run, cell), None)

    def put(self, run: str, cell: int, kept: KeptJoin) -> None:
        """Keep a join."""
        self._held[run, cell] = kept
        while len(self._held) > 1 and sum(each.join.bytes for each in self._held.values()) > self.limit_bytes:
            del self._held[next(iter(self._held))]


IN_THIS_PROCESS = KeptJoins()
"""Spark makes a cell's operator anew for every batch: what lasts longer has to be the process's own."""


def _in_time_order(tables: Sequence[pa.Table], time: str) -> Iterator[pa.Table]:
    """The rows of some tables in the order of time, in tables of limited size, so that they are forgotten by and by."""
    if not tables:
        return
    joined = pa.concat_tables(tables)
    if len(tables) > 1:
        joined = joined.take(np.argsort(np.array(joined.column(time).cast(pa.int64())), kind="stable"))
    for at in range(0, joined.num_rows, ROWS_AT_ONCE):
        yield joined.slice(at, ROWS_AT_ONCE)
