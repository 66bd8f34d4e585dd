"""Parquet files of one stream whose columns have other types than those of the first: refused, never cast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import DataError
from tidegate.testing import answer

TIME = pa.timestamp("us", tz="UTC")
FIRST = pa.table({"ts": pa.array([1, 2], TIME), "k": [1, 2], "x": [0.5, 1.5], "unused": [1, 2]})


def second(column: str, kind: pa.DataType) -> pa.Table:
    place = FIRST.schema.get_field_index(column)
    return FIRST.set_column(place, column, FIRST.column(column).cast(kind))


def query(folder: Path, later: pa.Table) -> tg.Stream:
    folder.mkdir(exist_ok=True)
    pq.write_table(FIRST, folder / "1.parquet")
    pq.write_table(later, folder / "2.parquet")
    stream = tg.stream(str(folder / "*.parquet"), time="ts", name="calls", disorder="1 second")
    return stream.key_by("k").window("1 second").aggregate(n=tg.count(), x=tg.sum("x"))


OTHERS = [
    ("k", pa.string(), "'k' is string, and int64"),
    ("k", pa.float64(), "'k' is double, and int64"),
    ("k", pa.int32(), "'k' is int32, and int64"),
    ("x", pa.float32(), "'x' is float, and double"),
    ("ts", pa.timestamp("us"), r"'ts' is timestamp\[us\], and timestamp\[us, tz=UTC\]"),
    ("unused", pa.string(), "'unused' is string, and int64"),
]


@pytest.mark.parametrize("runtime", ["local", "reference", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize(("column", "kind", "message"), OTHERS)
def test_another_type_is_refused_with_file_and_column(
    column: str, kind: pa.DataType, message: str, runtime: str, tmp_path: Path
) -> None:
    counts = query(tmp_path / "in", second(column, kind))
    with pytest.raises(DataError, match=rf"2\.parquet: the column {message} in .*1\.parquet.*tg\.stream\("):
        tg.run(counts, on=runtime, to=tmp_path / "out", progress=False)


@pytest.mark.parametrize("runtime", ["local", "reference", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_missing_column_is_refused(runtime: str, tmp_path: Path) -> None:
    counts = query(tmp_path / "in", FIRST.drop_columns(["x"]))
    with pytest.raises(DataError, match=r"2\.parquet: the column 'x' is not there; it has 'ts', 'k', 'unused'"):
        tg.run(counts, on=runtime, to=tmp_path / "out", progress=False)


@pytest.mark.spark
def test_a_file_that_appears_later_is_refused_on_spark(spark: Any, tmp_path: Path) -> None:
    counts = query(tmp_path / "in", FIRST)

    def add(progress: tg.Progress) -> None:
        if progress.batch == 0:
            pq.write_table(second("k", pa.string()), tmp_path / "draft")
            (tmp_path / "draft").rename(tmp_path / "in" / "3.parquet")

    with pytest.raises(
        DataError, match=rf"^{tmp_path}/in/3\.parquet: the column 'k' is string, and int64 in .*1\.parquet"
    ):
        tg.run(counts, to=tmp_path / "out", spark=spark, bounded=False, progress=add)


def test_what_declares_its_types_is_held_to_them(tmp_path: Path) -> None:
    pq.write_table(FIRST, tmp_path / "1.parquet")
    declared = {"ts": TIME, "k": pa.string()}
    stream = tg.stream(str(tmp_path / "1.parquet"), time="ts", schema=declared)
    with pytest.raises(DataError, match=r"1\.parquet: the column 'k' is int64, and string as declared"):
        list(tg.start(stream))


@pytest.mark.parametrize(
    "later",
    [
        second("k", pa.int64()),
        FIRST.set_column(0, "ts", FIRST.column("ts").cast(pa.timestamp("ms", tz="Europe/Athens"), safe=False)),
        FIRST.select(["x", "unused", "k", "ts"]).append_column("more", pa.array(["a", "b"])),
    ],
)
def test_units_order_and_more_columns_do_not_matter(later: pa.Table, tmp_path: Path) -> None:
    counts = query(tmp_path / "in", later)
    given = sum(row["n"] for table in tg.start(counts) for row in table.to_pylist())
    assert given == 4 == sum(answer(counts).rows.column("n").to_pylist())
