"""Parquet files as a source: splits, positions, and columns that are missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.kit.micro_graphs import nothing
from tidegate import micro


def write(folder: Path) -> list[Path]:
    """Two files of seven rows, in groups of two."""
    files = []
    for number in range(2):
        times = pa.array(range(7 * number, 7 * number + 7), pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        table = pa.table({"ts": times, "n": list(range(7)), "x": [None, 0.5] * 3 + [1.5]})
        files.append(folder / f"{number}.parquet")
        pq.write_table(table, files[-1], row_group_size=2)
    return files


@pytest.mark.parametrize("splits", [1, 2, 3, 9])
def test_every_row_is_read_once(splits: int, tmp_path: Path) -> None:
    source = micro.parquet("files", write(tmp_path), time="ts", columns=["x", "n"], splits=splits)
    stage = micro.aggregate("same", source, function=lambda key, at, rows: [row[1:] for row in rows], size_us=1)
    law = [(t, ([None, 0.5] * 3 + [1.5])[t % 7], t % 7) for t in range(14)]
    assert micro.collect(stage) == law


def test_a_split_goes_on_from_any_position(tmp_path: Path) -> None:
    source = micro.parquet("files", write(tmp_path), time="ts", columns=["n"], splits=2)
    for split in source.splits:
        rows = [row for batch in source.read(split, 0) for row in batch]
        for skip in range(len(rows) + 2):
            assert [row for batch in source.read(split, skip) for row in batch] == rows[skip:]


def test_times_in_milliseconds_and_as_numbers_and_without_any(tmp_path: Path) -> None:
    for kind, given in ((pa.timestamp("ms"), [1, 2]), (pa.int64(), [1_000, 2_000]), (pa.int32(), [1_000, 2_000])):
        pq.write_table(pa.table({"ts": pa.array(given, pa.int64()).cast(kind), "n": [5, 6]}), tmp_path / "one.parquet")
        source = micro.parquet("files", [tmp_path / "one.parquet"], time="ts", columns=["n"])
        assert list(source.read(source.splits[0], 0)) == [[(1_000, 5), (2_000, 6)]]
        assert list(source.read(source.splits[0], 1)) == [[(2_000, 6)]]
    pq.write_table(pa.table({"ts": pa.array([1, None], pa.timestamp("us"))}), tmp_path / "none.parquet")
    stage = micro.aggregate(
        "none",
        micro.parquet("files", [tmp_path / "none.parquet"], time="ts", columns=[]),
        function=lambda key, at, rows: [],
        size_us=1,
    )
    with pytest.raises(tg.DataError, match="a row is a tuple whose first value is its event time"):
        micro.collect(stage)


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    source = micro.parquet("files", write(tmp_path), time="ts", columns=["m"])
    stage = micro.aggregate("none", source, function=lambda key, at, rows: [], size_us=1, key=nothing)
    with pytest.raises(tg.DataError, match=r"0\.parquet': there is no column \['m'\]; it has \['ts', 'n', 'x'\]"):
        micro.collect(stage)
    with pytest.raises(tg.QueryError, match="needs at least one file and one split"):
        micro.parquet("files", [], time="ts", columns=["n"])


def test_bags_that_expire_together_are_given_at_once() -> None:
    calls: list[int] = []

    def counted(bags: list[tuple[object, int, list[micro.Row]]]) -> list[list[micro.Row]]:
        calls.append(len(bags))
        return [[(key, len(rows))] if len(rows) > 1 else [] for key, _, rows in bags]

    rows = [(0, "a"), (1, "a"), (1, "b"), (7, "b"), (8, "b")]
    stage = micro.aggregate(
        "n", micro.source("rows", [rows]), function=counted, size_us=5, key=lambda row: row[1], at_once=True
    )
    assert micro.collect(stage) == [(4, "a", 2), (9, "b", 2)]
    assert calls == [2, 1], "both keys of the first window with the watermark, the last one at the end"
    few = micro.aggregate("n", micro.source("rows", [rows]), function=lambda bags: [], size_us=5, at_once=True)
    with pytest.raises(tg.DataError, match=r"stage 'n': the function raised ValueError: .*zip.* on key \["):
        micro.collect(few)


def test_a_function_that_distributes_gets_rows_at_once_and_keeps_their_times() -> None:
    def backwards(rows: list[micro.Row]) -> list[micro.Row]:
        return [(time, 2 * n) for time, n in reversed(rows) for _ in range(n)]

    rows = [(0, 1), (0, 0), (3, 2), (7, 1)]
    given = micro.source("rows", [rows])
    stage = micro.aggregate("map", given, function=backwards, size_us=1, distributes=True, at_once=True)
    assert micro.collect(stage) == [(0, 2), (3, 4), (3, 4), (7, 2)]
    later = micro.aggregate(
        "map", given, function=lambda rows: [(8, n) for _, n in rows], size_us=1, distributes=True, at_once=True
    )
    with pytest.raises(
        tg.DataError, match=r"stage 'map': the function gave a row the time .*; one that distributes keeps"
    ):
        micro.collect(later)
