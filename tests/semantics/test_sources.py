"""Files of every format, through `tg.run`: the same answer on every runtime, and nothing is lost silently."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import SetAsideWarning
from tidegate.sources import PlacedBatch, Rejects, RowPlace
from tidegate.testing import answer, difference

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("ts", TIME), ("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
FORMATS = ("parquet", "jsonl", "csv")
RUNTIMES = [
    pytest.param({"on": "reference"}, id="reference"),
    pytest.param({"on": "micro"}, id="micro"),
    pytest.param({"on": "local", "instances": 1}, id="local, 1 instance"),
    pytest.param({"on": "local", "instances": 7}, id="local, 7 instances"),
    pytest.param({"on": "spark"}, id="spark", marks=pytest.mark.spark),
    pytest.param({"on": "spark", "cells": 2}, id="spark, 2 cells", marks=pytest.mark.spark),
]
either = pytest.mark.parametrize("format_", ["jsonl", "csv"])


@pytest.fixture(params=RUNTIMES)
def where(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How `tg.run` is told which runtime to take."""
    chosen: dict[str, Any] = dict(request.param)
    if chosen["on"] == "spark":
        chosen["spark"] = request.getfixturevalue("spark")
    return chosen


def part(first_second: int, keys: list[str | None]) -> pa.Table:
    moments = pa.array([1_700_000_000_000_000 + (first_second + i) * 1_000_000 for i in range(len(keys))], pa.int64())
    numbers = [None if i % 5 == 4 else i - 2 for i in range(len(keys))]
    halves = [None if i % 7 == 6 else i / 4 for i in range(len(keys))]
    return pa.table([moments.cast(TIME), pa.array(keys), pa.array(numbers), pa.array(halves)], schema=SCHEMA)


def write(table: pa.Table, path: Path) -> Path:
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".csv":
            pa.csv.write_csv(table, path)
        case _:
            rows = [{**row, "ts": row["ts"].isoformat()} for row in table.to_pylist()]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def totals(stream: tg.Stream) -> tg.Stream:
    return stream.key_by("k").window("10 seconds", every="5 seconds").aggregate(calls=tg.count(), n=tg.sum("n"))


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_gives_the_same_answer(format_: str, where: dict[str, Any], tmp_path: Path) -> None:
    """The names, not the order of writing, say which file comes first; text may hold commas and quotes."""
    tables = [part(20, ["a", None, 'say "no"'] * 5), part(0, ["a,b", "a", ""] * 5)]
    for number, (name, table) in enumerate(zip(("second", "first"), tables, strict=True)):
        # "first" is read before "second" though it is written after it.
        path = write(table, tmp_path / f"{name.replace('first', '1').replace('second', '2')}.{format_}")
        os.utime(path, (1_700_000_000 + number,) * 2)
    query = totals(tg.stream(str(tmp_path / f"*.{format_}"), time="ts"))
    result = tg.run(query, to=tmp_path / "out", progress=False, **where)
    law = answer(totals(tg.stream(pa.concat_tables(tables[::-1]), time="ts"))).rows
    assert difference(result.read(), law) is None
    assert (result.rows, result.late, result.malformed) == (30, 0, 0)


@either
def test_a_declared_schema_gives_the_types(format_: str, where: dict[str, Any], tmp_path: Path) -> None:
    text = {
        "jsonl": '{"extra": [1], "x": 1, "k": "007", "ts": "2024-01-01T00:00:00Z"}\n',
        "csv": "extra,x,k,ts\n[1],1,007,2024-01-01T00:00:00Z\n",
    }
    (tmp_path / f"in.{format_}").write_text(text[format_])
    declared = {"ts": TIME, "k": pa.string(), "x": pa.float64()}
    stream = tg.stream(str(tmp_path / f"in.{format_}"), time="ts", schema=declared)
    query = stream.key_by("k").window("1 second").aggregate(x=tg.sum("x"))
    result = tg.run(query, to=tmp_path / "out", progress=False, **where)
    assert result.read().select(["k", "x"]).to_pylist() == [{"k": "007", "x": 1.0}]


