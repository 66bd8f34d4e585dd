"""A cell of what takes settled tuples: they wait in chunks until they are; the windows of its shards are a log.

What a batch brings waits with what batches before have left; the watermark after it settles some of both. Settled tuples
are handled in canonical order, so neither the cut of the stream into batches nor the number of instances can show.

A batch reads the windows it touches and appends those it changed. A chunk holds windows as they were after some batch; the
newest row of a window counts. A row whose window has ended by the watermark counts no more, so nothing has to be written
when windows expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.cells import SHARDS, Instances, worth_merging
from tidegate.operators.column_slots import slots_of
from tidegate.operators.columns import Array, as_numpy, in_time_order, valid_mask
from tidegate.operators.exchange import Delta, times_of, tuple_piece
from tidegate.operators.keyed_slots import KeyedSlots, StoredWindow
from tidegate.operators.keys import key_codes, key_hashes, shards_of, step_shards
from tidegate.operators.log_rows import ALIVE, LAST, NUMBER, LogRows, table_of_rows, window_rows
from tidegate.operators.settling import Settled, Settling, WaitingTuples
from tidegate.operators.store_log import StoreLogs
from tidegate.query.column_form import ColumnForm
from tidegate.query.nodes import InOrder, KeyedApply, Running
from tidegate.query.schema import contiguous
from tidegate.state import chunks
from tidegate.state.chunks import NO_GROUP, Chunk, ChunkStore, Data, Piece
from tidegate.state.epochs import ShardSet, members
from tidegate.watermark import END, START, Watermark

MOST_CHUNKS = 8
_NONE = np.empty(0, np.uint64)


@dataclass(slots=True)
class KeyedApplyCell:
    """The working side of a directory."""

    node: InOrder
    cell: int
    store: ChunkStore
    instances: Instances

    @property
    def log(self) -> WindowLog:
        """The windows of this cell."""
        return self.log_of(window_rows(self.node))

    @property
    def stores(self) -> StoreLogs:
        """The stores of these windows."""
        return StoreLogs(self.node, self.log_of)

    def log_of(self, rows: LogRows) -> WindowLog:
        """The log of some rows."""
        return WindowLog(self.node, self.store, self.instances, rows)

    def receive(self, deltas: Sequence[Delta], watermark: Watermark) -> Iterator[pa.Table]:
        """Handle what is settled and emit the windows that expire; see `OpenCell`. Functions make state and results."""
        directory = self.store.directory
        if watermark <= directory.watermark:
            for delta in deltas:
                self.wait(delta.rows, delta.side)
            return iter(())
        windows = slots_of(self.node, directory.watermark, lambda: directory.last_time)
        settled = self._settle(windows.waiting, deltas, watermark)
        touched = [key_hashes(entries.columns) for entries in settled.entries if len(entries.rows)]
        hashes_touched = np.unique(np.concatenate(touched)) if touched else _NONE
        emits_all = windows.emits_all(settled)
        loaded, hashes = self.log.load(hashes_touched, watermark, windows.emit_idle if emits_all else None)
        loaded = self.stores.load(loaded, hashes, windows.identity)
        results: Iterable[pa.Table] = ()
        if touched or loaded or emits_all:
            for shard, stored in zip(shards_of(hashes, SHARDS).tolist(), loaded, strict=True):
                windows.restore(shard, stored)
            prepared = windows.prepare(settled)
            tasks = [windows.process(settled, prepared, owned) for owned in self.instances.shares()]
            # Windows are as they will be when each task has its first result.
            first = self.instances.spread(lambda task: next(task, None), tasks)
            results = chain((table for table in first if table is not None), *tasks)
        self._keep(windows, loaded, watermark)
        directory.watermark = watermark
        return iter(results)

    def _settle(self, waiting: Settling, deltas: Sequence[Delta], watermark: Watermark) -> Settled:
        """Take out what is settled by a watermark; what waits on stays, or is written anew if it is little."""
        before, node = self.store.directory.watermark, self.node
        touched = [c for c in self.store.directory.chunks if c.group == NO_GROUP and c.low < watermark]
        tables = self.store.read(touched, _decoded, self.instances.spread)
        # Tuples that wait for other shards, since those came from another cell, stay apart.
        rest: dict[tuple[int, ShardSet], list[pa.Table]] = {}
        for chunk, tuples in zip(touched, tables, strict=True):
            time = node.inputs[chunk.side].time
            ripe, left = _split(tuples, time, before, watermark)
            waiting.hold(0, chunk.side, ripe, time, chunk.shards)
            if 2 * left.num_rows <= chunk.rows:
                self.store.drop(chunk)
                rest.setdefault((chunk.side, chunk.shards), []).append(left)
            else:
                self.store.update(chunk, low=int(times_of(left.slice(0, 1), time)[0]))
        for delta in deltas:
            time = node.inputs[delta.side].time
            ripe, left = _split(delta.rows, time, START, watermark)
            waiting.hold(0, delta.side, ripe, time, self.store.owned)
            rest.setdefault((delta.side, self.store.owned), []).append(left)
        for (side, shards), parts in rest.items():
            self.wait(pa.concat_tables(parts), side, shards)
        return waiting.settle(0, watermark)

    def waiting(self) -> list[WaitingTuples]:
        """The tuples that are not settled yet."""
        before, found = self.store.directory.watermark, []
        listed = [chunk for chunk in self.store.directory.chunks if chunk.group == NO_GROUP]
        for chunk, tuples in zip(listed, self.store.read(listed, _decoded, self.instances.spread), strict=True):
            time = self.node.inputs[chunk.side].time
            left, _ = _split(tuples, time, before, END)
            found.append(WaitingTuples(0, chunk.side, left, times_of(left, time), chunk.shards))
        return found

    def wait(self, tuples: pa.Table, side: int, shards: ShardSet | None = None) -> None:
        """Write tuples that are not settled yet; their keys in some shards count, if not those in all of the cell's."""
        if tuples.num_rows:
            ordered, _ = in_time_order(tuples.combine_chunks(), times_of(tuples, self.node.inputs[side].time))
            chunk = self.store.append(tuple_piece(ordered, self.node.inputs[side].time), side, shards=shards)
            self.store.remember(chunk, ordered.nbytes, ordered)

    def _keep(self, windows: KeyedSlots, loaded: Sequence[StoredWindow], watermark: Watermark) -> None:
        """Write the windows that are not as they were, and what has changed in their stores."""
        before = {(stored.number, windows.identity(stored.key)): stored for stored in loaded}
        changed = []
        for stored in windows.stored():
            was = before.pop((stored.number, windows.identity(stored.key)), None)
            # A function that changes a state returns a new one.
            if was is None or was.states is not stored.states or was.last != stored.last:
                changed.append(stored)
        self.log.keep(changed, before.values(), watermark)
        self.stores.keep(windows, loaded, watermark)


