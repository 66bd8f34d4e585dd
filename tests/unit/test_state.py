"""State: chunks, the directory, the cache and the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.errors import CheckpointError
from tidegate.state import chunk_store, chunks
from tidegate.state.cache import ChunkCache
from tidegate.state.chunk_store import ChunkStore, Piece
from tidegate.state.directory import Chunk, Directory
from tidegate.state.slice_log import MOST_CHUNKS, SliceLog


class Blobs(dict[int, bytes]):
    """Bytes by id, in memory."""

    def put(self, blob_id: int, data: bytes) -> None:
        self[blob_id] = data

    def remove(self, blob_id: int) -> None:
        del self[blob_id]


def piece(value: int, rows: int = 1, low: int = 0, high: int = 0) -> Piece:
    return Piece(low, high, rows, chunks.encode(pa.table({"v": [value] * rows})))


def log_over(blobs: Blobs, cache: ChunkCache | None = None) -> SliceLog:
    def merge(tables: Any) -> list[Piece]:
        joined = pa.concat_tables(tables)
        return [Piece(0, 0, joined.num_rows, chunks.encode(joined))]

    store = ChunkStore(Directory("f"), blobs, cache)
    return SliceLog(store, merge, lambda runs: [chunks.decode(run.data) for run in runs])


def values(log: SliceLog) -> list[int]:
    return sorted(v for chunk in log.directory.chunks for v in log.read([chunk])[0].column("v").to_pylist())


def test_a_chunk_of_another_version_is_refused() -> None:
    foreign = pa.table({"v": [1]}).replace_schema_metadata({"tidegate.chunk": "0"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, foreign.schema) as writer:
        writer.write_table(foreign)
    with pytest.raises(CheckpointError, match="version b'0'"):
        chunks.decode(sink.getvalue())


def test_a_directory_survives_its_bytes() -> None:
    listed = [Chunk(1, -4, 3, 5, 6, number=0), Chunk(2, 0, 9, 5, 6, side=1, group=3, number=8)]
    directory = Directory("what it is", -7, 12, listed, {9: 2}, written=9)
    assert Directory.decode(directory.encode()) == directory


def test_a_directory_of_the_first_version_is_read() -> None:
    head = '{"version": %d, "fingerprint": "f", "watermark": 5, "timer_ms": null, "rounds": [], "asked": null}'
    names = ("id", "low", "high", "rows", "bytes")

    def written(version: int) -> bytes:
        schema = pa.schema([(name, pa.int64()) for name in names], metadata={"tidegate.directory": head % version})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.record_batch([pa.array([n], pa.int64()) for n in range(5)], schema))
        made: bytes = sink.getvalue().to_pybytes()
        return made

    assert Directory.decode(written(1)) == Directory("f", 5, None, [Chunk(0, 1, 2, 3, 4)])
    with pytest.raises(CheckpointError, match="version 4"):
        Directory.decode(written(4))


def test_compaction_keeps_every_pane_and_leaves_large_chunks_alone() -> None:
    blobs = Blobs()
    log = log_over(blobs)
    log.append(piece(1000, rows=500))
    large = log.directory.chunks[0]
    for value in range(3 * MOST_CHUNKS):
        log.append(piece(value))
        log.compact(0, 0)
    assert large in log.directory.chunks
    assert len(log.directory.chunks) <= MOST_CHUNKS + 1
    assert values(log) == sorted([*range(3 * MOST_CHUNKS), *[1000] * 500])
    assert set(blobs) == {chunk.id for chunk in log.directory.chunks}


def test_chunks_over_other_slices_do_not_count() -> None:
    log = log_over(Blobs())
    for value in range(2 * MOST_CHUNKS):
        log.append(piece(value, low=value, high=value))
        log.compact(value, value)
    assert len(log.directory.chunks) == 2 * MOST_CHUNKS
    assert [chunk.low for chunk in log.overlapping(3, 5)] == [3, 4, 5]


def test_the_cache_is_only_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_store, "LEAST_CACHED_BYTES", 0)
    blobs, cache = Blobs(), ChunkCache(tmp_path / "cache")
    log = log_over(blobs, cache)
    log.append(piece(1))
    (chunk,) = log.directory.chunks
    assert cache.get(chunk.id) is not None
    cache.drop(chunk.id)
    assert values(log) == [1], "a lost file is read from the store"
    assert cache.get(chunk.id) is not None, "and is there again"
    log.drop(chunk)
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
    log = log_over(Blobs())
    log.directory.chunks.append(Chunk(5, 0, 0, 1, 1))
    with pytest.raises(CheckpointError, match="missing from the state store: the checkpoint is damaged"):
        log.read(log.directory.chunks)