GOOD = {
    "jsonl": '{"ts": "2024-01-01T00:00:00Z", "k": "a", "n": 1}\n',
    "csv": "2024-01-01T00:00:00Z,a,1\n",
}
BAD = {
    "jsonl": '{"ts": "2024-01-01T00:00:00Z", "k": "a", "n": 1.5}\n',
    "csv": "2024-01-01T00:00:00Z,a,one\n",
}
HEADER = {"jsonl": "", "csv": "ts,k,n\n"}
TYPES = {"ts": TIME, "k": pa.string(), "n": pa.int64()}


def counted(folder: Path, format_: str, **options: Any) -> tg.Stream:
    stream = tg.stream(str(folder / f"*.{format_}"), time="ts", schema=TYPES, **options)
    return stream.key_by("k").window("1 second").aggregate(calls=tg.count(), n=tg.sum("n"))


@either
def test_a_malformed_record_stops_the_run(format_: str, where: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / f"good.{format_}").write_text(HEADER[format_] + GOOD[format_] * 3)
    (tmp_path / f"wrong.{format_}").write_text(HEADER[format_] + GOOD[format_] * 2 + BAD[format_] + GOOD[format_])
    line = 3 + (format_ == "csv")
    with pytest.raises(tg.DataError, match=rf"wrong\.{format_}, line {line}: 'n'"):
        tg.run(counted(tmp_path, format_), to=tmp_path / "out", progress=False, **where)


@either
def test_dead_letters_take_malformed_records(format_: str, where: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / f"1.{format_}").write_text(HEADER[format_] + GOOD[format_] * 2 + BAD[format_] + GOOD[format_])
    (folder / f"2.{format_}").write_text(HEADER[format_] + "\n" + BAD[format_] + GOOD[format_])
    query = counted(folder, format_, dead_letters=tmp_path / "dead.jsonl")
    result = tg.run(query, to=tmp_path / "out", progress=False, **where)
    assert result.read().select(["calls", "n"]).to_pylist() == [{"calls": 4, "n": 4}]
    assert (result.rows, result.malformed) == (4, 2)
    letters = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    head = len(HEADER[format_].splitlines())
    assert [(Path(letter["file"]).name, letter["line"]) for letter in letters] == [
        (f"1.{format_}", head + 3),
        (f"2.{format_}", head + 2),
    ]
    assert {letter["raw"] for letter in letters} == {BAD[format_].rstrip("\n")}
    assert all("'n'" in letter["reason"] and letter["stream"] == "in" for letter in letters)


def test_a_column_that_no_step_reads_is_checked_as_well(where: dict[str, Any], tmp_path: Path) -> None:
    """Or the answer would depend on what a runtime happens to read."""
    (tmp_path / "in.csv").write_text(HEADER["csv"] + GOOD["csv"] + BAD["csv"])
    stream = tg.stream(str(tmp_path / "in.csv"), time="ts", schema=TYPES, dead_letters=tmp_path / "dead.jsonl")
    query = stream.key_by("k").window("1 second").aggregate(calls=tg.count())
    result = tg.run(query, to=tmp_path / "out", progress=False, **where)
    assert (result.read().column("calls").to_pylist(), result.malformed) == ([1], 1)


def test_dead_letters_on_spark_are_those_in_process(spark: Any, tmp_path: Path) -> None:
    """Several batches, of which the first has none, behind what is in the file already; one is a tuple from the future."""
    folder = tmp_path / "in"
    folder.mkdir()
    ahead = "2999-01-01T00:00:00Z,a,1\n"
    for number, lines in enumerate(["", BAD["csv"] + ahead, BAD["csv"] * 2]):
        path = folder / f"{number}.csv"
        path.write_text(HEADER["csv"] + GOOD["csv"] + lines + GOOD["csv"])
        os.utime(path, (1_700_000_000 + number,) * 2)

    def letters(name: str, **options: Any) -> list[dict[str, Any]]:
        dead = tmp_path / f"{name}.jsonl"
        dead.write_text('{"stream": "another"}\n')
        query = counted(folder, "csv", dead_letters=dead)
        with pytest.warns(SetAsideWarning, match="set aside"):
            result = tg.run(query, to=tmp_path / name, progress=False, **options)
        assert (result.rows, result.malformed, result.ahead) == (7, 3, 1)
        assert result.read().select(["calls", "n"]).to_pylist() == [{"calls": 6, "n": 6}]
        return [json.loads(line) for line in dead.read_text().splitlines()]

    told, law = letters("spark", on="spark", spark=spark, cells=2, files_per_batch=1), letters("local", on="local")
    assert len(told) == 5
    assert told[0] == law[0] == {"stream": "another"}
    assert sorted(map(_without_clock, told)) == sorted(map(_without_clock, law))


