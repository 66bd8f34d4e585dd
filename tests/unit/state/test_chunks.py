"""State: chunks, the directory, the cache and the log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import CheckpointError
from tidegate.operators.cells import Instances
from tidegate.operators.exchange import Delta
from tidegate.operators.window_cell import MOST_CHUNKS, WindowCell, WindowCellLogic
from tidegate.query.nodes import WindowAggregate
from tidegate.state import chunks
from tidegate.state.cache import ChunkCache
from tidegate.state.chunks import Asked, Chunk, ChunkStore, Directory, Piece
from tidegate.watermark import END, START


class Blobs(dict[int, bytes]):
    """Bytes by id, in memory."""

    def put(self, blob_id: int, data: bytes) -> None:
        self[blob_id] = data

    def remove(self, blob_id: int) -> None:
        del self[blob_id]


def piece(value: int, rows: int = 1, low: int = 0, high: int = 0) -> Piece:
    return Piece(low, high, rows, chunks.encode(pa.table({"v": [value] * rows})))


def values(store: ChunkStore) -> list[int]:
    tables = [chunks.decode(store.fetch(chunk)) for chunk in store.directory.chunks]
    return sorted(value for table in tables for value in table.column("v").to_pylist())


def counting_cell(blobs: Blobs) -> WindowCell:
    stream = tg.stream({"ts": pa.timestamp("us"), "k": pa.int64()}, time="ts")
    node = stream.key_by("k").window("1us").aggregate(n=tg.count()).node
    assert isinstance(node, WindowAggregate)
    return WindowCellLogic(node).open(0, ChunkStore(Directory("f"), blobs, None), Instances(1))


def counted(cell: WindowCell, keys: Iterable[int], time: int = 0) -> list[Delta]:
    """A batch with one tuple of each key."""
    tuples = pa.table({"ts": [time for _ in keys], "k": list(keys)}, schema=cell.windows.panes.node.input.schema)
    return [Delta(each) for each in cell.windows.panes.pieces(cell.windows.panes.lift(tuples)[0])]


def test_a_chunk_of_another_version_is_refused() -> None:
    foreign = pa.table({"v": [1]}).replace_schema_metadata({"tidegate.chunk": "0"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, foreign.schema) as writer:
        writer.write_table(foreign)
    with pytest.raises(CheckpointError, match="version b'0'"):
        chunks.decode(sink.getvalue())


def test_a_directory_survives_its_bytes() -> None:
    listed = [Chunk(1, -4, 3, 5, 6, number=0), Chunk(2, 0, 9, 5, 6, side=1, group=3, number=8)]
    directory = Directory("what it is", -7, 12, listed, {9: 2}, Asked("run", 3), written=9)
    assert Directory.decode(directory.encode()) == directory


def test_a_directory_of_another_version_is_refused() -> None:
    other = Directory("f").encode().replace(b'"version": 4', b'"version": 3')
    with pytest.raises(CheckpointError, match="version 3; this tidegate reads 4"):
        Directory.decode(other)


def test_compaction_keeps_every_pane_and_leaves_large_chunks_alone() -> None:
    blobs = Blobs()
    cell = counting_cell(blobs)
    assert not list(cell.receive(counted(cell, range(1000, 1500)), START))
    large = cell.store.directory.chunks[0]
    for key in range(3 * MOST_CHUNKS):
        assert not list(cell.receive(counted(cell, [key]), START))
    listed = cell.store.directory.chunks
    assert large in listed
    assert len(listed) <= MOST_CHUNKS + 1
    assert set(blobs) == {chunk.id for chunk in listed}
    results = pa.concat_tables(cell.advance(END))
    assert sorted(results.column("k").to_pylist()) == [*range(3 * MOST_CHUNKS), *range(1000, 1500)]
    assert not blobs, "nothing is needed at the end"


def test_chunks_over_other_slices_do_not_count() -> None:
    cell = counting_cell(Blobs())
    for time in range(2 * MOST_CHUNKS):
        assert not list(cell.receive(counted(cell, [7], time), START))
    assert len(cell.store.directory.chunks) == 2 * MOST_CHUNKS
    assert [table.num_rows for table in cell.advance(3)] == [3]
    assert min(chunk.low for chunk in cell.store.directory.chunks) == 2 * 3


def test_the_cache_is_only_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "LEAST_CACHED_BYTES", 0)
    blobs, cache = Blobs(), ChunkCache(tmp_path / "cache")
    store = ChunkStore(Directory("f"), blobs, cache)
    chunk = store.append(piece(1))
    assert cache.get(chunk.id) is not None
    cache.drop(chunk.id)
    assert values(store) == [1], "a lost file is read from the store"
    assert cache.get(chunk.id) is not None, "and is there again"
    store.drop(chunk)
    assert not blobs
    assert not (tmp_path / "cache").exists(), "the last file takes the folder with it"


def test_a_full_disk_turns_the_cache_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = ChunkCache(tmp_path / "file" / "cache")
    cache.put(1, b"x")
    assert cache.get(1) is None


def test_the_cache_keeps_to_its_limit(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, limit_bytes=25)
    for number in range(8):
        cache.put(number, b"0123456789")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["6", "7"]


def test_a_chunk_that_is_listed_and_lost_is_told() -> None:
    store = ChunkStore(Directory("f"), Blobs(), None)
    with pytest.raises(CheckpointError, match="missing from the state store: the checkpoint is damaged"):
        store.fetch(Chunk(5, 0, 0, 1, 1, 0))
