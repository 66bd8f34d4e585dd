"""Files that appear while they are read: their order, how far they were read, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import CheckpointError, DataError, QueryError
from tidegate.sources import PlacedBatch, Rejects
from tidegate.sources.files import files_of
from tidegate.sources.growing import FolderReader, growing_files_of
from tidegate.sources.positions import ReadPosition, files_from, records_after
from tidegate.watermark import START

SCHEMA = pa.schema([("x", pa.int64())])


def write(folder: Path, name: str, values: list[int]) -> None:
    """A file that appears whole, under its name."""
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), folder / ".draft")
    (folder / ".draft").rename(folder / name)


def reader(folder: Path, position: ReadPosition | None = None) -> FolderReader:
    growing = growing_files_of(str(folder / "*.parquet"), SCHEMA)
    return FolderReader(growing) if position is None else FolderReader.at(growing, position, "s")


def arriving(found: FolderReader, looks: list[Callable[[], object]], rows: int = 2) -> Iterator[PlacedBatch]:
    """The batches, while something happens before each look but the first; then no more are wanted."""
    happenings = iter(looks)

    def pause(seconds: float) -> bool:
        happening = next(happenings, None)
        if happening is not None:
            happening()
        return happening is None

    return found.arriving(SCHEMA, rows, Rejects("s"), None, pause)


def values(batches: Iterator[PlacedBatch]) -> list[int]:
    return [value for each in batches for value in each.batch.column(0).to_pylist()]


def test_files_of_one_look_go_by_name_and_later_ones_come_after(tmp_path: Path) -> None:
    write(tmp_path, "5.parquet", [1, 2])
    write(tmp_path, "3.parquet", [0])

    def more() -> None:
        write(tmp_path, "9.parquet", [6])
        write(tmp_path, "1.parquet", [3, 4, 5])

    found = values(arriving(reader(tmp_path), [lambda: None, more, lambda: write(tmp_path, "0.parquet", [7])]))
    assert found == list(range(8))


@pytest.mark.parametrize("taken", range(8))
def test_a_reader_goes_on_from_any_batch(tmp_path: Path, taken: int) -> None:
    """Seven batches of four files, one of them empty, that come one after the other, with names that fall."""
    parts = [[0, 1, 2], [3, 4, 5, 6], [], [7, 8, 9]]
    looks = [
        lambda number=number: write(tmp_path, f"{9 - number}.parquet", parts[number]) for number in range(len(parts))
    ]
    first, reached, before = reader(tmp_path), ReadPosition(START, START), []
    for each in islice(arriving(first, looks), taken):
        reached = reached.after(each.place, each.batch.num_rows - 1)
        before += each.batch.column(0).to_pylist()
    position = first.position(reached)
    for number in range(len(parts)):
        if not (tmp_path / f"{9 - number}.parquet").exists():
            write(tmp_path, f"{9 - number}.parquet", parts[number])
    second = reader(tmp_path, position)
    after = [
        value
        for each in records_after(arriving(second, []), position, "s")
        if isinstance(each, PlacedBatch)
        for value in each.batch.column(0).to_pylist()
    ]
    # What was found by one look after the other is found by one look now, in the order of names.
    assert sorted(before + after) == list(range(10))
    assert before == list(range(len(before)))


def test_a_position_has_only_files_that_are_still_there(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [1])
    sizes = []

    def replace_it(number: int) -> None:
        sizes.append(len(found.position(ReadPosition(START, START)).known))
        for old in tmp_path.glob("*.parquet"):
            old.unlink()
        write(tmp_path, f"{number}.parquet", [number])

    found = reader(tmp_path)
    looks = [lambda number=number: replace_it(number) for number in range(50)]
    assert values(arriving(found, looks)) == [1, *range(50)]
    assert set(sizes) == {16}


def test_a_name_that_comes_back_after_it_was_removed_is_a_new_file(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [1])
    looks = [(tmp_path / "a.parquet").unlink, lambda: write(tmp_path, "a.parquet", [2, 3])]
    first, reached = reader(tmp_path), ReadPosition(START, START)
    for each in arriving(first, looks[:1]):
        reached = reached.after(each.place, each.batch.num_rows - 1)
    position = first.position(reached)
    looks[1]()
    again = records_after(arriving(reader(tmp_path, position), []), position, "s")
    assert values(each for each in again if isinstance(each, PlacedBatch)) == [2, 3]


@pytest.mark.parametrize("when", ["read", "waiting", "before going on"])
def test_a_file_that_changes_is_an_error(tmp_path: Path, when: str) -> None:
    write(tmp_path, "a.parquet", [1])
    write(tmp_path, "b.parquet", [2])
    found, position = reader(tmp_path), None
    batches = arriving(found, [lambda: write(tmp_path, "a.parquet", [1, 2, 3])] if when == "read" else [])
    next(batches)
    if when == "waiting":
        write(tmp_path, "b.parquet", [1, 2, 3])
    if when == "before going on":
        position = found.position(ReadPosition(START, START))
        write(tmp_path, "a.parquet", [1, 2, 3])
        batches = arriving(reader(tmp_path, position), [])
    with pytest.raises(DataError, match=r"[ab]\.parquet was changed after it was found"):
        values(batches)


def test_a_file_of_the_same_size_that_was_written_again_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [1])

    def again() -> None:
        before = (tmp_path / "a.parquet").stat()
        write(tmp_path, "a.parquet", [2])
        os.utime(tmp_path / "a.parquet", ns=(before.st_atime_ns, before.st_mtime_ns + 1_000))
        assert (tmp_path / "a.parquet").stat().st_size == before.st_size

    with pytest.raises(DataError, match="was changed"):
        values(arriving(reader(tmp_path), [again]))


def test_a_file_that_is_gone_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [1])
    write(tmp_path, "b.parquet", [2])
    found = reader(tmp_path)
    batches = arriving(found, [])
    next(batches)
    position = found.position(ReadPosition(START, START))
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(DataError, match=r"b\.parquet is gone, and was not yet read"):
        values(batches)
    with pytest.raises(CheckpointError, match=r"b\.parquet was being read, or was to be read next, and is gone"):
        reader(tmp_path, position)


def test_a_position_is_of_a_folder_that_grows_or_of_one_that_does_not(tmp_path: Path) -> None:
    """Or files that were read would be read again."""
    write(tmp_path, "a.parquet", [1])
    found = reader(tmp_path)
    values(arriving(found, []))
    growing, bounded = found.position(ReadPosition(START, START)), ReadPosition(START, START, files=("a.parquet",))
    with pytest.raises(CheckpointError, match=r"took files as they appeared .* made without follow now"):
        files_from(files_of(str(tmp_path)), growing, "s")
    with pytest.raises(CheckpointError, match=r"was bounded .* made with follow=True now"):
        reader(tmp_path, bounded)


def test_half_a_parquet_file_is_an_error_that_says_so(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [1])
    half = (tmp_path / "a.parquet").read_bytes()[:-20]
    with pytest.raises(DataError, match=r"b\.parquet is no whole parquet file.*rename it"):
        values(arriving(reader(tmp_path), [lambda: (tmp_path / "b.parquet").write_bytes(half)]))


def test_a_folder_may_be_empty_if_columns_and_format_are_declared(tmp_path: Path) -> None:
    found = reader(tmp_path)
    assert values(arriving(found, [lambda: write(tmp_path, "a.parquet", [1])])) == [1]
    assert found.name == tmp_path.name
    for pattern, schema in ((tmp_path / "*.csv", None), (tmp_path / "none" / "*", SCHEMA)):
        with pytest.raises(QueryError, match=r"no file matches .* yet, so its format and columns are not known"):
            growing_files_of(str(pattern), schema)


def test_another_format_and_other_columns_are_errors(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [1])
    growing = growing_files_of(str(tmp_path), SCHEMA)
    with pytest.raises(DataError, match=r"b\.csv: all files of .* are parquet files"):
        values(arriving(FolderReader(growing), [lambda: (tmp_path / "b.csv").touch()]))
    (tmp_path / "b.csv").unlink()
    pq.write_table(pa.table({"x": ["1"]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet: the column 'x' is string, and int64 in .*a\.parquet"):
        values(arriving(reader(tmp_path), []))


def test_what_does_not_grow_cannot_be_followed(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [1])
    with pytest.raises(QueryError, match=r"a\.parquet' is one file; name a folder or a glob"):
        tg.stream(str(tmp_path / "a.parquet"), time="x", follow=True)
    with pytest.raises(QueryError, match="follow=True goes with a folder or glob of files; got Table"):
        tg.stream(pa.table({"x": [1]}), time="x", follow=True)
