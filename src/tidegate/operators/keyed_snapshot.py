"""The state of what takes tuples in order in snapshots: tuples that wait, windows, and the entries of stores.

Chunks are those of a cell (`keyed_apply_cell`, `keyed_rows_cell`). Windows of users' functions are rows of one table,
entries of each store rows of another; all of them are written at every snapshot, as any of them may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidegate.operators.as_of_slots import AsOfSlots, HeldRows
from tidegate.operators.cells import SHARDS, Instances
from tidegate.operators.keyed_apply_cell import WindowLog
from tidegate.operators.keyed_rows import KeyedRun
from tidegate.operators.keyed_slots import KeyedSlots, StoredWindow
from tidegate.operators.keys import shards_of
from tidegate.operators.log_rows import WINDOWS, LogRows, entry_rows, table_of_rows, window_rows
from tidegate.operators.logged_slots import LoggedSlots
from tidegate.operators.readers import BEFORE
from tidegate.operators.settling import WaitingTuples
from tidegate.operators.store_log import StoreLogs, declared_stores, entry_number
from tidegate.query.nodes import InOrder
from tidegate.state.chunks import NO_GROUP, Piece, decode, encode
from tidegate.state.snapshot import SnapshotStore, StateCut
from tidegate.watermark import Watermark

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyedCut:
    """All slots at a marker as rows: those of windows, and by the position of each store those of its entries."""

    node: InOrder
    waiting: Sequence[WaitingTuples]
    newest: Watermark
    windows: Sequence[Row]
    entries: Mapping[int, Sequence[Row]]

    @staticmethod
    def of(
        node: InOrder, waiting: Sequence[WaitingTuples], newest: Watermark, stored: Iterable[StoredWindow]
    ) -> KeyedCut:
        """The state at this moment, at which no owner changes its shards. States are never changed, stores are."""
        stores = declared_stores(node)
        windows: list[Row] = []
        entries: dict[int, list[Row]] = {position: [] for position in range(len(stores))}
        for one in stored:
            windows.append((one.number, one.last, True, *one.key, *one.states))
            for position, name in enumerate(stores):
                place = entry_number(node, one), True, *one.key
                entries[position] += [(*place, *parts, value) for parts, value in one.stores[name].entries()]
        return KeyedCut(node, waiting, newest, windows, entries)

    def write(self, store: SnapshotStore) -> None:
        """Put all of it into a snapshot; see `StateCut`."""
        store.chunks.directory.last_time = self.newest
        for part in self.waiting:
            store.put_table(part.tuples, part.side, shards=part.shards)
        tables = [(window_rows(self.node), self.windows)]
        for position, of in enumerate(declared_stores(self.node).values()):
            tables.append((entry_rows(self.node, position, of), self.entries[position]))
        for rows, held in tables:
            store.put_table(table_of_rows(held, rows.schema), group=rows.group)


@dataclass(frozen=True, slots=True)
class LoggedCut:
    """State in rows by key at a marker: runs, from old to new, and the tuples that wait."""

    waiting: Sequence[WaitingTuples]
    newest: Watermark
    runs: Sequence[KeyedRun | HeldRows]

    def write(self, store: SnapshotStore) -> None:
        """Put all of it into a snapshot; see `StateCut`."""
        store.chunks.directory.last_time = self.newest
        for part in self.waiting:
            store.put_table(part.tuples, part.side, shards=part.shards)
        for run in self.runs:
            store.put(run, partial(_piece, run), group=WINDOWS)


def _piece(run: KeyedRun | HeldRows) -> Piece:
    return Piece(run.until, run.until, run.rows, encode(run.table))


def cut_slots(slots: KeyedSlots) -> StateCut:
    """Slots at this moment, at which no owner changes its shards."""
    if not isinstance(slots, LoggedSlots | AsOfSlots):
        return KeyedCut.of(slots.node, *slots.waiting.held(), slots.stored())
    return LoggedCut(*slots.waiting.held(), tuple(slots.runs))


def restore_slots(slots: KeyedSlots, store: SnapshotStore, watermark: Watermark) -> None:
    """Fill slots, which are empty, with those of a snapshot that was taken at a watermark."""
    node, waiting = slots.node, slots.waiting
    waiting.reached, waiting.newest = watermark, store.chunks.directory.last_time
    for chunk, tuples in store.tables(NO_GROUP):
        waiting.hold(BEFORE, chunk.side, tuples, node.inputs[chunk.side].time, chunk.shards)
    if isinstance(slots, AsOfSlots):
        # A row is known by how many are before it, so runs are taken in one after the other.
        store.known.update((slots.restore_run(table), chunk) for chunk, table in store.tables(WINDOWS))
        return
    if isinstance(slots, LoggedSlots):
        logic = slots.logic
        slots.runs[:] = store.parts(lambda data, _: logic.run(decode(data)), WINDOWS)
        slots.reached[:] = watermark
        return
    with Instances(1) as one:

        def log(rows: LogRows) -> WindowLog:
            return WindowLog(node, store.chunks, one, rows)

        windows: list[StoredWindow]
        windows, hashes = log(window_rows(node)).everything()
        windows = StoreLogs(node, log).load(windows, hashes, slots.identity)
    for shard, stored in zip(shards_of(hashes, SHARDS).tolist(), windows, strict=True):
        slots.restore(shard, stored)
