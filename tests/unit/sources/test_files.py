"""Bounded inputs in files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import DataError, QueryError
from tidegate.query.schema import TIME
from tidegate.sources import read_table
from tidegate.sources.files import files_of


def test_json_lines_keep_columns_that_the_first_line_lacks(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"ts": "2024-01-01T00:00:00Z"}\n\n{"ts": "2024-01-01T00:00:01Z", "x": 3}\n')
    files = files_of(str(file))
    assert files.schema.names == ["ts", "x"]
    assert read_table(files, files.schema).column("x").to_pylist() == [None, 3]


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n{"x": \n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: not JSON"):
        files_of(str(tmp_path))


def test_a_glob_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="no file matches"):
        tg.stream(str(tmp_path / "*.parquet"), time="ts")


def test_times_kept_as_spark_keeps_them_by_default_are_moments(tmp_path: Path) -> None:
    moments = [datetime(2024, 1, 1, tzinfo=UTC), datetime(2800, 1, 1, 0, 0, 0, 7, tzinfo=UTC)]
    table = pa.table({"ts": pa.array(moments, TIME), "seen": pa.array([moments, []], pa.list_(TIME)), "n": [1, 2]})
    pq.write_table(table, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    files = files_of(str(tmp_path))
    assert files.schema == table.schema
    assert read_table(files, files.schema).equals(table)