def _without_clock(letter: dict[str, Any]) -> str:
    """A letter as text; the reason of one from the future tells the time of reading."""
    return json.dumps({**letter, "reason": letter.get("reason", "").partition(" the clock (")[0]}, sort_keys=True)


def test_an_unreadable_parquet_file_is_named(where: dict[str, Any], tmp_path: Path) -> None:
    write(part(0, ["a"] * 3), tmp_path / "1.parquet")
    (tmp_path / "2.parquet").write_bytes((tmp_path / "1.parquet").read_bytes()[:-20])
    query = totals(tg.stream(str(tmp_path / "*.parquet"), time="ts"))
    with pytest.raises(tg.DataError, match=r"2\.parquet"):
        tg.run(query, to=tmp_path / "out", progress=False, **where)


@either
def test_empty_files_hold_nothing(format_: str, where: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / f"0.{format_}").write_text("")
    (tmp_path / f"1.{format_}").write_text(HEADER[format_] + GOOD[format_])
    (tmp_path / f"2.{format_}").write_text(HEADER[format_])
    query = totals(tg.stream(str(tmp_path / f"*.{format_}"), time="ts"))
    result = tg.run(query, to=tmp_path / "out", progress=False, **where)
    assert result.rows == 1


def test_csv_files_may_differ_in_the_order_of_columns(where: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("ts,k,n\n2024-01-01T00:00:00Z,7,1\n")
    (tmp_path / "2.csv").write_text("ts,n,k\n2024-01-01T00:00:00Z,2,7\n")
    result = tg.run(counted(tmp_path, "csv"), to=tmp_path / "out", progress=False, **where)
    assert result.read().select(["k", "calls", "n"]).to_pylist() == [{"k": "7", "calls": 2, "n": 3}]


def test_nanoseconds_of_parquet_files_are_read_if_they_are_whole_microseconds(
    where: dict[str, Any], tmp_path: Path
) -> None:
    whole = part(0, ["a", "b", "a"])
    fine = whole.set_column(0, "ts", whole.column("ts").cast(pa.timestamp("ns", tz="UTC")))
    pq.write_table(fine, tmp_path / "1.parquet")
    result = tg.run(totals(tg.stream(str(tmp_path), time="ts")), to=tmp_path / "out", progress=False, **where)
    assert difference(result.read(), answer(totals(tg.stream(whole, time="ts"))).rows) is None
    odd = pa.array([1_700_000_000_000_000_001] * 3, pa.int64()).cast(pa.timestamp("ns", tz="UTC"))
    pq.write_table(fine.set_column(0, "ts", odd), tmp_path / "1.parquet")
    with pytest.raises(tg.DataError, match=r"'ts'.*nanoseconds.*whole microseconds"):
        tg.run(totals(tg.stream(str(tmp_path), time="ts")), to=tmp_path / "other", progress=False, **where)


@dataclass(frozen=True)
class Countdown:
    """A source of a user's own: rows that no file holds."""

    rows: int
    name: str = "countdown"
    schema: pa.Schema = SCHEMA

    def batches(self, schema: pa.Schema, rows: int, rejects: Rejects, time: str | None = None) -> Iterator[PlacedBatch]:
        whole = part(0, ["a", "b"] * self.rows).select(schema.names)
        for batch in whole.to_batches(min(rows, 3)):
            yield PlacedBatch(batch, RowPlace(None, "row", 0))


def test_a_source_of_your_own_is_read_by_every_runtime(where: dict[str, Any], tmp_path: Path) -> None:
    stream = tg.stream(Countdown(8), time="ts")
    assert stream.node.name == "countdown"
    result = tg.run(totals(stream), to=tmp_path / "out", progress=False, **where)
    assert difference(result.read(), answer(totals(tg.stream(part(0, ["a", "b"] * 8), time="ts"))).rows) is None
    with pytest.raises(tg.QueryError, match="other origins have their own"):
        tg.stream(Countdown(8), time="ts", schema=SCHEMA)
