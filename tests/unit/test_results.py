"""Result folders and how rows are shown."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.errors import QueryError
from tidegate.results import (
    SPARK_LOG,
    format_of,
    local_folder,
    part_files,
    read_results,
    remove_unlisted,
    visible_entries,
    write_results,
)
from tidegate.tables import in_order, show_count, show_rows

ROWS = pa.table(
    {
        "ts": pa.array([datetime(2024, 1, 1, 8, 0, 0, 999_999, UTC)] * 2, pa.timestamp("us", tz="UTC")),
        "local": pa.array([datetime(2024, 1, 1), None], pa.timestamp("us")),
        "day": pa.array([date(2024, 1, 1), None]),
        "x": pa.array([1.5, None]),
        "tags": pa.array([["a", None], []]),
        "n": pa.array([None, 7]),
    }
)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_what_is_written_is_read(kind: str, tmp_path: Path) -> None:
    write_results(ROWS, tmp_path / "out", kind)
    assert read_results(tmp_path / "out", kind, ROWS.schema).to_pylist() == ROWS.to_pylist()
    assert read_results(tmp_path / "nothing", kind, ROWS.schema).num_rows == 0


def test_json_lines_are_written_as_spark_does(tmp_path: Path) -> None:
    table = pa.table({"x": [float("nan"), float("-inf")], "b": [b"hi", None]})
    write_results(table, tmp_path, "jsonl")
    lines = (tmp_path / "part-00000.json").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"x": "NaN", "b": "aGk="}, {"x": "-Infinity", "b": None}]


def test_the_format_is_asked_for_or_guessed() -> None:
    assert format_of(Path("out"), None) == "parquet"
    assert format_of(Path("out.jsonl"), None) == "jsonl"
    assert format_of(Path("out.jsonl"), "parquet") == "parquet"
    with pytest.raises(QueryError, match="choose one of 'parquet', 'jsonl'"):
        format_of(Path("out"), "csv")


def test_addresses_are_refused() -> None:
    with pytest.raises(QueryError, match="local or mounted folders"):
        local_folder("s3://bucket/out", "to")


def test_parts_that_spark_did_not_commit_do_not_count(tmp_path: Path) -> None:
    for name in ("part-1.parquet", "part-2.parquet", "part-3.parquet"):
        pq.write_table(pa.table({"x": [1]}), tmp_path / name)
    (tmp_path / ".part-3.parquet.crc").write_bytes(b"")
    log = tmp_path / SPARK_LOG
    log.mkdir()
    (log / "9.compact").write_text('v1\n{"path":"file:///a%20b/part-1.parquet","action":"add"}\n')
    (log / "10").write_text('v1\n{"path":"file:///a%20b/part-2.parquet","action":"add"}\n')
    (log / ".10.crc").write_bytes(b"\x00\xff")
    assert [part.name for part in part_files(tmp_path, "parquet")] == ["part-1.parquet", "part-2.parquet"]
    assert visible_entries(tmp_path) == ["part-1.parquet", "part-2.parquet", "part-3.parquet"]
    assert remove_unlisted(tmp_path) == 1
    assert visible_entries(tmp_path) == ["part-1.parquet", "part-2.parquet"]
    assert not (tmp_path / ".part-3.parquet.crc").exists()


def test_rows_are_shown_in_order_and_aligned() -> None:
    rows = pa.table({"ts": pa.array([2, 1, 1], pa.timestamp("s")), "who": ["ann", "bo", None], "n": [7, 12, 1_000]})
    assert show_rows(in_order(rows, "ts")).splitlines() == [
        "ts                   who     n",
        "1970-01-01 00:00:01  bo     12",
        "1970-01-01 00:00:01       1000",
        "1970-01-01 00:00:02  ann     7",
    ]
    assert show_rows(pa.table({"text": ["x" * 100]})).splitlines()[1].endswith("…")
    assert (show_count(1, 1), show_count(1_200, 20)) == ("(1 row)", "(1,200 rows, 20 shown)")
