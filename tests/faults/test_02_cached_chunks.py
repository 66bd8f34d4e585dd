"""Files of the local chunk cache that hold something else than was put there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from examples.inputs.usage import usage
from tests.kit.spark_driver import Batch, Driver
from tidegate.errors import CheckpointError
from tidegate.runtime.spark import job
from tidegate.state import cache as cache_module
from tidegate.state import chunks
from tidegate.state.cache import ChunkCache
from tidegate.state.chunks import ChunkStore, Directory, Piece
from tidegate.state.own_folder import own_folder
from tidegate.testing import answer, difference

TIME = pa.timestamp("us", tz="UTC")


def altered(data: bytes) -> bytes:
    """A valid chunk of the same columns with other numbers."""
    table = chunks.decode(data)
    columns = [
        pa.array([7] * table.num_rows, column.type) if pa.types.is_integer(column.type) else column
        for column in table.columns
    ]
    return chunks.encode(pa.table(columns, schema=table.schema))


def damage(files: list[Path]) -> int:
    """Other counts in most files, garbage, half a file, and one that is gone; gives how many are there and wrong."""
    assert len(files) >= 4
    garbage, cut, gone, *others = files
    for file in others:
        file.write_bytes(altered(file.read_bytes()))
    garbage.write_bytes(b"garbage" * 1000)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    gone.unlink()
    return len(files) - 1


def some_tuples(minute: int) -> pa.Table:
    times = pa.array([60_000_000 * minute + 1_000 * number for number in range(40)], pa.int64()).cast(TIME)
    return pa.table({"ts": times, "k": [f"key {number % 7}" for number in range(40)]})


def test_damaged_files_are_noticed_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three batches, damage, a window that needs all of them."""
    monkeypatch.setattr(chunks, "LEAST_CACHED_BYTES", 0)
    tables = [some_tuples(minute) for minute in range(3)]
    query = tg.stream(tables[0].schema, time="ts", name="s").key_by("k").window("10 minutes").aggregate(n=tg.count())
    folder = tmp_path / "cache"
    driver = Driver(query.node, 2, ChunkCache(folder))
    for table in tables:
        driver._batch(Batch({"s": [table]}))
    wrong = damage(sorted(folder.iterdir()))
    with caplog.at_level(logging.WARNING):
        outcome = driver.run([])
    law = answer(
        tg.stream(pa.concat_tables(tables), time="ts").key_by("k").window("10 minutes").aggregate(n=tg.count())
    )
    assert difference(pa.concat_tables(outcome.tables), law.rows) is None
    noticed = [
        each.getMessage() for each in caplog.records if "is not the chunk that was put there" in each.getMessage()
    ]
    assert len(noticed) == wrong
    assert all(str(folder) in text for text in noticed)


class Blobs(dict[int, bytes]):
    """A state store in memory."""

    def put(self, blob_id: int, data: bytes) -> None:
        self[blob_id] = data

    def remove(self, blob_id: int) -> None:
        del self[blob_id]


def test_a_chunk_that_is_damaged_in_the_store_is_refused() -> None:
    blobs = Blobs()
    store = ChunkStore(Directory("f"), blobs, None)
    chunk = store.append(Piece(0, 0, 2, chunks.encode(pa.table({"n": [1, 2]}))))
    blobs[chunk.id] = altered(blobs[chunk.id])
    with pytest.raises(CheckpointError, match=r"the checkpoint is damaged; restore it from a copy"):
        store.fetch(chunk)


def test_the_same_piece_twice_makes_two_chunks() -> None:
    blobs = Blobs()
    store = ChunkStore(Directory("f"), blobs, None)
    piece = Piece(0, 0, 1, chunks.encode(pa.table({"n": [1]})))
    first, second = store.append(piece), store.append(piece)
    store.drop(first)
    assert store.fetch(second) == piece.data


@pytest.mark.long
@pytest.mark.spark
def test_a_run_on_spark_says_that_files_were_damaged(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks large enough to be cached; a window over all of the input reads them at the end."""
    runs: list[str] = []
    given = job.to_dataframe

    def watched(*args: Any, **options: Any) -> Any:
        runs.append(options["run"])
        return given(*args, **options)

    monkeypatch.setattr(job, "to_dataframe", watched)
    files = usage(tmp_path / "in", rows=120_000, minutes=4, files=4)
    query = tg.stream(files, time="time").key_by("trafficSrc").window("1 day").aggregate(flows=tg.count())
    wrong: list[int] = []

    def tamper(progress: tg.Progress) -> None:
        if progress.rows_total == 120_000 and not wrong:
            wrong.append(damage(sorted((own_folder() / f"chunks-{runs[0]}-1").iterdir())))

    result = tg.run(query, to=tmp_path / "out", spark=spark, files_per_batch=1, progress=tamper)
    law = (
        pq.read_table(files)
        .group_by("trafficSrc")
        .aggregate([("time", "count")])
        .rename_columns(["trafficSrc", "flows"])
    )
    assert difference(result.read().select(["trafficSrc", "flows"]), law) is None
    assert f"{wrong[0]} files of the local chunk cache were not what was put there" in " ".join(result.notes)
    assert not list(own_folder().glob(f"chunks-{runs[0]}-*")), "an ended run leaves nothing behind"


def test_a_cache_that_cannot_be_held_is_switched_off_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_module, "_HELD", {})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = own_folder()
    place.chmod(0o777)
    cache = ChunkCache(Path("run-1"))
    with caplog.at_level(logging.WARNING):
        cache.put(1, b"x")
        assert cache.get(1) is None
    assert len(caplog.records) == 1, "one warning for a process"
    assert "may be written by others" in caplog.text
    assert not list(place.iterdir())
