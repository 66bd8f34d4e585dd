"""Files as Spark will see them: which, in what order, how many at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import DataError, UnsupportedError
from tidegate.query.builder import source
from tidegate.runtime.spark.sources import MOST_BATCH_BYTES, ReadLimit, StagedSource, choose_limit, link
from tidegate.sources.files import files_of
from tidegate.sources.in_memory import TableOrigin

MOMENT = pa.timestamp("us", tz="UTC")


def test_the_limit_follows_number_and_size() -> None:
    assert choose_limit("s", [10], [1]) == ReadLimit(None)
    assert choose_limit("s", [10] * 20, range(20)) == ReadLimit(1)
    assert choose_limit("s", [10] * 100, range(100)) == ReadLimit(5)
    assert choose_limit("s", [MOST_BATCH_BYTES // 2] * 100, range(100)) == ReadLimit(2)
    assert choose_limit("s", [MOST_BATCH_BYTES * 9] * 100, range(100)) == ReadLimit(1)
    assert choose_limit("s", [10] * 100, range(100), files_per_batch=7) == ReadLimit(7)


def test_a_file_of_a_folder_that_grows_must_not_change_also_from_one_run_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    query = tg.stream(str(tmp_path / "in" / "*.csv"), time="ts", schema={"ts": MOMENT}, follow=True)
    links = tmp_path / "links"
    first = StagedSource.of(query.node, links, None)
    for name in ("b", "a"):
        (tmp_path / "in" / f"{name}.csv").write_text("ts\n")
        first.add_new_files()
    assert len(list(links.glob("*.csv"))) == 2
    (tmp_path / "in" / "b.csv").unlink()
    with (links / ".versions").open("a") as log:
        log.write('["cut sh')
    again = StagedSource.of(query.node, links, None)
    (tmp_path / "in" / "c.csv").write_text("ts\n")
    again.add_new_files()
    for name in ("a", "c"):
        (tmp_path / "in" / f"{name}.csv").write_text("ts\n1970-01-01\n")
        with pytest.raises(DataError, match=rf"{name}\.csv was changed after it was found"):
            again.add_new_files()
        (tmp_path / "in" / f"{name}.csv").unlink()


def test_files_in_another_order_make_one_batch() -> None:
    for modified in ([2, 1], [1, 1]):
        limit = choose_limit("calls", [10, 10], modified, files_per_batch=1)
        assert limit.files is None
        assert "stream 'calls': the files were not written in the order of their names" in str(limit.note)


def test_links_stay_and_dead_ones_go(tmp_path: Path) -> None:
    (tmp_path / "in [1]").mkdir()
    (tmp_path / "links").mkdir()
    for name in "ab":
        pq.write_table(pa.table({"x": [1]}), tmp_path / "in [1]" / f"{name}.parquet")
    link(files_of(str(tmp_path / "in [1]")), tmp_path / "links")
    before = {path.name: path.readlink() for path in (tmp_path / "links").iterdir()}
    assert sorted(target.name for target in before.values()) == ["a.parquet", "b.parquet"]
    (tmp_path / "in [1]" / "a.parquet").unlink()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "in [1]" / "c.parquet")
    link(files_of(str(tmp_path / "in [1]")), tmp_path / "links")
    after = {path.name: path.readlink() for path in (tmp_path / "links").iterdir()}
    assert sorted(target.name for target in after.values()) == ["b.parquet", "c.parquet"]
    assert {name for name, target in before.items() if target.name == "b.parquet"} <= set(after)


def test_what_workers_cannot_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="'s' reads a list, which lives in this process; run it on='local'"):
        StagedSource.of(source("s", {"ts": MOMENT}, time="ts", origin=[{"ts": 1}]), tmp_path / "inputs", None)
    with pytest.raises(UnsupportedError, match="'s' is only a schema"):
        StagedSource.of(source("s", {"ts": MOMENT}, time="ts"), tmp_path / "inputs", None)


def test_files_that_only_arrow_reads_are_staged_by_name(tmp_path: Path) -> None:
    """Spark reads names alone: times in nanoseconds and CSV files with other headers are the workers' to read."""
    pq.write_table(pa.table({"ts": pa.array([1_000], pa.timestamp("ns"))}), tmp_path / "in.parquet")
    finer = files_of(str(tmp_path / "in.parquet"))
    StagedSource.of(source("s", finer.schema, time="ts", origin=finer), tmp_path / "finer", None)
    assert [path.readlink().name for path in (tmp_path / "finer").iterdir()] == ["in.parquet"]
    (tmp_path / "1.csv").write_text("ts,k\n1970-01-01T00:00:00Z,a\n")
    (tmp_path / "2.csv").write_text("k,ts\nb,1970-01-01T00:00:01Z\n")
    node = source("s", {"ts": MOMENT, "k": pa.string()}, time="ts", origin=files_of(str(tmp_path / "*.csv")))
    StagedSource.of(node, tmp_path / "inputs", None)
    assert sorted(path.suffix for path in (tmp_path / "inputs").iterdir()) == [".csv"] * 2


def test_files_that_appear_later_are_linked(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": pa.array([1], MOMENT)}), tmp_path / "0.parquet")
    files = files_of(str(tmp_path / "*.parquet"))
    staged = StagedSource.of(source("s", files.schema, time="ts", origin=files), tmp_path / "inputs", None)
    pq.write_table(pa.table({"ts": pa.array([2], MOMENT)}), tmp_path / "1.parquet")
    staged.add_new_files()
    assert sorted(path.readlink().name for path in (tmp_path / "inputs").iterdir()) == ["0.parquet", "1.parquet"]


def test_a_table_is_staged_once(tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array([1_000], pa.timestamp("ns"))})
    node = source("s", table.schema, time="ts", origin=TableOrigin(table))
    assert StagedSource.of(node, tmp_path, 3).limit == ReadLimit(None)
    written = tmp_path / "table.parquet"
    assert pq.read_schema(written).field("ts").type == pa.timestamp("us")
    before = written.stat().st_mtime_ns
    StagedSource.of(node, tmp_path, None)
    assert written.stat().st_mtime_ns == before

    finer = pa.table({"ts": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(DataError, match="stream 's': the column 'ts' holds times in nanoseconds"):
        StagedSource.of(source("s", finer.schema, time="ts", origin=TableOrigin(finer)), tmp_path / "finer", None)