def _decoded(data: Data, chunk: Chunk) -> tuple[pa.Table, int]:
    table = chunks.decode(data)
    return table, table.nbytes


def _split(tuples: pa.Table, time: str, before: Watermark, watermark: Watermark) -> tuple[pa.Table, pa.Table]:
    """Of tuples in the order of time, those from one watermark to the next, and those after."""
    start, stop = np.searchsorted(times_of(tuples, time), [before, watermark]).tolist()
    return tuples.slice(start, stop - start), tuples.slice(stop)


@dataclass(frozen=True)
class WindowLog:
    """Reads and writes the windows of a cell, or entries of their stores, as rows of tables, in the types of the query.

    Chunks are listed from old to new. A row is a window as it was when it was written; of several rows of one window the
    last counts. One that is not ``alive`` says that the window is no more.
    """

    node: InOrder
    store: ChunkStore
    instances: Instances
    rows: LogRows

    @property
    def listed(self) -> list[Chunk]:
        """The chunks of these rows."""
        return [chunk for chunk in self.store.directory.chunks if chunk.group == self.rows.group]

    def load(
        self, touched: Array, watermark: Watermark, emit_idle: Callable[..., None] | None = None
    ) -> tuple[list[StoredWindow], Array]:
        """The windows of keys with some hashes, and those that end by a watermark; and the hash of each one's key.

        With ``emit_idle`` it gets the keys and states of all other windows, in columns.
        """
        found = []
        window = self.node.window
        expiring = watermark if window is not None else START
        everything = emit_idle is not None or len(touched) > 0
        wanted = [chunk for chunk in self.listed if everything or chunk.low <= expiring]
        for chunk, table in zip(wanted, self._read(wanted), strict=True):
            if emit_idle is not None:
                found.append(table)
                continue
            chosen: Array = np.isin(self._hashes(table), touched)
            if window is not None:
                places, expired = as_numpy(table.column(NUMBER)), window.first_open(watermark)
                chosen |= places < expired
                chosen &= places >= window.first_open(self.store.directory.watermark)
                if chunk.low <= watermark:
                    # The chunk has something to do again when the next of its windows ends.
                    after = places[places >= expired]
                    self.store.update(chunk, low=window.end(int(after.min())) if len(after) else chunk.high)
            found.append(table.filter(pa.array(chosen)))
        latest = self._latest(found)
        alive = latest.filter(latest.column(ALIVE))
        hashes = self._hashes(alive)
        if emit_idle is not None:
            busy = np.isin(hashes, touched) | valid_mask(contiguous(alive.columns[-1]))
            idle = alive.filter(pa.array(~busy))
            states = idle.drop_columns([NUMBER, LAST, ALIVE, *self.rows.keys])
            emit_idle([contiguous(column) for column in states.columns], self._columns(idle, self.rows.keys))
            alive, hashes = alive.filter(pa.array(busy)), hashes[busy]
        return self._decode(alive), hashes

    def everything(self) -> tuple[list[StoredWindow], Array]:
        """All windows, and the hash of each one's key."""
        latest = self._latest(self._read(self.listed))
        alive = latest.filter(latest.column(ALIVE))
        return self._decode(alive), self._hashes(alive)

    def alive(self, touched: Array) -> pa.Table:
        """The rows of keys with some hashes."""
        tables = self._read(self.listed)
        latest = self._latest([table.filter(pa.array(np.isin(self._hashes(table), touched))) for table in tables])
        return latest.filter(latest.column(ALIVE))

    def keep(self, changed: Sequence[StoredWindow], gone: Iterable[StoredWindow], watermark: Watermark) -> None:
        """Append windows that have changed, and those that are gone though they have not ended by the watermark."""
        noted = [one for one in gone if self.end(one.number) > watermark]
        self.append_and_expire(self._encode(changed, noted), watermark)

    def append_and_expire(self, table: pa.Table, watermark: Watermark) -> None:
        """Append rows, if there are any, and forget chunks whose rows have all ended by a watermark."""
        if table.num_rows:
            self._append(table)
        for chunk in self.listed:
            if chunk.high <= watermark:
                self.store.drop(chunk)
        self._compact(watermark)

    def _compact(self, watermark: Watermark) -> None:
        """Merge the newest chunks if there are many, and older ones with them as long as they are not much larger."""
        listed = self.listed
        if len(listed) <= MOST_CHUNKS:
            return
        chosen = worth_merging(listed[::-1], 0, MOST_CHUNKS)[::-1]
        merged = self._latest(self._read(chosen))
        window = self.rows.window
        if window is not None:
            merged = merged.filter(pc.greater_equal(merged.column(NUMBER), window.first_open(watermark)))
        if len(chosen) == len(listed):
            merged = merged.filter(merged.column(ALIVE))
        for chunk in chosen:
            self.store.drop(chunk)
        if merged.num_rows:
            self._append(merged)

    def _append(self, table: pa.Table) -> None:
        ends = pc.min_max(table.column(NUMBER)).as_py()
        piece = Piece(self.end(ends["min"]), self.end(ends["max"]), table.num_rows, chunks.encode(table))
        self.store.remember(self.store.append(piece, group=self.rows.group), table.nbytes, table)

    def _read(self, listed: Sequence[Chunk]) -> list[pa.Table]:
        return self.store.read(listed, self._listed, self.instances.spread)

    def _listed(self, data: Data, chunk: Chunk) -> tuple[pa.Table, int]:
        """The rows of a chunk that lie in the shards for which it is listed."""
        table = chunks.decode(data)
        if not chunk.is_whole:
            table = table.filter(pa.array(members(chunk.shards)[step_shards(self._hashes(table))]))
        return table, table.nbytes

    def end(self, number: int) -> Watermark:
        """When a row ends; one that never does ends with the input."""
        window = self.rows.window
        return END if window is None else window.end(number)

    def _encode(self, changed: Sequence[StoredWindow], gone: Sequence[StoredWindow]) -> pa.Table:
        """Rows of windows that have changed, and of some that are no more."""
        rows = [(one.number, one.last, True, *one.key, *one.states) for one in changed]
        rows += [(one.number, one.last, False, *one.key, *(None for _ in one.states)) for one in gone]
        return table_of_rows(rows, self.rows.schema)

    def _decode(self, table: pa.Table) -> list[StoredWindow]:
        """The windows of rows, one per row."""
        keys = len(self.node.key_schema)
        columns = [column.to_pylist() for column in table.drop_columns([ALIVE]).columns]
        if isinstance(self.node, KeyedApply | Running) and not isinstance(self.node.form, ColumnForm):
            # States were checked before they were kept; the check turns them into read-only values.
            for position, shape in enumerate(self.node.form.shapes, start=2 + keys):
                columns[position] = [shape.take(value)[0] for value in columns[position]]
        return [
            StoredWindow(number, last, tuple(rest[:keys]), tuple(rest[keys:]))
            for number, last, *rest in zip(*columns, strict=True)
        ]

    def _latest(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Of each window, or entry, its last row in tables from old to new."""
        table = pa.concat_tables([self.rows.schema.empty_table(), *tables]).combine_chunks()
        if table.num_rows == 0:
            return table
        codes, _ = key_codes(self._columns(table, self.rows.keys + self.rows.apart))
        places = as_numpy(table.column(NUMBER))
        order = np.lexsort((places, codes))  # stable: rows of one window stay in the order of their age
        codes, places = codes[order], places[order]
        last = np.append((codes[1:] != codes[:-1]) | (places[1:] != places[:-1]), True)
        return table if last.all() else table.take(pa.array(np.sort(order[last])))

    def _hashes(self, table: pa.Table) -> Array:
        """The hash of the key of each row."""
        return key_hashes(self._columns(table, self.rows.keys))

    def _columns(self, table: pa.Table, names: Sequence[str]) -> tuple[pa.Array, ...]:
        return tuple(contiguous(table.column(name)) for name in names)
