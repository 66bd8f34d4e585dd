"""What reaches workers: files by their names, rows of DataFrames, messages; what is set aside, and what is told of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.compile.plan import OUTPUT, Feed
from tidegate.errors import DataError
from tidegate.query.builder import source
from tidegate.query.schema import TIME
from tidegate.runtime.spark.codec import CLOCK, Header, SourceCounts
from tidegate.runtime.spark.inputs import (
    CONTROL,
    INPUT,
    TEXT,
    FrameRows,
    Inputs,
    NamedFiles,
    column_name,
    local_path,
)
from tidegate.sources.files import files_of

MOMENT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("ts", MOMENT), ("k", pa.int64())])
CLOCK_US = 1_800_000_000_000_000
HOUR = 3_600_000_000


def feed(number: int = 0) -> Feed:
    return Feed(source("calls", SCHEMA, time="ts"), (), OUTPUT, number, 0, "ts", SCHEMA)


def files(pattern: Path, *feeds: Feed, counted: bool = True, **options: Any) -> NamedFiles:
    return NamedFiles(
        source("calls", SCHEMA, time="ts", **options), files_of(str(pattern), SCHEMA), feeds or (feed(),), counted
    )


def frame(*feeds: Feed, counted: bool = True, **options: Any) -> FrameRows:
    return FrameRows(source("calls", SCHEMA, time="ts", **options), SCHEMA, feeds or (feed(),), counted)


def rows(number: int, texts: list[str | None], columns: dict[str, pa.Array] | None = None) -> pa.RecordBatch:
    count = len(texts)
    made = {
        INPUT: pa.array([number] * count, pa.int32()),
        TEXT: pa.array(texts, pa.string()),
        CLOCK: pa.array([CLOCK_US] * count, TIME),
    }
    return pa.RecordBatch.from_pydict(made | (columns or {}))


def frame_rows(times: list[int | None], number: int = 0) -> pa.RecordBatch:
    columns = {
        column_name(number, "ts"): pa.array(times, MOMENT),
        column_name(number, "k"): pa.array(range(len(times)), pa.int64()),
    }
    return rows(number, [None] * len(times), columns)


def read(inputs: Inputs, *batches: pa.RecordBatch) -> tuple[list[tuple[int, list[int]]], Header]:
    """The times of each table with its feed's number, and what is told."""
    header = Header()
    found = [
        (each.input, table.column("ts").cast(pa.int64()).to_pylist()) for each, table in inputs.read(batches, header)
    ]
    return found, header


def written(folder: Path, **times: list[int]) -> list[str]:
    """Parquet files with such times, and the names that Spark would give them."""
    for name, moments in times.items():
        table = pa.table([pa.array(moments, MOMENT), pa.array(moments, pa.int64())], schema=SCHEMA)
        pq.write_table(table, folder / f"{name}.parquet")
    return [f"file://{folder}/{name}.parquet" for name in times]


def test_files_are_read_by_name_in_an_order_of_their_own(tmp_path: Path) -> None:
    names = written(tmp_path, a=[1, 2], b=[5], c=[3])
    inputs = Inputs((files(tmp_path),))
    expected = [(0, [1, 2]), (0, [5]), (0, [3])]
    for order in (names, names[::-1], [*names, *names]):
        found, header = read(inputs, *(rows(0, [name]) for name in order))
        assert found == expected, "in whatever order names come, and however often"
        assert header == Header(CLOCK_US, {"calls": 5}, counts={"calls": SourceCounts(rows=4)})


def test_a_file_is_read_once_for_all_its_feeds(tmp_path: Path) -> None:
    names = written(tmp_path, a=[1, 2])
    found, header = read(Inputs((files(tmp_path, feed(0), feed(1)),)), rows(0, list(names)))
    assert found == [(0, [1, 2]), (1, [1, 2])]
    assert header.counts == {"calls": SourceCounts(rows=2)}


