"""Decimals and maps in files, in and out, and what cannot be done with them."""

from __future__ import annotations

import json
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.errors import DataError, QueryError
from tidegate.testing import difference

TIME = pa.timestamp("us", tz="UTC")
PRICES = pa.map_(pa.string(), pa.decimal128(30, 2))
SCHEMA = pa.schema(
    [
        ("ts", TIME),
        ("price", pa.decimal128(30, 2)),
        ("counts", pa.map_(pa.int64(), pa.list_(pa.string()))),
        ("prices", PRICES),
    ]
)
LONG = "1234567890123456789012345678.25"
ROWS = pa.table(
    [
        pa.array([1, 2, 3, 4], pa.int64()).cast(TIME),
        pa.array([D(LONG), D("-0.50"), None, D("7.00")], SCHEMA.field("price").type),
        pa.array([[(7, ["a"]), (-8, None)], [], None, [(0, [])]], SCHEMA.field("counts").type),
        pa.array([[("x", D(LONG))], None, [("", None)], []], PRICES),
    ],
    schema=SCHEMA,
)


@pytest.mark.parametrize("format_", ["parquet", "jsonl"])
def test_what_is_written_is_read_again(tmp_path: Path, format_: str) -> None:
    result = tg.run(tg.stream(ROWS, time="ts"), on="local", to=tmp_path / "out", format=format_, progress=False)
    assert difference(result.read(), ROWS) is None
    again = tg.stream(str(tmp_path / "out"), time="ts", schema=SCHEMA)
    assert difference(pa.concat_tables(tg.start(again)), ROWS) is None
    if format_ == "jsonl":
        first = json.loads(next((tmp_path / "out").glob("*.json")).read_text().splitlines()[0])
        assert (first["price"], first["counts"], first["prices"]) == (LONG, {"7": ["a"], "-8": None}, {"x": LONG})


def test_all_digits_of_numbers_count_also_where_another_column_is_read_with_care(tmp_path: Path) -> None:
    """A float that is no number makes Arrow give up on a line, which is then read column by column."""
    schema = {"ts": TIME, "f": pa.float64(), "price": pa.decimal128(30, 2), "prices": PRICES}
    line = f'{{"ts": "1970-01-01", "f": "NaN", "price": {LONG}, "prices": {{"x": {LONG}}}}}\n'
    (tmp_path / "in.jsonl").write_text(line)
    (row,) = pa.concat_tables(tg.start(tg.stream(str(tmp_path / "in.jsonl"), time="ts", schema=schema))).to_pylist()
    assert (row["price"], row["prices"]) == (D(LONG), [("x", D(LONG))])


def test_csv_has_decimals(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(f"ts,price\n1970-01-01T00:00:00Z,{LONG}\n1970-01-01T00:00:01Z,\n")
    stream = tg.stream(str(tmp_path / "in.csv"), time="ts", schema={"ts": TIME, "price": pa.decimal128(30, 2)})
    assert pa.concat_tables(tg.start(stream)).column("price").to_pylist() == [D(LONG), None]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("price", "0.125"),  # nothing is rounded
        ("price", "1e30"),
        ("price", '"nonsense"'),
        ("counts", "[1]"),
        ("counts", '{"a": ["x"]}'),
        ("counts", '{"1": "x"}'),
        ("prices", '{"a": 0.125}'),
    ],
)
def test_a_value_that_does_not_fit_is_malformed(tmp_path: Path, column: str, value: str) -> None:
    good = '{"ts": "1970-01-01"}\n'
    (tmp_path / "in.jsonl").write_text(good + f'{{"ts": "1970-01-01", "{column}": {value}}}\n' + good)
    stream = tg.stream(str(tmp_path / "in.jsonl"), time="ts", schema=SCHEMA)
    with pytest.raises(DataError, match=rf"in\.jsonl, line 2: '{column}' is .*, which is no (decimal|map)"):
        pa.concat_tables(tg.start(stream))


def test_parquet_of_other_decimals_and_maps_is_read_as_what_it_is(tmp_path: Path) -> None:
    """Decimals of other widths, and maps whose parts have other names, as other engines write them."""
    named = pa.map_(pa.field("k", pa.large_string(), nullable=False), pa.field("v", pa.int64()))
    table = pa.table(
        {
            "ts": pa.array([1], TIME),
            "small": pa.array([D("1.5")], pa.decimal128(4, 1)),
            "tags": pa.array([[("a", 1)]], named),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", store_decimal_as_integer=True)
    stream = tg.stream(str(tmp_path / "in.parquet"), time="ts")
    assert stream.schema.types[1:] == [pa.decimal128(4, 1), pa.map_(pa.string(), pa.int64())]
    assert [row["tags"] for part in tg.start(stream) for row in part.to_pylist()] == [[("a", 1)]]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.key_by("counts").window("1 second").aggregate(n=tg.count()), r"'counts' cannot be a key: map<.*scalar"),
        (lambda s: s.window("1 second").aggregate(n=tg.sum("counts")), r"sum\('counts'\) needs a number, and it is map"),
        (lambda s: s.window("1 second").aggregate(n=tg.max("counts")), r"max\(.*needs a scalar column, and it is map"),
        (lambda s: s.window("1 second").aggregate(n=tg.distinct("counts")), r"needs a scalar column, and it is map"),
        (lambda s: s.join(s, on="counts", within="1 second"), r"cannot be compared as keys; .* no list, struct or map"),
        (lambda s: s.dedup("counts", within="1 second"), r"'counts' cannot be a key"),
        (lambda s: s.with_columns(n=nw.col("counts") + 1), r"map<"),
        (lambda s: s.filter(nw.col("counts") > 1), r"map<"),
    ],
)  # fmt: skip
def test_maps_are_carried_and_nothing_else(build: Any, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        build(tg.stream(SCHEMA, time="ts"))


@pytest.mark.parametrize("kind", [pa.decimal256(50, 2), pa.decimal128(5, -2), pa.map_(pa.list_(pa.int8()), pa.int8())])
def test_what_is_not_carried_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(QueryError, match=r"column 'd' has the type .*, which tidegate does not carry; cast it"):
        tg.stream({"ts": TIME, "d": kind}, time="ts")


def test_text_files_hold_no_maps_in_other_columns(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    (tmp_path / "in.csv").touch()
    schema = {"ts": TIME, "m": pa.list_(pa.map_(pa.string(), pa.int64()))}
    with pytest.raises(QueryError, match="a map in a text file is a column of its own; 'm' have maps inside"):
        tg.stream(str(tmp_path / "in.jsonl"), time="ts", schema=schema)
    with pytest.raises(QueryError, match="a CSV file holds no lists, structs and maps, which 'm' are said to be"):
        tg.stream(str(tmp_path / "in.csv"), time="ts", schema=schema)
