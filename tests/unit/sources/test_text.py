"""Text files line by line: what is a record, what is not, and how both are named."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import DataError, EnvironmentFault, QueryError
from tidegate.sources import Malformed, Rejects, read_table
from tidegate.sources.csv_lines import csv_parser
from tidegate.sources.files import files_of
from tidegate.sources.json_lines import json_parser
from tidegate.sources.lines import blocks_of, parse_block

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("ts", TIME), ("k", pa.string()), ("n", pa.int64())])

JSON_MISTAKES = {
    b"{": "not JSON",
    b'{"ts": "2024-01-01T00:00:00Z", "k": "a': "not JSON",
    b"[1, 2]": "not a JSON object but list",
    b"null": "not a JSON object but NoneType",
    b'{"k": "a", "n": 1}': "no event time in 'ts'",
    b'{"ts": null, "k": "a", "n": 1}': "no event time in 'ts'",
    b'{"ts": "yesterday", "k": "a"}': "'ts' is \"yesterday\", which is no timestamp",
    b'{"ts": "2024-01-01T00:00:00Z", "n": "1"}': "'n' is \"1\", which is no int64",
    b'{"ts": "2024-01-01T00:00:00Z", "n": 1.5}': "'n' is 1.5, which is no int64",
    b'{"ts": "2024-01-01T00:00:00Z", "n": 9223372036854775808}': "'n' is 9223372036854775808, which is no int64",
    b'{"ts": "2024-01-01T00:00:00Z", "k": "\xff"}': "not UTF-8",
    b'{"ts": "2024-01-01T00:00:00Z"}{"ts": "2024-01-01T00:00:00Z"}': "a record is one line",
}
CSV_MISTAKES = {
    b"2024-01-01T00:00:00Z,a": "Expected 3 columns, got 2",
    b"2024-01-01T00:00:00Z,a,1,2": "Expected 3 columns, got 4",
    b"2024-01-01T00:00:00Z,a,one": "'n': CSV conversion error to int64: invalid value 'one'",
    b"2024-01-01T00:00:00Z,a,1.0": "'n': CSV conversion error to int64",
    b"yesterday,a,1": "'ts': CSV conversion error to timestamp",
    b",a,1": "no event time in 'ts'",
    b'2024-01-01T00:00:00Z,"a,1': "a quote is not closed",
    b"2024-01-01T00:00:00Z,\xff,1": "not UTF-8",
}
GOOD = {".jsonl": b'{"ts": "2024-01-01T00:00:00Z", "k": "a", "n": 1}', ".csv": b"2024-01-01T00:00:00Z,a,1"}
HEADER = {".jsonl": b"", ".csv": b"ts,k,n\n"}
MISTAKES = [(".jsonl", *each) for each in JSON_MISTAKES.items()] + [(".csv", *each) for each in CSV_MISTAKES.items()]


@pytest.mark.parametrize(("suffix", "line", "reason"), MISTAKES)
def test_a_malformed_line_is_named_or_set_aside(suffix: str, line: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / f"in{suffix}"
    # The last line has no end, as in a file that was cut off.
    file.write_bytes(HEADER[suffix] + b"\n".join([GOOD[suffix]] * 5 + [line] + [GOOD[suffix]] * 2 + [b"", line]))
    files = files_of(str(file), SCHEMA)
    number = HEADER[suffix].count(b"\n") + 6
    with pytest.raises(DataError) as stopped:
        list(files.batches(SCHEMA, 100, Rejects("calls"), "ts"))
    assert f"{file}, line {number}: " in str(stopped.value)
    assert reason in str(stopped.value)

    rejects = Rejects("calls", str(tmp_path / "dead.jsonl"))
    pieces = list(files.batches(SCHEMA, 4, rejects, "ts"))
    assert [row for piece in pieces for row in piece.batch.column("n").to_pylist()] == [1] * 7
    assert [piece.place.of(row) for piece in pieces for row in range(piece.batch.num_rows)] == [
        f"{file}, line {number + step}" for step in (-5, -4, -3, -2, -1, 1, 2)
    ]
    letters = [json.loads(each) for each in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [letter["line"] for letter in letters] == [number, number + 4]
    assert all(reason in letter["reason"] for letter in letters)
    assert letters[0]["raw"] == line.decode("utf-8", "backslashreplace")
    assert rejects.count == 2


LINES = st.lists(st.sampled_from([b"", b" ", *GOOD.values(), *JSON_MISTAKES, *CSV_MISTAKES]), max_size=30)


@pytest.mark.parametrize("suffix", GOOD)
@given(lines=LINES, block_bytes=st.integers(1, 400), mark=st.booleans(), end=st.sampled_from([b"\n", b"\r\n"]))
def test_how_a_file_is_cut_into_blocks_does_not_matter(
    suffix: str, lines: list[bytes], block_bytes: int, mark: bool, end: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What one line is by itself, it is in any company."""
    file = tmp_path_factory.mktemp("cut") / f"in{suffix}"
    file.write_bytes(b"\xef\xbb\xbf" * mark + end.join(lines))
    parse = json_parser(SCHEMA, "ts") if suffix == ".jsonl" else csv_parser(("ts", "k", "n"), SCHEMA, "ts", str(file))
    found: list[int] = []
    bad: list[Malformed] = []
    for block in blocks_of(str(file), block_bytes):
        tables, numbers = parse_block(block, parse, bad.append)
        rows = sum(table.num_rows for table in tables)
        found += range(block.first, block.first + rows) if numbers is None else [int(number) for number in numbers]
    assert found == [number for number, line in enumerate(lines, 1) if line == GOOD[suffix]]
    assert [each.line for each in bad] == [
        number for number, line in enumerate(lines, 1) if line.strip() and line != GOOD[suffix]
    ]


