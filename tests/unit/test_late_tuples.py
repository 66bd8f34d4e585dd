"""The files of late tuples: their columns, their names, and that each is there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.errors import EnvironmentFault, InternalError, QueryError
from tidegate.late_tuples import LateFolder
from tidegate.query.late import late_schema, with_missed
from tidegate.watermark import END, START

TIME = pa.timestamp("us", tz="UTC")
LATE = pa.table({"ts": pa.array([3, 4], TIME), "k": ["a", "b"]})


def missed(table: pa.Table) -> list[int | None]:
    return list(table.column("missed_watermark").cast(pa.int64()).to_pylist())


def test_a_late_tuple_has_all_its_columns_and_the_watermark_it_missed() -> None:
    written = with_missed(LATE, "ts", 7)
    assert written.schema == late_schema(LATE.schema, "ts")
    assert written.schema.field("missed_watermark").type == TIME
    assert written.drop_columns(["missed_watermark"]) == LATE
    assert missed(written) == [7, 7]


def test_what_comes_after_the_end_of_input_missed_no_moment() -> None:
    assert missed(with_missed(LATE, "ts", END)) == [None, None]


def test_nothing_misses_a_watermark_that_is_not_known() -> None:
    with pytest.raises(InternalError, match="before any watermark"):
        with_missed(LATE, "ts", START)


def test_tuples_that_have_a_column_of_that_name_are_refused() -> None:
    with pytest.raises(QueryError, match=r"column 'missed_watermark'.*rename theirs"):
        late_schema(pa.schema({"ts": TIME, "Missed_Watermark": TIME}), "ts")


def test_a_file_lies_in_the_folder_of_its_step_and_is_replaced_by_one_of_its_name(tmp_path: Path) -> None:
    folder = LateFolder(tmp_path / "late")
    for watermark in (7, 8):
        folder.write("per hour", 1, "3-0", with_missed(LATE, "ts", watermark))
    (file,) = (path for path in (tmp_path / "late").rglob("*") if path.is_file())
    assert file == tmp_path / "late" / "per hour" / "1-3-0.parquet"
    assert missed(pq.read_table(file)) == [8, 8]


@pytest.mark.parametrize("step", ["a/b", "..", ".hidden", "_hidden", "k=1", "a*[b]", "two\nlines", "größe"])
def test_any_name_of_a_step_makes_a_folder_that_readers_see(tmp_path: Path, step: str) -> None:
    LateFolder(tmp_path).write(step, 0, "0", LATE)
    (found,) = tmp_path.glob("*/0-*.parquet")
    assert found.parent.parent == tmp_path
    assert found.parent.name[0] not in "._"
    assert pq.read_table(found) == LATE


def test_different_names_stay_different(tmp_path: Path) -> None:
    for step in ("a/b", "a_b", "a%2Fb", "a b"):
        LateFolder(tmp_path).write(step, 0, "0", LATE)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_file_that_cannot_be_written_is_an_error_that_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(table: pa.Table, where: Path) -> None:
        where.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", fails)
    with pytest.raises(EnvironmentFault, match=r"late tuples of step 'counts' cannot be written to .*No space left"):
        LateFolder(tmp_path).write("counts", 0, "0", LATE)
    assert list((tmp_path / "counts").iterdir()) == []
