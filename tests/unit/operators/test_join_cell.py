"""The cells of a join: how tuples are routed to them, and what they keep."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.memory_storage import MemoryStorage
from tidegate.operators.cells import Instances
from tidegate.operators.exchange import Delta, RouteByKeys, RouteOnGrid, Routing, TupleIntake, tuple_shards
from tidegate.operators.joins import join_cell
from tidegate.operators.joins.cached_join import CachedJoin, JoinCache
from tidegate.operators.joins.join_cell import JoinCell
from tidegate.query.keys import Columns
from tidegate.query.nodes import Join
from tidegate.state.chunks import ChunkMemory, ChunkStore, Directory
from tidegate.state.epochs import SHARDS_OF_A_STEP, SIDE, CellEpoch, first_mapping
from tidegate.state.pair_grid import PairGrid
from tidegate.state.step_folder import StepFolder
from tidegate.watermark import END, START, Watermark

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("n", pa.int64()), ("k", pa.string())])
STEP = 20
JOINS: dict[str, dict[str, Any]] = {
    "all pairs": {"within": "300us", "where": lambda l, r: (l.n - r.n) % 50 == 0},
    "by band": {"within": "300us", "where": lambda l, r: abs(l.n - r.n) <= 1},
    "by key": {"within": "300us", "on": "k"},
    "windows by key": {"window": "300us", "every": "100us", "on": "k"},
    "windows": {"window": "300us", "every": "100us", "where": lambda l, r: (l.n - r.n) % 50 == 0},
}


def test_a_grid_is_the_papers() -> None:
    """StreamCloud §IV.A.b: two buckets a side over four instances, and who gets which.

    ::

              A, C   B, D
        0, 3    0      1
        1, 2    2      3
    """
    mapping = np.array(first_mapping(4, grid=True))
    # A bucket of the paper's is a half of the rows, or of the columns.
    left, right = {0: 0, 3: 15, 1: 16, 2: 31}, {"A": 0, "C": 15, "B": 16, "D": 31}
    grid = mapping.reshape(SIDE, SIDE)
    cells: dict[object, set[int]] = {number: set(grid[row].tolist()) for number, row in left.items()}
    cells |= {letter: set(grid[:, column].tolist()) for letter, column in right.items()}
    assert cells[0] == cells[3] == {0, 1} and cells[1] == cells[2] == {2, 3}
    assert cells["A"] == cells["C"] == {0, 2} and cells["B"] == cells["D"] == {1, 3}
    met = [cells[number] & cells[letter] for number, letter in product(left, right)]
    assert all(len(each) == 1 for each in met)
    assert sorted(cell for each in met for cell in each) == sorted([0, 1, 2, 3] * 4), "not a fourth of the pairs each"


@pytest.mark.parametrize("cells", range(1, 13))
def test_every_pair_meets_in_exactly_one_cell(cells: int) -> None:
    epoch = CellEpoch(0, first_mapping(cells, grid=True))
    assert epoch.cells == tuple(range(cells))
    tuples = segment(0, 40)
    routing = [RouteOnGrid(0, epoch, PairGrid())(tuples), RouteOnGrid(1, epoch, PairGrid())(tuples)]
    for one, other in product(range(40), repeat=2):
        assert len(places(routing[0], one) & places(routing[1], other)) == 1
    again = RouteOnGrid(0, epoch, PairGrid())(tuples.take(list(range(39, -1, -1))))
    assert [places(routing[0], row) for row in range(40)] == [places(again, 39 - row) for row in range(40)]


def test_a_tuple_goes_to_every_cell_of_its_row_or_column_once() -> None:
    mapping = np.random.default_rng(1).integers(0, 5, SIDE * SIDE)
    tuples = segment(0, 40)
    for side in (0, 1):
        grid = mapping.reshape(SIDE, SIDE) if side == 0 else mapping.reshape(SIDE, SIDE).T
        routing = RouteOnGrid(side, CellEpoch(0, tuple(mapping.tolist())), PairGrid())(tuples)  # type: ignore[arg-type]  # 0 or 1
        for row, shard in enumerate(tuple_shards(tuples).tolist()):
            assert sorted(routing.cells[routing.rows == row].tolist()) == sorted(set(grid[shard % SIDE].tolist()))
        assert routing.loads.sum() == 40 * SIDE


@pytest.mark.parametrize("judged", [(0,), (1,), (0, 1)])
def test_the_cell_that_judges_a_tuple_gets_all_of_the_other_side(judged: tuple[int, ...]) -> None:
    """And the load of a shard is what its cell judges there: what goes to all cells burdens none in particular."""
    mapping = np.random.default_rng(1).integers(1, 5, SHARDS_OF_A_STEP)
    epoch, tuples = CellEpoch(0, tuple(mapping.tolist())), segment(0, 40)
    judges, everyone = mapping[tuple_shards(tuples)].tolist(), {1, 2, 3, 4}
    for side in (0, 1):
        routing = RouteOnGrid(side, epoch, PairGrid(judged))(tuples)  # type: ignore[arg-type]  # 0 or 1
        for row, judge in enumerate(judges):
            assert places(routing, row) == ({judge} if judged == (side,) else everyone)
        assert len(routing.rows) == (40 if judged == (side,) else 160), "a tuple goes to a cell once"
        assert routing.loads.sum() == (40 if side in judged else 0)


def test_tuples_that_go_to_all_cells_are_one_table() -> None:
    """Which is encoded once."""
    stream = tg.stream(SCHEMA, time="ts")
    node = stream.join(stream, within="300us", how="left").node
    assert isinstance(node, Join)
    epoch = CellEpoch(0, first_mapping(3))
    for side, tables in ((0, 3), (1, 1)):
        router = RouteOnGrid(side, epoch, PairGrid(node.judged_sides))  # type: ignore[arg-type]  # 0 or 1
        intake = TupleIntake(router, node, side, epoch, SCHEMA, "ts", lambda table: table, None)
        intake.add(segment(0, 40))
        found = dict(intake.finish())
        assert sorted(found) == [0, 1, 2]
        assert len({id(delta.rows) for delta in found.values()}) == tables
        assert sum(delta.rows.num_rows for delta in found.values()) == (40 if side == 0 else 120)


def test_equal_keys_of_different_widths_meet() -> None:
    left = pa.table({"a": pa.array([1, -5, None], pa.int32()), "b": pa.array([0.5, -0.0, None], pa.float32())})
    right = pa.table({"c": pa.array([1, -5, None], pa.int64()), "d": pa.array([0.5, 0.0, 2.0], pa.float64())})
    each = CellEpoch(0, tuple(range(SIDE * SIDE)))
    one, other = RouteByKeys(Columns(("a", "b")), each)(left), RouteByKeys(Columns(("c", "d")), each)(right)
    assert one.cells[:2].tolist() == other.cells[:2].tolist()
    assert len(one.rows) == 3


@pytest.mark.parametrize("kind", JOINS)
def test_state_and_memory_are_bounded_by_the_window(kind: str) -> None:
    run = Run(kind)
    held, sizes, chunks = [], [], []
    for number in range(150):
        run.batch(number)
        held.append(run.cached.rows)
        sizes.append(run.directory.state_bytes())
        chunks.append(len(run.directory.chunks))
    assert max(held) <= 2 * (2 * 300 + 4 * STEP)
    assert max(sizes[90:]) <= 1.3 * max(sizes[30:90]), "the state grows"
    assert max(chunks) < 2 * 300 / STEP, "small chunks are not merged"
    run.end(150)
    assert not run.directory.chunks and run.directory.state_rows() == 0


@pytest.mark.parametrize("kind", JOINS)
def test_what_is_in_memory_changes_no_result(kind: str) -> None:
    """Attempts that fail, workers that missed batches and workers that never saw the cell: all give the same pairs."""
    expected = Run(kind)
    mixed = Run(kind, [JoinCache(), JoinCache(), JoinCache(limit_bytes=0)])
    chance = random.Random(5)
    for number in range(150):
        expected.batch(number)
        if chance.random() < 0.3:
            mixed.fail(number, chance.randrange(3), chance.random() < 0.5, chance.random() < 0.5)
        if chance.random() < 0.1:
            mixed.workers[0] = JoinCache()
        mixed.batch(number, chance.randrange(3))
    expected.end(150)
    mixed.end(150)
    assert expected.results.num_rows > 100
    order = [(name, "ascending") for name in expected.results.column_names]
    assert mixed.results.sort_by(order).equals(expected.results.sort_by(order))


def test_a_worker_reads_only_what_it_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_cell, "MOST_ROWS", 0)  # nothing is merged
    run = Run("by key")
    for number in range(3):
        run.batch(number)
    run.storage.gets.clear()
    run.batch(3)
    assert run.storage.gets == []
    away = run.take()
    run.workers[0] = JoinCache()
    run.batch(4)
    known = len(run.storage.gets)
    assert known > 2, "a worker that knows nothing reads everything"
    run.storage.gets.clear()
    run.workers[0] = JoinCache()
    run.workers[0].put(run.folder.where, 0, away)
    run.batch(5)
    assert len(run.storage.gets) == 2, "two chunks were added by others"


def test_a_process_keeps_what_it_used_last() -> None:
    run = Run("by key")
    run.batch(0)
    cache = JoinCache(limit_bytes=run.cached.bytes + 1)
    cache.put("run", 0, run.cached)
    cache.put("run", 1, run.cached)
    assert cache.take("run", 0) is None and cache.take("run", 1) is run.cached


class Run:
    """Batches of one cell by some workers over one storage."""

    def __init__(self, kind: str, workers: list[JoinCache] | None = None) -> None:
        stream = tg.stream(SCHEMA, time="ts")
        node = stream.join(stream, **JOINS[kind]).node
        assert isinstance(node, Join)
        self.node = node
        self.storage = MemoryStorage()
        self.folder = StepFolder(self.storage, "query/step-0", "join", "build-run", retain=100)
        self.workers = workers or [JoinCache()]
        self.directory = Directory("fingerprint")
        self.tables: list[pa.Table] = [node.schema.empty_table()]

    @property
    def results(self) -> pa.Table:
        return pa.concat_tables(self.tables)

    @property
    def cached(self) -> CachedJoin:
        cached = self.take()
        self.workers[0].put(self.folder.where, 0, cached)
        return cached

    def take(self) -> CachedJoin:
        cached = self.workers[0].take(self.folder.where, 0)
        assert cached is not None
        return cached

    def batch(self, number: int, worker: int = 0) -> None:
        store = self._store(number)
        deltas = [Delta(segment(number, STEP), side) for side in (0, 1)]
        found = self._cell(store, worker).receive(deltas, watermark(number))
        state = self.directory.encode()
        store.commit(0)
        self.tables += found
        assert self.directory.encode() == state, "state is final before results are consumed"

    def fail(self, number: int, worker: int, has_tuples: bool, is_consumed: bool) -> None:
        """An attempt that does its work and is not committed; of what it found nothing may be asked."""
        before = self.directory.encode()
        deltas = [Delta(segment(number, STEP), side) for side in (0, 1)] if has_tuples else []
        found = self._cell(self._store(number), worker).receive(deltas, watermark(number))
        if is_consumed:
            list(found)
        self.directory = Directory.decode(before, "here")

    def end(self, number: int) -> None:
        store = self._store(number)
        self.tables += self._cell(store, 0).receive([], END)
        store.commit(0)

    def _store(self, number: int) -> ChunkStore:
        return ChunkStore(self.directory, self.folder, number, ChunkMemory())

    def _cell(self, store: ChunkStore, worker: int) -> JoinCell:
        return JoinCell(self.node, 0, store, Instances(1), self.workers[worker])


def watermark(number: int) -> Watermark:
    return number * STEP - 10 if number else START


def segment(number: int, rows: int) -> pa.Table:
    times = number * STEP + np.arange(rows) - np.arange(rows) % 3 * 5
    names = [f"{place % 30}" for place in range(rows)]
    columns = [pa.array(times).cast(SCHEMA.field("ts").type), pa.array(times * 7 % 1000), pa.array(names)]
    return pa.table(columns, schema=SCHEMA)


def places(routing: Routing, row: int) -> set[int]:
    return set(routing.cells[routing.rows == row].tolist())
