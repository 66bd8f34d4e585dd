"""Where state lies: whose directory a batch begins from, what may go, and what is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.errors import CheckpointError
from tidegate.state import chunks
from tidegate.state.chunks import Chunk, ChunkMemory, ChunkStore, Data, Directory, Piece, chunk_name
from tidegate.state.step_folder import StepFolder
from tidegate.state.storage import Storage, open_storage

FOLDER = "query/step-0"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path))


def folder(storage: Storage, run: str = "build-run", retain: int = 2) -> StepFolder:
    return StepFolder(storage, FOLDER, "counts", run, retain)


def write(
    storage: Storage, batch: int, run: str, began_ns: int, cell: int = 0, watermark: int = 0, **more: Any
) -> None:
    directory = Directory("f", watermark, run=run, began_ns=began_ns, **more)
    folder(storage, run).put_directory(cell, batch, directory)


def test_before_the_first_batch_there_is_nothing(storage: Storage) -> None:
    assert folder(storage).before(0, 0) is None
    write(storage, 0, "build-run", 1)
    assert folder(storage).before(0, 0) is None, "whatever attempts have left"


def test_a_run_reads_its_own_first(storage: Storage) -> None:
    write(storage, 4, "b1-own", 1, watermark=10)
    write(storage, 4, "b2-later", 99, watermark=20)
    found = folder(storage, "b1-own").before(0, 5)
    assert found is not None and found.watermark == 10


def test_the_first_batch_of_a_run_reads_the_run_that_began_last(storage: Storage) -> None:
    # A killed run may have written a batch that another one, which began later, has written again.
    write(storage, 4, "b1-zz", 1, watermark=10)
    write(storage, 4, "b3-aa", 3, watermark=30)
    write(storage, 4, "b2-mm", 2, watermark=20)
    write(storage, 5, "b4-xx", 9, watermark=50)
    write(storage, 4, "b5-yy", 99, cell=1, watermark=60)
    found = folder(storage, "b9-new").before(0, 5)
    assert found is not None and found.watermark == 30, "neither that of another batch nor of another cell"


def test_the_other_cells_of_a_batch_are_those_of_the_same_run(storage: Storage) -> None:
    """The run with four cells was killed in batch 4, and one with two cells has done that batch since."""
    for cell in range(4):
        write(storage, 4, "b1-four", 1, cell=cell, watermark=10, cells=(4, 4))
    for cell in range(2):
        write(storage, 4, "b2-two", 2, cell=cell, watermark=20, cells=(2, 2))
    new = folder(storage, "b9-new")
    found = [new.before(cell, 5) for cell in range(4)]
    assert [each.watermark for each in found if each is not None] == [20] * 4
    assert [each.run for each in found if each is not None] == ["b2-two"] * 4, "cells 2 and 3 come as far, with nothing"
    storage.remove([f"{FOLDER}/cell-1/0000000004-b2-two"])
    with pytest.raises(CheckpointError, match="the state of cell 1 after batch 4 is missing"):
        new.before(1, 5)


def test_only_what_this_run_has_written_is_an_attempt_of_it(storage: Storage) -> None:
    write(storage, 4, "b1-other", 1)
    assert folder(storage, "b1-own").written(0, 4) is None
    write(storage, 4, "b1-own", 1, watermark=7)
    found = folder(storage, "b1-own").written(0, 4)
    assert found is not None and found.watermark == 7


def test_a_directory_that_is_missing_is_told_with_what_to_do(storage: Storage, tmp_path: Path) -> None:
    write(storage, 6, "b-r", 1, cell=0)
    with pytest.raises(CheckpointError) as told:
        folder(storage).before(2, 8)
    for said in (
        "step 'counts': the state of cell 0 after batch 7 is missing",
        f"{tmp_path}/{FOLDER}",
        "a foreachBatch that does not evaluate all of its DataFrame",
        "remove commits/7 and offsets/8",
        "or start from a new checkpoint",
    ):
        assert said in str(told.value)


def test_two_builds_of_one_run_are_refused(storage: Storage) -> None:
    """The DataFrame of a query that has two parts of tidegate's with one state folder."""
    write(storage, 4, "b0-before", 0)
    write(storage, 4, "b1-run", 1)
    write(storage, 4, "b2-run", 2)
    with pytest.raises(
        CheckpointError, match=r"two parts of one query, .*; give each its own folder: to_spark\(state="
    ):
        folder(storage, "b9-new").before(0, 5)


def test_two_builds_of_different_runs_are_a_restart(storage: Storage) -> None:
    write(storage, 4, "b1-run", 1)
    write(storage, 4, "b2-again", 2, watermark=20)
    found = folder(storage, "b9-new").before(0, 5)
    assert found is not None and found.watermark == 20


def test_a_damaged_directory_is_named(storage: Storage, tmp_path: Path) -> None:
    write(storage, 4, "build-run", 1)
    path = tmp_path / FOLDER / "cell-0" / "0000000004-build-run"
    path.write_bytes(path.read_bytes().replace(b"build-run", b"built-run"))
    with pytest.raises(CheckpointError, match=rf"{path} is not what was written there: the state is damaged"):
        folder(storage).before(0, 5)


def name_of(batch: int, data: bytes) -> str:
    return chunk_name(batch, Piece(0, 0, 1, pa.py_buffer(data)))


