"""Files of a remote storage on a local disk: losing any of them costs time alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.state.cache import ChunkCache
from tidegate.state.chunks import Chunk, Piece, chunk_name
from tidegate.state.step_folder import StepFolder
from tidegate.state.storage import open_storage

DATA = b"0123456789"
PIECE = Piece(0, 0, 1, pa.py_buffer(DATA))
CHUNK = Chunk(chunk_name(3, PIECE), 0, 0, 1, len(DATA))


def folder_with(tmp_path: Path) -> tuple[StepFolder, ChunkCache]:
    cache = ChunkCache(tmp_path / "cache")
    return StepFolder(open_storage(str(tmp_path / "state")), "q/step-0", "counts", "b-r", 100, cache), cache


def test_the_cache_is_only_a_cache(tmp_path: Path) -> None:
    folder, cache = folder_with(tmp_path)
    folder.put_chunks({CHUNK.name: DATA})
    assert cache.get(CHUNK.name) == DATA
    folder.storage.remove([f"q/step-0/chunks/{CHUNK.name}"])
    assert folder.get_chunk(CHUNK) == DATA, "it was not read from the storage"
    folder.put_chunks({CHUNK.name: DATA})
    cache.drop(CHUNK.name)
    assert not (tmp_path / "cache").exists(), "the last file takes the folder with it"
    assert folder.get_chunk(CHUNK) == DATA, "a lost file is read from the storage"
    assert cache.get(CHUNK.name) == DATA, "and is there again"


@pytest.mark.parametrize("found", [b"", DATA[:-1], b"0123456780", DATA + b"0"])
def test_a_file_of_the_cache_that_is_not_the_chunk_is_not_believed(found: bytes, tmp_path: Path) -> None:
    folder, cache = folder_with(tmp_path)
    folder.put_chunks({CHUNK.name: DATA})
    cache.file(CHUNK.name).write_bytes(found)
    assert folder.get_chunk(CHUNK) == DATA
    assert cache.get(CHUNK.name) == DATA, "and the right one is there again"


def test_a_full_disk_turns_the_cache_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = ChunkCache(tmp_path / "file" / "cache")
    cache.put("1", b"x")
    assert cache.get("1") is None


def test_the_cache_keeps_to_its_limit(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, limit_bytes=25)
    for number in range(8):
        cache.put(str(number), DATA)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["6", "7"]


def test_names_of_chunks_are_names_of_files() -> None:
    name = chunk_name(10**10, PIECE)
    assert "/" not in name and not name.startswith(".")
    assert Chunk(name, 0, 0, 1, 10).batch == 10**10, "more digits than there is room for change nothing"
