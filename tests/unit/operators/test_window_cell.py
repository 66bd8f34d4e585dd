"""A cell of a windowed aggregate: what a batch gives, and the log of chunks that it keeps."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

import tidegate as tg
from tests.kit.memory_storage import MemoryStorage
from tidegate.operators.cells import CellLogic, Instances
from tidegate.operators.exchange import Delta
from tidegate.operators.window_cell import MOST_CHUNKS, WindowCell
from tidegate.query.nodes import WindowAggregate
from tidegate.state.chunks import Chunk, ChunkMemory, ChunkStore, Directory
from tidegate.state.step_folder import StepFolder
from tidegate.watermark import END, START, Watermark


class Cell:
    """One cell that counts by key, batch after batch; each batch is opened over what the one before has committed."""

    def __init__(self, size: int = 1, every: int | None = None, lateness: int = 0) -> None:
        stream = tg.stream({"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts")
        windows = stream.key_by("k").window(f"{size}us", every=f"{every or size}us", lateness=f"{lateness}us")
        node = windows.aggregate(n=tg.count()).node
        assert isinstance(node, WindowAggregate)
        self.logic = CellLogic(WindowCell, node)
        self.folder = StepFolder(MemoryStorage(), "query/step-0", "counts", "build-run", retain=1000)
        self.number = 0

    def batch(self, tuples: Iterable[tuple[int, int]], watermark: Watermark = START, cold: bool = False) -> pa.Table:
        """The results of a batch with tuples of such times and keys."""
        memory = ChunkMemory() if cold or self.number == 0 else self.memory
        self.directory = self.folder.before(0, self.number) or Directory("f", run="build-run")
        store = ChunkStore(self.directory, self.folder, self.number, memory)
        self.memory, self.number = memory, self.number + 1
        cell = self.logic.open(0, store, Instances(1))
        assert isinstance(cell, WindowCell)
        results = cell.receive(self._deltas(cell, list(tuples)), watermark)
        before = self.directory.encode()
        store.commit(0)
        made = pa.concat_tables([self.logic.node.schema.empty_table(), *results])
        assert self.directory.encode() == before, "state is final before results are consumed"
        return made

    def _deltas(self, cell: WindowCell, tuples: list[tuple[int, int]]) -> list[Delta]:
        columns = {"ts": [time for time, _ in tuples], "k": [key for _, key in tuples]}
        panes = cell.windows.panes.lift(pa.table(columns, schema=self.logic.node.input.schema))
        return [Delta(panes)] if tuples else []

    @property
    def chunks(self) -> list[Chunk]:
        return self.directory.chunks


def shown(results: pa.Table) -> list[tuple[int, int, int]]:
    """Window, key and count of results."""
    start = results.column("window_start").cast(pa.int64()).to_pylist()
    return sorted(zip(start, results.column("k").to_pylist(), results.column("n").to_pylist(), strict=True))


def test_windows_leave_in_the_batch_whose_watermark_passes_them() -> None:
    # window of 4     [0      4)[4      8)
    # batch 0          1 2       5           watermark START
    # batch 1              3       6         watermark 4
    cell = Cell(4)
    assert not cell.batch([(1, 7), (2, 7), (5, 7)]).num_rows
    assert shown(cell.batch([(3, 7), (6, 8)], watermark=4)) == [(0, 7, 3)], "with what came in the same batch"
    assert shown(cell.batch([], watermark=4)) == []
    assert shown(cell.batch([], watermark=END)) == [(4, 7, 1), (4, 8, 1)]
    assert not cell.chunks, "nothing is needed at the end"


def test_what_expires_in_the_batch_that_brings_it_is_never_written() -> None:
    cell = Cell(4)
    assert shown(cell.batch([(1, 7), (2, 7)], watermark=9)) == [(0, 7, 2)]
    assert not cell.chunks
    assert cell.folder.storage.names("query/step-0/chunks") == []


@pytest.mark.parametrize("cold", [False, True])
def test_late_tuples_revise_windows_and_the_revisions_are_counted(cold: bool) -> None:
    cell = Cell(4, lateness=10)
    first = cell.batch([(1, 7), (1, 8)], watermark=5)
    assert (shown(first), first.column("revision").to_pylist()) == ([(0, 7, 1), (0, 8, 1)], [0, 0])
    second = cell.batch([(2, 7)], watermark=6, cold=cold)
    assert (shown(second), second.column("revision").to_pylist()) == ([(0, 7, 2)], [1]), "the key that changed, alone"
    third = cell.batch([(3, 8)], watermark=7, cold=cold)
    assert (shown(third), third.column("revision").to_pylist()) == ([(0, 8, 2)], [2])
    assert not cell.batch([], watermark=END, cold=cold).num_rows
    assert (cell.chunks, cell.directory.rounds) == ([], {})


@pytest.mark.parametrize("cold", [False, True])
def test_compaction_keeps_every_pane_and_leaves_large_chunks_alone(cold: bool) -> None:
    cell = Cell()
    assert not cell.batch((0, key) for key in range(1000, 1500)).num_rows
    (large,) = cell.chunks
    for key in range(3 * MOST_CHUNKS):
        assert not cell.batch([(0, key)], cold=cold).num_rows
    assert large in cell.chunks
    assert len(cell.chunks) <= MOST_CHUNKS + 1
    results = cell.batch([], END, cold)
    assert sorted(results.column("k").to_pylist()) == [*range(3 * MOST_CHUNKS), *range(1000, 1500)]
    assert set(results.column("n").to_pylist()) == {1}
    assert not cell.chunks


def test_chunks_over_other_slices_do_not_count() -> None:
    cell = Cell()
    for time in range(2 * MOST_CHUNKS):
        assert not cell.batch([(time, 7)]).num_rows
    assert len(cell.chunks) == 2 * MOST_CHUNKS
    assert cell.batch([], watermark=3).num_rows == 3
    assert min(chunk.low for chunk in cell.chunks) == 2 * 3


def test_equal_panes_of_other_slices_are_other_chunks() -> None:
    """A chunk of one slice does not say which in its bytes."""
    cell = Cell(1)
    cell.batch([(0, 7), (10**6, 7)])
    assert len({chunk.name for chunk in cell.chunks}) == len(cell.chunks)
    assert shown(cell.batch([], END)) == [(0, 7, 1), (10**6, 7, 1)]
