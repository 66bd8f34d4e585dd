"""Files of state that hold something else than was written there, or are gone: refused by name, never taken."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tests.kit.spark_driver import Batch, Driver, forget
from tidegate.errors import CheckpointError
from tidegate.state import cache as cache_module
from tidegate.state import chunks
from tidegate.state.cache import ChunkCache
from tidegate.state.chunks import ChunkStore, Directory, Piece
from tidegate.state.own_folder import own_folder
from tidegate.state.step_folder import StepFolder
from tidegate.state.storage import open_storage
from tidegate.testing import answer, difference

TIME = pa.timestamp("us", tz="UTC")


def altered(data: bytes) -> bytes:
    """A valid chunk of the same columns with other numbers."""
    table = chunks.decode(data)
    columns = [
        pa.array([7] * table.num_rows, column.type) if pa.types.is_integer(column.type) else column
        for column in table.columns
    ]
    return chunks.encode(pa.table(columns, schema=table.schema)).to_pybytes()


def of_a_wrong_chunk(path: Path) -> None:
    path.write_bytes(altered(path.read_bytes()))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def some_tuples(minute: int) -> pa.Table:
    times = pa.array([60_000_000 * minute + 1_000 * number for number in range(40)], pa.int64()).cast(TIME)
    return pa.table({"ts": times, "k": [f"key {number % 7}" for number in range(40)]})


TABLES = [some_tuples(minute) for minute in range(3)]


def counted(origin: Any) -> tg.Stream:
    return (
        tg.stream(origin, time="ts", name="s").key_by("k").window("10 minutes").aggregate(n=tg.count(), name="counted")
    )


def after_three_batches(folder: Path, cells: int) -> Driver:
    """A driver whose window needs all that it has read."""
    driver = Driver(counted(TABLES[0].schema).node, cells, folder)
    for table in TABLES:
        driver.batch(Batch({"s": [table]}))
    forget()  # a worker that has a chunk in memory does not read it again
    return driver


@pytest.mark.parametrize("cells", [1, 2])
def test_undamaged_it_is_read_by_new_workers(tmp_path: Path, cells: int) -> None:
    outcome = after_three_batches(tmp_path, cells).run([])
    assert difference(pa.concat_tables(outcome.tables), answer(counted(pa.concat_tables(TABLES))).rows) is None


@pytest.mark.parametrize("damage", [of_a_wrong_chunk, flipped, cut, emptied, Path.unlink])
@pytest.mark.parametrize("cells", [1, 2])
def test_a_damaged_chunk_is_refused_by_name(tmp_path: Path, cells: int, damage: Callable[[Path], object]) -> None:
    driver = after_three_batches(tmp_path, cells)
    chunk = sorted((tmp_path / "query" / "step-0" / "chunks").iterdir())[0]
    damage(chunk)
    how = "missing from" if damage is Path.unlink else "that are not the"
    with pytest.raises(CheckpointError, match=rf"{re.escape(chunk.name)}.*{how}.*restore it from a copy"):
        driver.run([])


@pytest.mark.parametrize("damage", [flipped, cut, emptied])
@pytest.mark.parametrize("cells", [1, 2])
def test_a_damaged_directory_is_refused_by_name(tmp_path: Path, cells: int, damage: Callable[[Path], object]) -> None:
    driver = after_three_batches(tmp_path, cells)
    directory = sorted((tmp_path / "query" / "step-0" / f"cell-{cells - 1}").iterdir())[-1]
    damage(directory)
    with pytest.raises(CheckpointError, match=rf"{directory} (holds no directory|is not what was written).*is damaged"):
        driver.run([])


@pytest.mark.parametrize("cells", [1, 2])
def test_a_missing_directory_is_refused_with_what_can_be_done(tmp_path: Path, cells: int) -> None:
    driver = after_three_batches(tmp_path, cells)
    sorted((tmp_path / "query" / "step-0" / f"cell-{cells - 1}").iterdir())[-1].unlink()
    message = (
        rf"step 'counted': the state of cell {cells - 1} after batch 2 is missing from {tmp_path}.*remove commits/2"
    )
    with pytest.raises(CheckpointError, match=message):
        driver.run([])


def test_a_cached_file_that_is_damaged_is_read_again_from_the_storage(tmp_path: Path) -> None:
    cache, storage = ChunkCache(tmp_path / "cache"), open_storage(str(tmp_path / "state"))
    folder = StepFolder(storage, "query/step-0", "counted", "run", 100, cache)
    store = ChunkStore(Directory("f"), folder, 0, chunks.ChunkMemory())
    chunk = store.append(Piece(0, 0, 2, chunks.encode(pa.table({"n": [1, 2]}))))
    store.commit(0)
    kept = cache.file(chunk.name).read_bytes()
    for damage in (of_a_wrong_chunk, flipped, cut, emptied, Path.unlink):
        damage(cache.file(chunk.name))
        assert folder.get_chunk(chunk) == kept
        assert cache.file(chunk.name).read_bytes() == kept, "the next one finds it whole"
    flipped(tmp_path / "state" / "query" / "step-0" / "chunks" / chunk.name)
    cache.drop(chunk.name)
    with pytest.raises(CheckpointError, match="the state is damaged; restore it from a copy"):
        folder.get_chunk(chunk)
    assert cache.get(chunk.name) is None, "what is damaged is not kept"


def test_of_the_same_piece_twice_one_is_there_when_the_other_is_dropped(tmp_path: Path) -> None:
    folder = StepFolder(open_storage(str(tmp_path)), "query/step-0", "counted", "run", 100)
    store = ChunkStore(Directory("f"), folder, 0, chunks.ChunkMemory())
    piece = Piece(0, 0, 1, chunks.encode(pa.table({"n": [1]})))
    first, second = store.append(piece), store.append(piece)
    other = store.append(piece, side=1)
    assert len({first.name, second.name, other.name}) == 3, "what the bytes do not tell is in the name"
    store.drop(first)
    store.commit(0)
    assert folder.get_chunk(second) == folder.get_chunk(other) == piece.data.to_pybytes()


@pytest.mark.spark
def test_state_that_is_gone_stops_a_run_on_spark_and_a_copy_helps(spark: Any, tmp_path: Path) -> None:
    files, out = usage(tmp_path / "in", rows=500, minutes=5, files=4), tmp_path / "out"
    query = tg.stream(files, time="time").key_by("appId").window("1 day").aggregate(flows=tg.count(), name="flows")
    state = out / "_checkpoint" / "state"

    def stop_soon(progress: tg.Progress) -> None:
        if progress.batch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    def run(**options: Any) -> tg.RunResult:
        return tg.run(query, to=out, spark=spark, files_per_batch=1, **{"progress": False, **options})

    with pytest.raises(KeyboardInterrupt):
        run(progress=stop_soon)
    shutil.copytree(state, tmp_path / "copy")
    newest = max(state.glob("*/step-0/cell-0/*"))
    flipped(newest)
    with pytest.raises(CheckpointError, match=rf"^{newest} .*the state is damaged; restore it from a copy"):
        run()
    shutil.rmtree(newest.parents[2])
    with pytest.raises(CheckpointError, match=r"^step 'flows': the state of cell 0 after batch \d is missing from"):
        run()
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "copy", state)
    assert difference(run().read(), answer(query).rows) is None


def test_a_cache_that_cannot_be_held_is_switched_off_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_module, "_HELD", {})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = own_folder()
    place.chmod(0o777)
    cache = ChunkCache(Path("run-1"))
    with caplog.at_level(logging.WARNING):
        cache.put("1", b"x")
        assert cache.get("1") is None
    assert len(caplog.records) == 1, "one warning for a process"
    assert "may be written by others" in caplog.text
    assert not list(place.iterdir())
