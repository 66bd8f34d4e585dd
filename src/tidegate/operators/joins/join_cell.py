"""A cell of a join: its tuples of both sides as chunks in a store, and their pairs.

A batch is one `receive` at its watermark W. Tuples that another stateful step made come before W; of those from sources
the ones that can take part in nothing are late. Pairs within a distance are handed out at once, those of windows when the
windows expire: before the batch's tuples from sources are added. A batch appends a chunk for each side it touches. It reads
what is not in memory, so a join by key or by band costs what it touches.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.exchange import PRIMARY, Delta, times_of, tuple_piece
from tidegate.operators.instances import Instances
from tidegate.operators.joins.adjacent import merge_candidates
from tidegate.operators.joins.kept_join import IN_THIS_PROCESS, KeptJoin, KeptJoins
from tidegate.operators.joins.near import Sharing, Within
from tidegate.query.nodes import Join
from tidegate.state import chunks
from tidegate.state.chunk_store import ChunkStore
from tidegate.state.directory import Chunk
from tidegate.watermark import START, Watermark

Array = np.ndarray[Any, Any]

MOST_ROWS = 1 << 18
SIDES = (0, 1)


@dataclass(frozen=True, slots=True)
class JoinLogic:
    """How the cells of a join work; ``run`` tells what processes keep of this one from what they keep of others."""

    node: Join
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def schema(self) -> pa.Schema:
        return self.node.schema

    @property
    def time(self) -> str:
        return self.node.time

    def open(self, cell: int, store: ChunkStore, instances: Instances) -> JoinCell:
        return JoinCell(self, cell, store, instances)


@dataclass(slots=True, eq=False)
class JoinCell:
    """The working side of a directory; pairs are found by the instances, each its share."""

    logic: JoinLogic
    cell: int
    store: ChunkStore
    instances: Instances
    keeps: KeptJoins = field(default_factory=lambda: IN_THIS_PROCESS)
    late: int = 0
    near: Within | Sharing = field(init=False)
    _kept: KeptJoin | None = None

    def __post_init__(self) -> None:
        node = self.logic.node
        if node.window is not None:
            self.near = Sharing(node.window)
        else:
            assert node.within_us is not None
            self.near = Within(node.within_us)

    @property
    def node(self) -> Join:
        return self.logic.node

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Take a batch at a watermark; yields results."""
        made, fresh = ([delta for delta in deltas if delta.derived == come_first] for come_first in (True, False))
        if isinstance(self.near, Within):
            tuples = self._tuples(made, START), self._tuples(fresh, watermark)
            joined = tuple([*tuples[0][side], *tuples[1][side]] for side in SIDES)
            if any(joined):
                kept = self._ready()
                lifted = kept.add((joined[0], joined[1]))
                yield from kept.pairs_within(lifted, self.instances)
                self._append((joined[0], joined[1]), watermark, kept)
        else:
            self._take_in(self._tuples(made, START), START)
            yield from self._expire(watermark)
            self._take_in(self._tuples(fresh, watermark), watermark)
        self._finish(watermark)

    def advance(self, watermark: Watermark) -> Iterator[pa.Table]:
        """Hand out the windows that expire, and forget what nothing needs any more."""
        yield from self._expire(watermark)
        self._finish(watermark)

    def next_due(self) -> int | None:
        """The watermark at which there may be pairs to hand out, or nothing is needed any more."""
        listed = self.store.directory.chunks
        if not listed:
            return None
        latest = max(chunk.high for chunk in listed)
        if isinstance(self.near, Within):
            return latest + self.near.distance + 1
        sides = [[chunk for chunk in listed if chunk.side == side] for side in SIDES]
        if not all(sides):
            return self.near.window.end(latest // self.near.window.every)
        # A window has pairs only if both sides have reached it.
        return max(min(self._next_end(chunk.low) for chunk in side) for side in sides)

    def _next_end(self, time: int) -> int:
        """The end of the first window over a time that has not been handed out."""
        assert isinstance(self.near, Sharing)
        window, reached = self.near.window, self.store.directory.watermark
        first = (time - window.size) // window.every + 1
        return window.end(max(first, window.first_open(reached)))

    def _expire(self, watermark: Watermark) -> Iterator[pa.Table]:
        """The pairs of windows that expire."""
        if not isinstance(self.near, Sharing):
            return
        before, window = self.store.directory.watermark, self.near.window
        if window.first_open(before) >= window.first_open(watermark):
            return
        if {chunk.side for chunk in self.store.directory.chunks} == {0, 1}:
            yield from self._ready().pairs_expired(before, watermark, self.instances)

    def _take_in(self, tuples: tuple[list[pa.Table], list[pa.Table]], watermark: Watermark) -> None:
        """Store tuples of windows; they join what is in memory if that is at hand."""
        if not any(tuples):
            return
        listed, kept = {chunk.id for chunk in self.store.directory.chunks}, self._take()
        if kept is None and not listed:
            kept = self._ready()
        if kept is not None and listed <= kept.chunks.keys():
            kept.add(tuples)
            self._append(tuples, watermark, kept)
        else:
            self._append(tuples, watermark, None)

    def _ready(self) -> KeptJoin:
        """The join in memory, with all that is in the store."""
        kept = self._take()
        if kept is None:
            kept = self._kept = KeptJoin(self.node)
        kept.catch_up(self.store.directory.chunks, self._read)
        return kept

    def _take(self) -> KeptJoin | None:
        """The join in memory, if there is a good one."""
        if self._kept is None:
            kept = self.keeps.take(self.logic.run, self.cell)
            directory = self.store.directory
            if kept is not None and kept.is_good(directory.chunks, directory.watermark):
                self._kept = kept
        return self._kept

    def _finish(self, watermark: Watermark) -> None:
        """Move the watermark, forget, merge small chunks, and keep what is in memory for the next batch."""
        directory = self.store.directory
        directory.watermark = max(directory.watermark, watermark)
        least = self.near.least_time(directory.watermark)
        for chunk in [chunk for chunk in directory.chunks if chunk.high < least]:
            self.store.drop(chunk)
        for side in SIDES:
            self._merge_small(side, least)
        kept = self._take()
        if kept is not None and directory.chunks:
            kept.forget(directory.chunks, directory.watermark)
            self.keeps.put(self.logic.run, self.cell, kept)
        self._kept = None

    def _tuples(self, deltas: Sequence[Delta], watermark: Watermark) -> tuple[list[pa.Table], list[pa.Table]]:
        """The tuples of each side that can take part in something; those that cannot are counted in their primary cell."""
        least = self.near.least_arriving(watermark)
        sides: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        for delta in deltas:
            self.late += sum(count for time, count in delta.tuples if time < least)
            if delta.piece is None:
                continue
            table = chunks.decode(delta.piece.data)
            cut = 0
            if delta.piece.low < least:
                cut = int(np.searchsorted(times_of(table, self.node.inputs[delta.side].time), least))
            if PRIMARY in table.column_names:
                self.late += pc.sum(table.column(PRIMARY).slice(0, cut)).as_py() or 0
                table = table.drop_columns([PRIMARY])
            else:
                self.late += cut
            table = self._with_keys(table.slice(cut), delta.side)
            if table.num_rows:
                sides[delta.side].append(table)
        return sides

    def _with_keys(self, table: pa.Table, side: int) -> pa.Table:
        """The tuples without those that have a null among their keys and so are equal to none."""
        for names in self.node.on:
            column = table.column(names[side])
            if column.null_count:
                table = table.filter(column.is_valid())
        return table

    def _append(
        self, tuples: tuple[list[pa.Table], list[pa.Table]], watermark: Watermark, kept: KeptJoin | None
    ) -> None:
        """A chunk for each side that has tuples which are needed past the watermark; they are in ``kept`` already."""
        least = self.near.least_time(watermark)
        for side, tables in enumerate(tuples):
            if tables:
                chunk = self._write(tables, side, least)
                if chunk is not None and kept is not None:
                    kept.chunks[chunk.id] = chunk.high

    def _write(self, tables: Sequence[pa.Table], side: int, least: int) -> Chunk | None:
        """A chunk of the tuples from a time on, if there are any."""
        joined, time = pa.concat_tables(tables), self.node.inputs[side].time
        needed = times_of(joined, time) >= least
        if not needed.all():
            joined = joined.filter(pa.array(needed))
        return self.store.append(tuple_piece(joined, time), side) if joined.num_rows else None

    def _merge_small(self, side: int, least: int) -> None:
        """One chunk of several neighbours of about the same size, as long as it does not outlive them by much."""
        listed = [chunk for chunk in self.store.directory.chunks if chunk.side == side]
        place = merge_candidates([chunk.rows for chunk in listed], MOST_ROWS)
        if place is None:
            return
        chosen = [listed[each] for each in place]
        if max(chunk.high for chunk in chosen) - min(chunk.low for chunk in chosen) > self.near.span:
            return
        made = self._write(self._read(chosen), side, least)
        for chunk in chosen:
            self.store.drop(chunk)
        self._replace_in_memory(chosen, made)

    def _replace_in_memory(self, gone: Sequence[Chunk], made: Chunk | None) -> None:
        """What is in memory holds a merged chunk if it holds all of its parts; if it holds some of them, it is of no use."""
        kept = self._take()
        held = [chunk for chunk in gone if kept is not None and chunk.id in kept.chunks]
        if kept is None or not held:
            return
        if len(held) < len(gone):
            self._kept = None
            return
        for chunk in gone:
            del kept.chunks[chunk.id]
        if made is not None:
            kept.chunks[made.id] = made.high

    def _read(self, listed: Sequence[Chunk]) -> list[pa.Table]:
        fetched = [self.store.fetch(chunk) for chunk in listed]
        return self.instances.spread(chunks.decode, fetched)
