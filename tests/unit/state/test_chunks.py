"""State: chunks, the directory of a batch, what a process remembers, and what a commit writes when."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.kit.memory_storage import MemoryStorage
from tidegate.errors import CheckpointError
from tidegate.state import chunks
from tidegate.state.chunks import Asked, Chunk, ChunkMemory, ChunkStore, Data, Directory, Piece, chunk_name
from tidegate.state.epochs import SHARDS_OF_A_STEP, CellEpoch
from tidegate.state.step_folder import StepFolder


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def folder_in(storage: MemoryStorage) -> StepFolder:
    return StepFolder(storage, "query/step-0", "counts", "build-run", retain=100)


def store_in(storage: MemoryStorage, batch: int, directory: Directory | None = None) -> ChunkStore:
    return ChunkStore(directory or Directory("f"), folder_in(storage), batch, ChunkMemory())


def piece(value: int, low: int = 0, high: int = 0) -> Piece:
    return Piece(low, high, 1, chunks.encode(pa.table({"v": [value]})))


def values(store: ChunkStore) -> list[int]:
    def build(data: Data, chunk: Chunk) -> tuple[pa.Table, int]:
        table = chunks.decode(data)
        return table, table.nbytes

    read = store.read(store.directory.chunks, build, lambda work, items: list(map(work, items)))
    return sorted(value for table in read for value in table.column("v").to_pylist())


def test_a_chunk_of_another_version_is_refused() -> None:
    foreign = pa.table({"v": [1]}).replace_schema_metadata({"tidegate.chunk": "0"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, foreign.schema) as writer:
        writer.write_table(foreign)
    with pytest.raises(CheckpointError, match="version b'0'"):
        chunks.decode(sink.getvalue())


def test_a_chunk_is_known_by_its_batch_and_its_bytes() -> None:
    named = [
        chunk_name(7, piece(1)),
        chunk_name(8, piece(1)),
        chunk_name(7, piece(2)),
        chunk_name(7, piece(1, low=-1)),
        chunk_name(7, piece(1), side=1),
        chunk_name(7, piece(1), group=0),
    ]
    assert len(set(named)) == len(named), "equal bytes of other batches, slices and sides are other chunks"
    assert chunk_name(7, piece(1)) == named[0]
    one, other = piece(1).data, piece(2).data
    chunk = Chunk(named[0], 0, 0, 1, len(one))
    assert chunk.batch == 7
    assert chunk.is_made_of(one) and chunk.is_made_of(one.to_pybytes())
    assert not chunk.is_made_of(other)
    assert not chunk.is_made_of(one.to_pybytes()[:-1])


def test_a_directory_survives_its_bytes() -> None:
    listed = [Chunk("0000000004-ab", -4, 3, 5, 6), Chunk("0000000007-cd", 0, 9, 5, 60, side=1, group=3)]
    directory = Directory(
        "what it is", -7, {"calls": 12}, listed, {9: 2}, Asked("run", 3), [1, 2], "digest", "build-run", 5, 11
    )
    assert Directory.decode(directory.encode(), "here") == directory
    assert (directory.state_rows(), directory.state_bytes()) == (10, 66)
    assert Directory.decode(Directory("f").encode(), "here") == Directory("f")


def test_a_directory_remembers_epochs_and_the_shards_that_its_chunks_are_listed_for() -> None:
    epoch = CellEpoch(3, tuple(shard % 5 for shard in range(SHARDS_OF_A_STEP)))
    some = epoch.owned(2)
    listed = [
        Chunk("0000000004-ab", 1, 2, 30, 300, shards=some, written=epoch.owned(2) | epoch.owned(3)),
        Chunk("0000000005-cd", 1, 2, 30, 300, shards=some, written=some),
    ]
    following = epoch.next([0] * SHARDS_OF_A_STEP, "adopt")
    directory = Directory("f", chunks=listed, epoch=epoch, following=following, cells=(1, 8))
    assert Directory.decode(directory.encode(), "here") == directory
    assert [chunk.is_whole for chunk in listed] == [False, True]
    assert len({listed[0].held_as, replace(listed[0], shards=epoch.owned(3)).held_as, listed[0].name}) == 3
    assert listed[1].held_as == listed[1].name
    # Of 1,024 shards, 205 are 2 modulo 5 and 205 are 3.
    assert (directory.state_rows(), directory.state_bytes()) == (45, 450)


def test_a_directory_of_another_version_is_refused() -> None:
    other = Directory("f").encode().replace(b'"version": 6', b'"version": 4')
    with pytest.raises(CheckpointError, match="here/12 has version 4; this tidegate reads 6"):
        Directory.decode(other, "here/12")


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_a_directory_with_any_byte_changed_is_refused(place: int) -> None:
    data = bytearray(Directory("what it is", 5, {"calls": 9}, [Chunk("0000000004-ab", 1, 2, 3, 4)]).encode())
    data[place] ^= 1
    with pytest.raises(CheckpointError, match="here"):
        Directory.decode(bytes(data), "here")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"{}", b"\xff\xfe", json.dumps({"version": 5}).encode()])
def test_what_is_no_directory_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match="here holds no directory of tidegate: the state is damaged"):
        Directory.decode(data, "here")


def test_memory_forgets_what_was_used_least_lately() -> None:
    memory = ChunkMemory(limit_bytes=30)
    for name in "abc":
        memory.put(name, 10, name.upper())
    assert memory.get("a") == "A"
    memory.put("d", 10, "D")
    assert [memory.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    memory.put("c", 1, "C2")
    memory.put("e", 9, "E")
    assert [memory.get(name) for name in "acde"] == ["A", "C2", "D", "E"], "what is put again counts once"
    memory.drop("d")
    memory.drop("d")
    memory.put("f", 10, "F")
    assert [memory.get(name) for name in "acef"] == ["A", "C2", "E", "F"], "and what is dropped does not count"


def test_memory_keeps_the_last_one_whatever_its_size() -> None:
    memory = ChunkMemory(limit_bytes=30)
    memory.put("small", 1, 1)
    memory.put("large", 1_000, 2)
    assert (memory.get("small"), memory.get("large")) == (None, 2)
    memory.clear()
    assert memory.get("large") is None
    memory.put("a", 20, 3)
    memory.put("b", 10, 4)
    assert (memory.get("a"), memory.get("b")) == (3, 4)


def test_nothing_is_written_before_the_commit_and_the_directory_last(storage: MemoryStorage) -> None:
    store = store_in(storage, 3)
    added = [store.append(piece(value)) for value in (1, 2, 3)]
    assert values(store) == [1, 2, 3], "what was added can be read before it is written"
    assert storage.puts == []
    store.commit(cell=4)
    assert sorted(storage.puts[:-1]) == sorted(f"query/step-0/chunks/{chunk.name}" for chunk in added)
    assert storage.puts[-1] == "query/step-0/cell-4/0000000003-build-run"


def test_a_commit_that_fails_leaves_no_directory(storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_in(storage, 3)
    for value in (1, 2):
        store.append(piece(value))
    put = MemoryStorage.put

    def full(self: MemoryStorage, name: str, data: Data) -> None:
        if self.puts:
            raise OSError(28, "No space left on device")
        put(self, name, data)

    monkeypatch.setattr(MemoryStorage, "put", full)
    with pytest.raises(OSError, match="No space"):
        store.commit(0)
    assert folder_in(storage).written(0, 3) is None


def test_only_what_is_still_listed_is_written(storage: MemoryStorage) -> None:
    store = store_in(storage, 0)
    gone, kept = store.append(piece(1)), store.append(piece(2))
    store.drop(gone)
    store.commit(0)
    assert storage.puts == [f"query/step-0/chunks/{kept.name}", "query/step-0/cell-0/0000000000-build-run"]
    stored = folder_in(storage).written(0, 0)
    assert stored is not None and stored.chunks == [kept]
    storage.puts.clear()
    later = store_in(storage, 1, stored)
    later.append(piece(3))
    later.drop(kept)
    later.commit(0)
    assert not any(kept.name in name for name in storage.puts)
    assert storage.get(f"query/step-0/chunks/{kept.name}") is not None, "the batch before may be read again"


def test_an_attempt_that_does_the_same_writes_the_same_files(storage: MemoryStorage) -> None:
    def attempt() -> list[str]:
        storage.puts.clear()
        store = store_in(storage, 3)
        store.append(piece(1))
        store.commit(0)
        return storage.puts.copy()

    assert attempt() == attempt()


def test_what_is_done_with_moves_the_low_end_of_a_chunk(storage: MemoryStorage) -> None:
    store = store_in(storage, 0)
    chunk = store.append(piece(1, low=3, high=9))
    store.update(chunk, low=7)
    (listed,) = store.directory.chunks
    assert (listed.name, listed.low, listed.high) == (chunk.name, 7, 9)
    assert values(store) == [1]


def test_a_worker_that_has_the_cell_again_reads_nothing(storage: MemoryStorage) -> None:
    store = store_in(storage, 0)
    chunk = store.append(piece(1))
    store.commit(0)
    storage.gets.clear()
    again = ChunkStore(store.directory, folder_in(storage), 1, ChunkMemory())
    assert values(again) == [1]
    assert storage.gets == [f"query/step-0/chunks/{chunk.name}"]
    third = ChunkStore(store.directory, folder_in(storage), 2, again.memory)
    assert values(third) == [1]
    assert len(storage.gets) == 1
    again.remember(chunk, 8, pa.table({"v": [99]}))
    assert values(third) == [99], "what is in memory is taken for what the chunk holds"


def test_what_the_caller_keeps_itself_is_not_kept_twice(storage: MemoryStorage) -> None:
    store = store_in(storage, 0)
    chunk = store.append(piece(1))
    read = store.read(
        [chunk], lambda data, _: (chunks.decode(data), 8), lambda work, items: list(map(work, items)), keep=False
    )
    assert read[0].column("v").to_pylist() == [1]
    assert store.remembered(chunk) is None


def test_steps_of_one_process_do_not_take_each_others_chunks(storage: MemoryStorage) -> None:
    """Their names are their contents, and other steps read other things out of the same bytes."""
    memory = ChunkMemory()
    one, other = (
        ChunkStore(Directory("f"), StepFolder(storage, f"query/step-{step}", "s", "b-r", 100), 0, memory)
        for step in (0, 1)
    )
    first, second = one.append(piece(1)), other.append(piece(1))
    assert first == second
    one.remember(first, 8, "of one")
    assert (one.remembered(first), other.remembered(second)) == ("of one", None)