def test_an_input_that_is_counted_elsewhere_tells_times_alone(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").write_text('{"ts": "1970-01-01T00:00:01Z", "k": 1}\nno record\n')
    again = files(tmp_path / "0.jsonl", counted=False, dead_letters="letters")
    _, header = read(Inputs((again,)), rows(0, [str(tmp_path / "0.jsonl")]))
    assert header == Header(CLOCK_US, {"calls": 1_000_000}, counts={"calls": SourceCounts()})
    _, header = read(Inputs((frame(counted=False, dead_letters="letters"),)), frame_rows([5, CLOCK_US + 2 * HOUR]))
    assert header == Header(CLOCK_US, {"calls": 5}, counts={"calls": SourceCounts()})


def test_a_link_is_followed_and_spaces_are_spaces(tmp_path: Path) -> None:
    (tmp_path / "in 1%").mkdir()
    written(tmp_path / "in 1%", a=[1])
    link = tmp_path / "0123.parquet"
    link.symlink_to(tmp_path / "in 1%" / "a.parquet")
    assert local_path(f"file:{tmp_path}/0123.parquet") == f"{tmp_path}/in 1%/a.parquet"
    assert local_path(f"file://{tmp_path}/in%201%25/a.parquet") == f"{tmp_path}/in 1%/a.parquet"
    assert local_path(f"{tmp_path}/in 1%/a.parquet") == f"{tmp_path}/in 1%/a.parquet"


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    (name,) = written(tmp_path, a=[1])
    inputs = Inputs((files(tmp_path),))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(DataError, match=rf"{tmp_path}/a\.parquet .*No such file or directory"):
        read(inputs, rows(0, [name]))


def test_malformed_records_stop_the_run_or_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "0.jsonl"
    path.write_text('{"ts": "1970-01-01T00:00:01Z", "k": 1}\nno record\n{"ts": "1970-01-01T00:00:02Z", "k": "x"}\n')
    with pytest.raises(DataError, match=rf"{path}.*line 2.*dead_letters="):
        read(Inputs((files(path),)), rows(0, [str(path)]))
    kept = files(path, dead_letters="/nowhere/that/a/worker/writes")
    found, header = read(Inputs((kept,)), rows(0, [str(path)]))
    assert found == [(0, [1_000_000])]
    assert header.counts == {"calls": SourceCounts(rows=1, malformed=2)}
    letters = [json.loads(line) for line in header.letters["calls"]]
    assert [(each["stream"], each["file"], each["line"]) for each in letters] == [
        ("calls", str(path), 2),
        ("calls", str(path), 3),
    ]
    assert letters[0]["raw"] == "no record"
    again, others = read(Inputs((kept,)), rows(0, [str(path)]))
    assert (again, others) == (found, header), "an attempt that is run again tells the same"


def test_what_lies_ahead_of_the_clock_moves_no_watermark(tmp_path: Path) -> None:
    # the clock, and an hour that is allowed:   |CLOCK ......... + 1 h| later
    edge = CLOCK_US + HOUR
    found, header = read(Inputs((frame(),)), frame_rows([5, edge, edge + 1]), frame_rows([None, edge + 9]))
    assert found == [(0, [5, edge]), (0, [None])], "what has no time is the next step's to refuse"
    assert (header.newest, header.counts) == ({"calls": edge}, {"calls": SourceCounts(rows=5, ahead=2)})
    assert header.letters == {}
    found, header = read(Inputs((frame(ahead=None),)), frame_rows([5, edge + 1]))
    assert (found, header.newest) == ([(0, [5, edge + 1])], {"calls": edge + 1})
    found, header = read(Inputs((frame(),)), frame_rows([edge + 1]))
    assert (found, header.newest) == ([(0, [])], {}), "of nothing but such tuples nothing is known"
    names = written(tmp_path, a=[5, edge + 1])
    found, header = read(Inputs((files(tmp_path, dead_letters="letters"),)), rows(0, list(names)))
    assert (found, header.newest) == ([(0, [5])], {"calls": 5})
    assert header.counts == {"calls": SourceCounts(rows=2, ahead=1)}
    (letter,) = map(json.loads, header.letters["calls"])
    assert (letter["stream"], letter["file"]) == ("calls", f"{tmp_path}/a.parquet")
    assert "clock" in letter["reason"]
    assert json.loads(letter["raw"])["k"] == edge + 1


def test_rows_of_several_inputs_come_mixed() -> None:
    others = replace(frame(feed(1)), source=source("answers", SCHEMA, time="ts"))
    one, other = frame_rows([1, 2], 0), frame_rows([3], 1)
    message = rows(CONTROL, ["instances 2 30", "end"])
    together = pa.concat_tables([pa.Table.from_batches([b]) for b in (one, message, other)], promote_options="default")
    for table in (together, together.take([4, 3, 2, 1, 0])):
        found, header = read(Inputs((frame(feed(0)), others)), *table.combine_chunks().to_batches())
        assert sorted((number, sorted(times)) for number, times in found) == [(0, [1, 2]), (1, [3])]
        assert header.newest == {"calls": 2, "answers": 3}
        assert header.messages == ["end", "instances 2 30"]


def test_a_batch_without_rows_tells_nothing() -> None:
    found, header = read(Inputs((frame(),)), frame_rows([]).slice(0, 0))
    assert (found, header) == ([], Header())
