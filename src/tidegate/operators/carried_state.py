"""The state of a stateful step as it goes from one runtime to the other.

In process a snapshot has the state of a whole step, on Spark each cell has that of its shards. Both are chunks of one form,
so what goes over is decoded and written once: `cut_of_cell` reads a cell that has all shards, `fill_cell` writes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa

from tidegate.errors import InternalError
from tidegate.operators.bags.bag_cell import BagCell
from tidegate.operators.bags.held_bags import HeldCut
from tidegate.operators.cell_kinds import logic_of
from tidegate.operators.cells import Instances
from tidegate.operators.column_slots import slots_of
from tidegate.operators.columns import Array
from tidegate.operators.exchange import Delta, times_of
from tidegate.operators.joins import cached_join
from tidegate.operators.joins.join_cell import JoinCell
from tidegate.operators.joins.near import least_kept
from tidegate.operators.keyed_apply_cell import KeyedApplyCell
from tidegate.operators.keyed_rows_cell import KeyedRowsCell
from tidegate.operators.keyed_slots import StoredWindow
from tidegate.operators.keyed_snapshot import KeyedCut, LoggedCut
from tidegate.operators.log_rows import WINDOWS, entry_rows, window_rows
from tidegate.operators.logged_slots import rows_of
from tidegate.operators.session_cell import SessionCell
from tidegate.operators.session_tables import SessionTables
from tidegate.operators.settling import WaitingTuples
from tidegate.operators.shared_sessions import FRESH, SessionsCut
from tidegate.operators.shared_windows import WindowsCut
from tidegate.operators.store_log import declared_stores
from tidegate.operators.window_cell import WindowCell
from tidegate.operators.windowed_aggregate import Panes
from tidegate.query.nodes import (
    AsOf,
    BagAggregate,
    CountAggregate,
    CountJoin,
    Dedup,
    InOrder,
    Join,
    KeyedApply,
    Running,
    SessionAggregate,
    Stateful,
    WindowAggregate,
)
from tidegate.state.chunks import NO_GROUP, Chunk, ChunkStore, decode
from tidegate.state.epochs import ShardSet
from tidegate.state.snapshot import SnapshotStore, StateCut


def cut_of_cell(node: Stateful, store: ChunkStore) -> StateCut:
    """All that a cell holds after a batch, as a snapshot has it; nothing is written. The cell has all shards."""
    directory = store.directory
    watermark, listed = directory.watermark, directory.chunks
    with Instances(1) as one:
        match node:
            case WindowAggregate():
                windows = WindowCell(node, 0, store, one)
                least = node.window.least_open_slice(watermark)
                runs = [run for run in windows.read(listed) if len(run.slices) and run.high >= least]
                return WindowsCut(windows.windows, runs, dict(directory.rounds))
            case SessionAggregate():
                sessions = SessionCell(node, 0, store, one)
                open_runs = [run for run in sessions.read(listed) if run.rows and run.last_end > watermark]
                return SessionsCut(sessions.sessions.tables, open_runs, ())
            case Join():
                return HeldCut(tuple(_held(node, listed, JoinCell(node, 0, store, one).read(listed), whole=True)))
            case BagAggregate():
                return HeldCut(tuple(_held(node, listed, BagCell(node, 0, store, one).read(listed))))
            case CountAggregate() | AsOf() | CountJoin() | Dedup():
                keyed, logic = KeyedRowsCell(node, 0, store, one), rows_of(node)
                rows = [run for run in keyed.read(logic, keyed.listed) if run.rows]
                return LoggedCut(keyed.waiting(), directory.last_time, rows)
            case KeyedApply() | Running():
                applied = KeyedApplyCell(node, 0, store, one)
                return KeyedCut.of(node, applied.waiting(), directory.last_time, _live_windows(node, applied))
            case _:
                raise InternalError(f"no cells are known for {type(node).__name__}")


def fill_cell(node: Stateful, held: SnapshotStore, store: ChunkStore) -> None:
    """Add what a snapshot holds to a cell that has all shards, under the watermark of its directory."""
    watermark = store.directory.watermark
    with Instances(1) as one:
        match node:
            case WindowAggregate():
                windows = WindowCell(node, 0, store, one)
                panes = windows.windows
                runs = held.parts(lambda data, chunk: panes.run(panes.panes.decode(data, chunk.low)))
                windows.keep(runs, node.window.least_open_slice(watermark))
                store.directory.rounds = dict(held.chunks.directory.rounds)
            case SessionAggregate():
                sessions = SessionCell(node, 0, store, one)
                opened = held.parts(lambda data, _: sessions.sessions.run(decode(data)))
                merged = sessions.sessions.compacted(opened, watermark, whole=True) if opened else None
                if merged is not None:
                    sessions.append(merged)
                add_to_cell(node, [Delta(stretches) for _, stretches in held.tables(FRESH)], store)
            case Join():
                joined = JoinCell(node, 0, store, one)
                for (side, _), tables in _by_shards(held):
                    joined.write(tables, side, least_kept(node, side, watermark))
            case BagAggregate():
                bags, least = BagCell(node, 0, store, one), node.window.least_arriving(watermark)
                for (side, shards), tables in _by_shards(held):
                    bags.append(tables, side, least, shards)
            case CountAggregate() | AsOf() | CountJoin() | Dedup():
                keyed, logic = KeyedRowsCell(node, 0, store, one), rows_of(node)
                parts = held.parts(lambda data, _: logic.run(decode(data)), WINDOWS)
                rows = logic.joined([run.table for run in parts])
                rows = logic.current(rows, watermark, whole=True) if rows.num_rows else rows
                if rows.num_rows:
                    keyed.append(logic.run(rows))
                _wait(keyed, held)
            case KeyedApply() | Running():
                applied = KeyedApplyCell(node, 0, store, one)
                stores = enumerate(declared_stores(node).values())
                for log in (window_rows(node), *(entry_rows(node, position, of) for position, of in stores)):
                    for _, table in held.tables(log.group):
                        applied.log_of(log).append_and_expire(table, watermark)
                _wait(applied, held)
            case _:
                raise InternalError(f"no cells are known for {type(node).__name__}")


def add_to_cell(node: Stateful, deltas: Sequence[Delta], store: ChunkStore) -> list[pa.Table]:
    """Add what has arrived to a cell that has all shards, at the watermark that it has come to; what that gives."""
    watermark, added = store.directory.watermark, [delta for delta in deltas if delta.rows.num_rows]
    if not added:
        return []
    with Instances(1) as one:
        results = list(logic_of(node).open(0, store, one).receive(added, watermark))
    # A join has kept its tuples in memory, for batches that do not come to this process.
    cached_join.IN_THIS_PROCESS.take(store.folder.where, 0)
    return results


def delta_of(node: Stateful, side: int, tuples: pa.Table) -> Delta:
    """Tuples of one input, none of which is late, as a cell takes them."""
    match node:
        case WindowAggregate():
            return Delta(Panes(node).lift(tuples))
        case SessionAggregate():
            return Delta(SessionTables(node).lift(tuples))
        case _:
            return Delta(tuples, side)


def _held(
    node: Join | BagAggregate, listed: Sequence[Chunk], tables: Sequence[pa.Table], whole: bool = False
) -> Iterator[WaitingTuples]:
    """The tuples of chunks; ``whole`` says that those of other shards are left out already."""
    for chunk, tuples in zip(listed, tables, strict=True):
        times: Array = times_of(tuples, node.inputs[chunk.side].time)
        part = WaitingTuples(0, chunk.side, tuples, times)
        yield part if whole else WaitingTuples(0, chunk.side, tuples, times, chunk.shards)


def _live_windows(node: InOrder, cell: KeyedApplyCell) -> list[StoredWindow]:
    """The windows of a cell that have not expired, with their stores."""
    window, watermark = window_rows(node).window, cell.store.directory.watermark
    slots = slots_of(node)
    windows, hashes = cell.log.everything()
    if window is not None:
        first = window.first_open(watermark)
        live = [at for at, one in enumerate(windows) if one.number >= first]
        windows, hashes = [windows[at] for at in live], hashes[live]
    return cell.stores.load(windows, hashes, slots.identity)


def _wait(cell: KeyedApplyCell, held: SnapshotStore) -> None:
    for (side, shards), tables in _by_shards(held):
        cell.wait(pa.concat_tables(tables), side, shards)


def _by_shards(held: SnapshotStore) -> Iterator[tuple[tuple[int, ShardSet], list[pa.Table]]]:
    """The tuples in a snapshot by their input and the shards for which they are held."""

    def place(each: tuple[Chunk, pa.Table]) -> tuple[int, ShardSet]:
        return each[0].side, each[0].shards

    for found, parts in groupby(sorted(held.tables(NO_GROUP), key=place), key=place):
        yield found, [table for _, table in parts]