def stored(storage: Storage, data: bytes = b"some bytes") -> Chunk:
    chunk = Chunk(name_of(3, data), 0, 0, 1, len(data))
    folder(storage).put_chunks({chunk.name: data})
    return chunk


def test_a_chunk_comes_back(storage: Storage) -> None:
    assert folder(storage).get_chunk(stored(storage)) == b"some bytes"


def test_a_missing_chunk_is_named(storage: Storage, tmp_path: Path) -> None:
    chunk = stored(storage)
    storage.remove([f"{FOLDER}/chunks/{chunk.name}"])
    with pytest.raises(CheckpointError, match=f"chunk {chunk.name} is listed .* missing from {tmp_path}/{FOLDER}"):
        folder(storage).get_chunk(chunk)


@pytest.mark.parametrize("found", [b"", b"some byte", b"some bytez", b"some bytes."])
def test_an_altered_chunk_is_refused(found: bytes, storage: Storage, tmp_path: Path) -> None:
    chunk = stored(storage)
    (tmp_path / FOLDER / "chunks" / chunk.name).write_bytes(found)
    with pytest.raises(CheckpointError, match=f"holds {len(found)} bytes as chunk {chunk.name} that are not the 10 "):
        folder(storage).get_chunk(chunk)


class Cells:
    """Two cells that each add a chunk in every batch, and drop it when it is ``life`` batches old."""

    def __init__(self, storage: Storage, life: int, retain: int) -> None:
        self.storage, self.life = storage, life
        self.folder = folder(storage, retain=retain)
        self.directories = [Directory("f", run="build-run", cells=(2, 2)) for _ in range(2)]

    def batch(self, number: int) -> None:
        for cell, directory in enumerate(self.directories):
            store = ChunkStore(directory, self.folder, number, ChunkMemory())
            for chunk in [chunk for chunk in directory.chunks if number - chunk.batch >= self.life]:
                store.drop(chunk)
            store.append(Piece(0, 0, 1, chunks.encode(pa.table({"v": [cell, number]}))))
            store.commit(cell)

    def readable(self, batch: int) -> bool:
        """Whether a batch could be run again: whether all state before it is there."""

        def build(data: Data, chunk: Chunk) -> tuple[pa.Table, int]:
            return chunks.decode(data), 0

        for cell in (0, 1):
            try:
                directory = self.folder.before(cell, batch)
                assert directory is not None
                store = ChunkStore(directory, self.folder, batch, ChunkMemory())
                store.read(directory.chunks, build, lambda work, items: list(map(work, items)))
            except CheckpointError:
                return False
        return True

    def chunk_batches(self) -> set[int]:
        return {int(name.partition("-")[0]) for name in self.storage.names(f"{FOLDER}/chunks")}


def test_a_sweep_removes_what_no_directory_that_is_kept_lists(storage: Storage) -> None:
    # batch     0 1 2 3 4 5 6 7 8 9    kept from 7 on; that of 7 lists the chunks of 4 to 7
    cells = Cells(storage, life=4, retain=2)
    for number in range(10):
        cells.batch(number)
    cells.folder.sweep(9)
    assert cells.chunk_batches() == {4, 5, 6, 7, 8, 9}
    assert [int(name[:10]) for name in storage.names(f"{FOLDER}/cell-1")] == [7, 8, 9]
    assert [batch for batch in range(1, 11) if cells.readable(batch)] == [8, 9, 10]


def test_a_sweep_leaves_alone_what_other_attempts_have_left_since(storage: Storage) -> None:
    cells = Cells(storage, life=1, retain=2)
    for number in range(6):
        cells.batch(number)
    left = {batch: name_of(batch, b"left by an attempt") for batch in (1, 5)}
    cells.folder.put_chunks(dict.fromkeys(left.values(), b"left by an attempt"))
    cells.folder.sweep(5)
    names = storage.names(f"{FOLDER}/chunks")
    assert left[5] in names, "its attempt may still run"
    assert left[1] not in names


def test_a_sweep_keeps_what_any_run_lists_in_the_first_batch(storage: Storage) -> None:
    cells = Cells(storage, life=9, retain=1)
    for number in range(3):
        cells.batch(number)
    kept = stored(storage, b"of another run in batch 3, from before")
    assert kept.batch == 3
    folder(storage, "b2-other").put_directory(0, 4, Directory("f", chunks=[kept], run="b2-other"))
    for number in range(3, 6):
        cells.batch(number)
    cells.folder.sweep(5)
    assert folder(storage).get_chunk(kept)


def test_nothing_goes_while_few_batches_are_there(storage: Storage) -> None:
    cells = Cells(storage, life=1, retain=4)
    for number in range(5):
        cells.batch(number)
        cells.folder.sweep(number)
    assert cells.chunk_batches() == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("of_another_run", [False, True])
def test_nothing_goes_if_a_directory_of_the_first_batch_that_is_kept_is_missing(
    of_another_run: bool, storage: Storage
) -> None:
    """What its cell uses is not known, whatever else other cells have."""
    cells = Cells(storage, life=4, retain=2)
    for number in range(10):
        cells.batch(number)
    storage.remove([f"{FOLDER}/cell-1/0000000007-build-run"])
    if of_another_run:
        write(storage, 7, "b2-other", 1, cell=0)
    cells.folder.sweep(9)
    assert cells.chunk_batches() == set(range(10))
    assert len(storage.names(f"{FOLDER}/cell-0")) == 10 + of_another_run