def test_json_holds_every_type_as_spark_writes_it(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("ts", TIME),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("x", pa.float64()),
            ("data", pa.binary()),
            ("days", pa.list_(pa.date32())),
            ("of", pa.struct([("a", pa.int32())])),
        ]
    )
    (tmp_path / "in.json").write_text(
        '{"ts": "2024-01-01T02:00:00+02:00", "local": "2024-01-01T00:00:00.5", "day": "2024-01-02", "x": "-Infinity", '
        '"data": "aGk=", "days": ["2024-01-02", null], "of": {"a": 7}}\n{"ts": "2024-01-01T00:00:00"}\n'
    )
    rows = read_table(files_of(str(tmp_path / "in.json"), schema), schema).to_pylist()
    assert rows[0]["ts"] == rows[1]["ts"]
    assert str(rows[0]["local"]) == "2024-01-01 00:00:00.500000"
    assert (str(rows[0]["day"]), rows[0]["x"], rows[0]["data"]) == ("2024-01-02", float("-inf"), b"hi")
    assert (str(rows[0]["days"]), rows[0]["of"]) == ("[datetime.date(2024, 1, 2), None]", {"a": 7})
    assert set(rows[1].values()) == {rows[1]["ts"], None}


def test_csv_types_are_inferred_from_all_records_of_the_first_file_that_has_some(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("ts,when,n,x,b,day,none,text\n")
    (tmp_path / "1.csv").write_text(
        "ts,when,n,x,b,day,none,text\n"
        "2024-01-01T00:00:00Z,2024-01-01 00:00:00,1,1,true,2024-01-01,,12:00:00\n"
        "2024-01-01T00:00:00Z,2024-01-01 00:00:00.25,2,1.5,False,2024-01-01,,noon\n"
    )
    schema = files_of(str(tmp_path)).schema
    assert dict(zip(schema.names, map(str, schema.types), strict=True)) == {
        "ts": "timestamp[us, tz=UTC]",
        "when": "timestamp[us]",
        "n": "int64",
        "x": "double",
        "b": "bool",
        "day": "date32[day]",
        "none": "string",
        "text": "string",
    }


def test_csv_columns_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text('ts,k,n\n2024-01-01T00:00:00Z,"a ""b"", c",1\n')
    (tmp_path / "2.csv").write_text('n,more,ts,k\n2,x,2024-01-01T00:00:01Z,""\n3,x,2024-01-01T00:00:01Z,\n')
    table = read_table(files_of(str(tmp_path)), SCHEMA)
    assert table.select(["k", "n"]).to_pylist() == [{"k": 'a "b", c', "n": 1}, {"k": "", "n": 2}, {"k": None, "n": 3}]


@pytest.mark.parametrize(
    ("header", "message"),
    [("ts,n", r"2\.csv, line 1: the column 'k' is not there"), ("ts,k,k", "two columns have one name")],
)
def test_a_header_that_does_not_fit_is_an_error(header: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("ts,k,n\n2024-01-01T00:00:00Z,a,1\n")
    (tmp_path / "2.csv").write_text(f"{header}\n2024-01-01T00:00:00Z,a,1\n")
    with pytest.raises(DataError, match=message):
        read_table(files_of(str(tmp_path)), SCHEMA, Rejects("calls", str(tmp_path / "dead.jsonl")))


def test_columns_that_cannot_be_told_must_be_declared(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("ts,k,n\n")
    (tmp_path / "2.csv").write_text("")
    with pytest.raises(QueryError, match=r"no file of .* holds a record to tell the columns from; declare them"):
        files_of(str(tmp_path))
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n{"x": "a"}\n')
    with pytest.raises(QueryError, match=r"cannot read the schema of .*in\.jsonl: .*; declare it: schema="):
        files_of(str(tmp_path / "in.jsonl"))
    with pytest.raises(QueryError, match="a CSV file holds no lists, structs and maps, which 'x' are"):
        files_of(str(tmp_path / "1.csv"), pa.schema([("x", pa.list_(pa.int64()))]))


def test_malformed_records_do_not_tell_types_if_they_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("ts,n\n2024-01-01T00:00:00Z,1\nnonsense\n2024-01-01T00:00:00Z,2\n")
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n{"n"\n{"n": 2}\n')
    for file in ("in.csv", "in.jsonl"):
        with pytest.raises(DataError, match=r"line [23]: "):
            files_of(str(tmp_path / file))
        assert files_of(str(tmp_path / file), lenient=True).schema.field("n").type == pa.int64()


def test_dead_letters_that_cannot_be_written_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("{\n")
    rejects = Rejects("calls", str(tmp_path / "gone" / "dead.jsonl"))
    with pytest.raises(EnvironmentFault, match=r"'calls': a malformed record \(.*line 1.*\) cannot be written to"):
        read_table(files_of(str(tmp_path / "in.jsonl"), SCHEMA), SCHEMA, rejects)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("ts,k,n\n2024-01-01T00:00:00Z,a,1\n")
    files = files_of(str(tmp_path))
    (tmp_path / "in.csv").unlink()
    with pytest.raises(DataError, match=r"in\.csv cannot be read: .*No such file"):
        read_table(files, SCHEMA)
